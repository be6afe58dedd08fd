//! Programs of operations `exec` and `make`. They are memory files, executed by their descriptors, so that no disk or
//! path lookup is measured.

use crate::arch::program::{call_step_program, exit_program, MACHINE};
use std::arch::global_asm;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::slice;
use trapline_abi::platform::PROGRAM_PAGES;
use trapline_workloads::script::{NUMBER_BYTES, WORDS};
use trapline_workloads::Reason;

/// Numbers of the pipes that the program of a step reads from and writes to. Smaller than 64, above which a kernel
/// allocates larger tables for all processes.
pub const INPUT: RawFd = 40;
pub const OUTPUT: RawFd = 41;

/// Load address, different from all other programs.
const BASE: u64 = PROGRAM_PAGES[1];

/// Defines a function that returns an ELF executable (System V ABI, chapters 4 and 5), between two labels: header, one
/// segment with the whole file, a segment for a stack that is not executable, and code.
macro_rules! executable {
    ($(#[$doc:meta])* $name:ident, $start:ident..$end:ident, $code:expr, $($constants:tt)*) => {
        global_asm!(
            ".pushsection .rodata.trapline_child, \"a\", @progbits",
            concat!(stringify!($start), ":"),
            ".byte 0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0",
            ".quad 0",
            ".short 2, {MACHINE}",
            ".long 1",
            concat!(".quad {BASE} + 20f - ", stringify!($start), ", 64, 0"),
            ".long 0",
            ".short 64, 56, 2, 0, 0, 0",
            ".long 1, 5",
            ".quad 0, {BASE}, {BASE}",
            concat!(".quad ", stringify!($end), " - ", stringify!($start)),
            concat!(".quad ", stringify!($end), " - ", stringify!($start), ", 4096"),
            ".long 0x6474e551, 6",
            ".quad 0, 0, 0, 0, 0, 16",
            "20:",
            $code,
            concat!(stringify!($end), ":"),
            ".popsection",
            BASE = const BASE,
            MACHINE = const MACHINE,
            EXIT = const libc::SYS_exit,
            $($constants)*
        );

        $(#[$doc])*
        pub fn $name() -> &'static [u8] {
            extern "C" {
                static $start: u8;
                static $end: u8;
            }
            let (start, end) = (&raw const $start, &raw const $end);
            // SAFETY: both are labels of the constant above, the second after its last byte.
            unsafe { slice::from_raw_parts(start, end.addr() - start.addr()) }
        }
    };
}

executable!(
    /// Returns the program of operation `exec`, which exits with the first byte of the first argument.
    exit,
    trapline_child..trapline_child_end,
    exit_program!(),
);

executable!(
    /// Returns the program of a step of operation `make` ([`trapline_workloads::script`]).
    step,
    trapline_step..trapline_step_end,
    call_step_program!(),
    ARGUMENT = const 16,
    READ = const libc::SYS_read,
    WRITE = const libc::SYS_write,
    INPUT = const INPUT,
    OUTPUT = const OUTPUT,
    WORDS = const WORDS,
    NUMBER = const NUMBER_BYTES,
);

/// Reason why memory files cannot be executed.
pub const REFUSED: Reason =
    "the kernel does not execute memory files: sudo sysctl vm.memfd_noexec=0";

/// Memory file with a program.
pub struct Executable(File);

impl Executable {
    /// Creates a file with the program in `program`.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn new(program: &[u8]) -> Result<Self, Reason> {
        // Kernels before 6.3 do not have this flag, and execute all memory files.
        let file = in_memory(c"trapline-child", libc::MFD_EXEC)
            .or_else(|| in_memory(c"trapline-child", 0))
            .ok_or(REFUSED)?;
        file.write_all_at(program, 0).map_err(|_| REFUSED)?;
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
    fn programs_are_small_executables() {
        assert_eq!(exit().len(), 64 + 2 * 56 + 15);
        for program in [exit(), step()] {
            assert!(program.starts_with(b"\x7fELF"));
            assert!(program.len() < 512, "{}", program.len());
        }
    }
}
