//! Program of operation `exec`: four instructions, which exit with the first byte of the first
//! argument. It is a memory file, executed by its descriptor, so that no disk or path lookup is
//! measured.

use std::arch::global_asm;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::slice;
use trapline_workloads::Reason;

// ELF executable (System V ABI, chapters 4 and 5): header, one segment with the whole file, and a
// segment for a stack that is not executable.
global_asm!(
    ".pushsection .rodata.trapline_child, \"a\", @progbits",
    "trapline_child:",
    ".byte 0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0",
    ".quad 0",
    ".short 2, 62",
    ".long 1",
    ".quad {base} + 2f - trapline_child, 64, 0",
    ".long 0",
    ".short 64, 56, 2, 0, 0, 0",
    ".long 1, 5",
    ".quad 0, {base}, {base}",
    ".quad trapline_child_end - trapline_child, trapline_child_end - trapline_child, 4096",
    ".long 0x6474e551, 6",
    ".quad 0, 0, 0, 0, 0, 16",
    "2:",
    "mov rax, [rsp + 16]",
    "movzx edi, byte ptr [rax]",
    "mov eax, {exit}",
    "syscall",
    "trapline_child_end:",
    ".popsection",
    base = const BASE,
    exit = const libc::SYS_exit,
);

/// Load address, different from all other programs.
const BASE: u64 = 0x2000_0000;

extern "C" {
    static trapline_child: u8;
    static trapline_child_end: u8;
}

/// Reason why memory files cannot be executed.
pub const REFUSED: Reason =
    "the kernel does not execute memory files: sudo sysctl vm.memfd_noexec=0";

/// Memory file with the program.
pub struct Executable(File);

impl Executable {
    /// Creates the file.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn new() -> Result<Self, Reason> {
        // Kernels before 6.3 do not have this flag, and execute all memory files.
        let file = in_memory(c"trapline-child", libc::MFD_EXEC)
            .or_else(|| in_memory(c"trapline-child", 0))
            .ok_or(REFUSED)?;
        file.write_all_at(bytes(), 0).map_err(|_| REFUSED)?;
        Ok(Self(file))
    }

    /// Executes the program, which exits with `status`. Returns only on failure.
    #[inline(always)]
    pub fn execute(&self, status: u8) {
        let argument = [status, 0];
        let arguments = [c"child".as_ptr(), argument.as_ptr().cast(), ptr::null()];
        let nothing: [*const libc::c_char; 1] = [ptr::null()];
        // SAFETY: an open descriptor, an empty path, and two arrays of strings that end
        // with a null pointer; all of them outlive the call.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                arguments.as_ptr(),
                nothing.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        };
    }
}

fn bytes() -> &'static [u8] {
    let (start, end) = (&raw const trapline_child, &raw const trapline_child_end);
    // SAFETY: both are labels of the constant above, the second after its last byte.
    unsafe { slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// Creates an empty memory file.
pub fn in_memory(name: &CStr, flags: libc::c_uint) -> Option<File> {
    // SAFETY: a string that outlives the call.
    let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags) };
    // SAFETY: a new descriptor.
    (file >= 0).then(|| unsafe { File::from_raw_fd(file) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_a_small_executable() {
        let program = bytes();
        assert!(program.starts_with(b"\x7fELF"));
        assert_eq!(program.len(), 64 + 2 * 56 + 15);
    }
}
