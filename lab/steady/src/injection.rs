//! Drops interrupts that QEMU delivers twice.
//!
//! When VMRUN injects an interrupt, QEMU delivers it and leaves its vector in
//! `CPUState::exception_index` (`helper_vmrun`), which the next exit or exception overwrites. If the
//! instruction count reaches a timer of the machine before that, QEMU takes the vector for a pending
//! exception and delivers it again, even to a guest that has masked interrupts
//! (`cpu_handle_exception`).
//!
//! Pending exceptions are delivered through one pointer, `do_interrupt` of QEMU's `TCGCPUOps`. This
//! module replaces it by [`deliver`], which drops the repetition. Other interrupts never take this
//! path: those of devices, and the injected one itself, are delivered by `do_interrupt_x86_hardirq`,
//! and INT n is marked as such.
//!
//! The offsets of the two fields are taken from QEMU's code of `x86_cpu_do_interrupt`. If that differs
//! from [`crate::code`], nothing is replaced.

use crate::code::{fields, Fields};
use libc::{c_char, c_int, c_void, dl_phdr_info, Elf64_Phdr};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::OnceLock;

/// Environment variable that makes this library print the result of [`install`].
const REPORT: &str = "TRAPLINE_STEADY_REPORT";

/// First vector that no processor uses for an exception.
const FIRST_INTERRUPT: i32 = 32;
const LAST_INTERRUPT: i32 = 255;

/// Number of bytes of a function that are compared at most.
const CODE_BYTES: usize = 192;

/// Size of a page on x86-64, and the unit of protection.
const PAGE: usize = 4096;

/// QEMU's function that delivers the pending exception of a `CPUState`.
type Deliver = unsafe extern "C" fn(*mut c_void);

struct Original {
    deliver: Deliver,
    fields: Fields,
}

/// QEMU's own function, once it is replaced.
static ORIGINAL: OnceLock<Original> = OnceLock::new();

/// Runs when the library is loaded, before QEMU's `main`.
#[used]
#[link_section = ".init_array"]
static LOADED: extern "C" fn() = on_load;

extern "C" fn on_load() {
    let installed = install();
    if std::env::var_os(REPORT).is_some() {
        match installed {
            Ok(()) => eprintln!("dropped"),
            Err(reason) => eprintln!("possible: {reason}"),
        }
    }
}

/// Replaces QEMU's pointer to `x86_cpu_do_interrupt`.
fn install() -> Result<(), &'static str> {
    let function = address_of(c"x86_cpu_do_interrupt").ok_or("no x86_cpu_do_interrupt")?;
    let callee = address_of(c"do_interrupt_all").ok_or("no do_interrupt_all")?;
    let program = Program::of_this_process(function).ok_or("x86_cpu_do_interrupt is not QEMU's")?;
    let code = program.code_at(function);
    let fields = fields(code, callee.wrapping_sub(function)).ok_or("unknown code of QEMU")?;
    let slot = program.only_pointer_to(function)?;
    // SAFETY: `function` is x86_cpu_do_interrupt, whose code was compared: it takes the CPU.
    let deliver = unsafe { std::mem::transmute::<usize, Deliver>(function) };
    ORIGINAL
        .set(Original { deliver, fields })
        .map_err(|_| "replaced before")?;
    replace(slot)
}

/// Delivers the pending exception of `cpu`, unless it is an interrupt that was delivered before.
unsafe extern "C" fn deliver(cpu: *mut c_void) {
    let Some(original) = ORIGINAL.get() else {
        return;
    };
    // SAFETY: QEMU passes a CPU, which has both fields at these offsets, as its own code reads them.
    let is_repeated = unsafe { is_repeated(cpu, original.fields) };
    if !is_repeated {
        // SAFETY: QEMU called this function as the original, with the same argument.
        unsafe { (original.deliver)(cpu) };
    }
}

/// Returns true if the pending exception is an interrupt, but none of an instruction INT n.
///
/// # Safety
/// `cpu` has aligned and initialized `i32` at the offsets of `fields`.
unsafe fn is_repeated(cpu: *const c_void, fields: Fields) -> bool {
    // SAFETY: see above.
    let vector = unsafe { cpu.byte_add(fields.vector).cast::<i32>().read() };
    // SAFETY: see above.
    let is_instruction = unsafe { cpu.byte_add(fields.is_instruction).cast::<i32>().read() } != 0;
    (FIRST_INTERRUPT..=LAST_INTERRUPT).contains(&vector) && !is_instruction
}

/// Writes the address of [`deliver`] to `slot`, which is in a page that the loader has made
/// read-only.
fn replace(slot: *mut usize) -> Result<(), &'static str> {
    let page = slot.map_addr(|address| address / PAGE * PAGE).cast();
    // SAFETY: the page is data of QEMU, which no thread uses before `main`.
    if unsafe { libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        return Err("a page cannot be written");
    }
    // SAFETY: `slot` is aligned, and its page can be written now.
    unsafe { slot.write(deliver as *const () as usize) };
    // SAFETY: as before; the page was read-only.
    unsafe { libc::mprotect(page, PAGE, libc::PROT_READ) };
    Ok(())
}

/// Returns the address of a function that the program exports.
fn address_of(name: &CStr) -> Option<usize> {
    let name: *const c_char = name.as_ptr();
    // SAFETY: `name` is a string that ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
    (!address.is_null()).then_some(address as usize)
}

/// Two parts of the program of this process.
#[derive(Default)]
struct Program {
    /// The segment with the function.
    code: Range<usize>,
    /// Pointers that the loader has relocated and then made read-only, whole pages only.
    constants: Range<usize>,
}

impl Program {
    /// Returns the parts, if the program has `function` in its code.
    fn of_this_process(function: usize) -> Option<Self> {
        let mut search = (function, Self::default());
        // SAFETY: `visit` gets a pointer to `search`, which lives until the call is over.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        let (_, program) = search;
        program.code.contains(&function).then_some(program)
    }

    fn add(&mut self, segment: &Elf64_Phdr, base: usize, function: usize) {
        let start = base + segment.p_vaddr as usize;
        let range = start..start + segment.p_memsz as usize;
        let is_code = segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0;
        if is_code && range.contains(&function) {
            self.code = range;
        } else if segment.p_type == libc::PT_GNU_RELRO {
            self.constants = range.start.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
        }
    }

    /// Returns the first bytes of a function.
    fn code_at(&self, function: usize) -> &[u8] {
        let length = CODE_BYTES.min(self.code.end - function);
        // SAFETY: the loader has mapped this segment, and nothing writes to it.
        unsafe { std::slice::from_raw_parts(function as *const u8, length) }
    }

    /// Returns the address of the only constant that points to `function`.
    fn only_pointer_to(&self, function: usize) -> Result<*mut usize, &'static str> {
        let start = self.constants.start as *mut usize;
        let length = self.constants.len() / size_of::<usize>();
        // SAFETY: the loader has mapped these pages, and nothing writes to them before `main`.
        let words = unsafe { std::slice::from_raw_parts(start, length) };
        let mut found = (0..length).filter(|index| words[*index] == function);
        match (found.next(), found.next()) {
            // SAFETY: the index is within these pages.
            (Some(index), None) => Ok(unsafe { start.add(index) }),
            (None, _) => Err("no pointer to x86_cpu_do_interrupt"),
            _ => Err("several pointers to x86_cpu_do_interrupt"),
        }
    }
}

/// Adds the segments of the first object, which is the program, and ends the iteration.
///
/// # Safety
/// `info` comes from `dl_iterate_phdr`; `search` points to the function's address and a [`Program`].
unsafe extern "C" fn visit(info: *mut dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: see above; nothing else refers to it during the iteration.
    let (function, program) = unsafe { &mut *search.cast::<(usize, Program)>() };
    // SAFETY: see above.
    let info = unsafe { &*info };
    // SAFETY: the loader keeps this table while the object is loaded.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for segment in segments {
        program.add(segment, info.dlpi_addr as usize, *function);
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_that_are_no_instructions_are_repetitions() {
        let fields = Fields {
            vector: 4,
            is_instruction: 8,
        };
        for (vector, is_instruction, expected) in [
            (0x23, 0, true),
            (255, 0, true),
            (32, 0, true),
            (0x80, 1, false),
            (14, 0, false),
            (256, 0, false),
            (0x10000, 0, false),
            (-1, 0, false),
        ] {
            let cpu = [0, vector, is_instruction];
            // SAFETY: the array has numbers at both offsets.
            let found = unsafe { is_repeated(cpu.as_ptr().cast(), fields) };
            assert_eq!(found, expected, "{vector} {is_instruction}");
        }
    }

    #[test]
    fn program_without_the_function_is_left_alone() {
        assert_eq!(install(), Err("no x86_cpu_do_interrupt"));
    }

    /// Returns a page of this process, read-only as the loader leaves constants.
    fn constants(words: &[usize]) -> Program {
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping replaces no other.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, anonymous, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        // SAFETY: the page is larger than `words`, and nothing else uses it.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), page.cast(), words.len()) };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mprotect(page, PAGE, libc::PROT_READ) }, 0);
        Program {
            code: 0..0,
            constants: page as usize..page as usize + PAGE,
        }
    }

    #[test]
    fn the_only_pointer_is_replaced_in_a_page_without_write_access() {
        let program = constants(&[7, 8, 9]);
        let slot = program.only_pointer_to(8).unwrap();
        replace(slot).unwrap();
        // SAFETY: the page remains mapped.
        let words = unsafe { std::slice::from_raw_parts(slot.sub(1), 3) };
        assert_eq!(words, [7, deliver as *const () as usize, 9]);
    }

    #[test]
    fn missing_and_ambiguous_pointers_are_rejected() {
        let program = constants(&[7, 8, 8]);
        assert!(program.only_pointer_to(9).is_err());
        assert!(program.only_pointer_to(8).is_err());
    }

    #[test]
    fn program_of_this_process_has_its_own_code() {
        let own = program_of_this_process_has_its_own_code as *const () as usize;
        let program = Program::of_this_process(own).unwrap();
        assert!(program.code_at(own).len() <= CODE_BYTES);
        assert!(Program::of_this_process(1).is_none());
    }
}
