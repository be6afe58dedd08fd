//! Execution of an instruction by the CPU.

use crate::guest::{Guest, SIZE};
use std::arch::global_asm;

global_asm!(
    ".lcomm trapline_native_state, 8",
    ".lcomm trapline_native_code, 8",
    ".lcomm trapline_native_stack, 8",
    ".lcomm trapline_native_rax, 8",
    // rdi: 16 general registers in the order of their numbers, and the flags; rsi: code.
    "trapline_native_execute:",
    "push rbx; push rbp; push r12; push r13; push r14; push r15",
    "mov [rip + trapline_native_state], rdi",
    "mov [rip + trapline_native_code], rsi",
    "mov [rip + trapline_native_stack], rsp",
    "push qword ptr [rdi + 128]; popfq",
    "mov rax, [rdi]; mov rcx, [rdi + 8]; mov rdx, [rdi + 16]; mov rbx, [rdi + 24]",
    "mov rsp, [rdi + 32]; mov rbp, [rdi + 40]; mov rsi, [rdi + 48]",
    "mov r8, [rdi + 64]; mov r9, [rdi + 72]; mov r10, [rdi + 80]; mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]; mov r13, [rdi + 104]; mov r14, [rdi + 112]; mov r15, [rdi + 120]",
    "mov rdi, [rdi + 56]",
    "jmp [rip + trapline_native_code]",
    "trapline_native_end:",
    "mov [rip + trapline_native_rax], rax",
    "mov rax, [rip + trapline_native_state]",
    "mov [rax + 8], rcx; mov [rax + 16], rdx; mov [rax + 24], rbx",
    "mov [rax + 32], rsp; mov [rax + 40], rbp; mov [rax + 48], rsi; mov [rax + 56], rdi",
    "mov [rax + 64], r8; mov [rax + 72], r9; mov [rax + 80], r10; mov [rax + 88], r11",
    "mov [rax + 96], r12; mov [rax + 104], r13; mov [rax + 112], r14; mov [rax + 120], r15",
    "mov rcx, [rip + trapline_native_rax]; mov [rax], rcx",
    "mov rsp, [rip + trapline_native_stack]",
    "pushfq; pop rcx; mov [rax + 128], rcx; cld",
    "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
    "ret",
);

extern "C" {
    fn trapline_native_execute(state: *mut [u64; 17], code: *const u8);
    fn trapline_native_end();
}

/// `jmp` to the address behind it.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
/// Flags that are compared: arithmetic and direction, and the bit that is always set.
const FLAGS: u64 = 0x8d5 | 1 << 10 | 2;
const PAGE: usize = 4096;

/// One user at a time: registers are saved in static memory.
static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// A page of code, and one of memory.
pub struct Native {
    pages: *mut u8,
}

impl Native {
    pub fn new() -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let pages = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, kind, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        Self {
            pages: pages.cast(),
        }
    }

    pub fn code_address(&self) -> u64 {
        self.pages as u64
    }

    pub fn memory_address(&self) -> u64 {
        self.pages as u64 + PAGE as u64
    }

    /// Executes `code`. Returns registers with flags, and memory.
    pub fn execute(&mut self, code: &[u8], guest: &Guest, memory: &[u8]) -> ([u64; 17], &[u8]) {
        let mut registers = guest.general();
        let end = trapline_native_end as *const () as u64;
        let all = [code, &JUMP, &end.to_le_bytes()].concat();
        let _guard = LOCK.lock();
        // SAFETY: both pages are mapped for this only. The instruction accesses memory and registers, all of which the
        // assembly code saves and restores; its stack is in the memory.
        unsafe {
            self.pages.copy_from_nonoverlapping(all.as_ptr(), all.len());
            let place = self.pages.add(PAGE);
            place.copy_from_nonoverlapping(memory.as_ptr(), SIZE);
            trapline_native_execute(&mut registers, self.pages);
            registers[16] &= FLAGS;
            (registers, std::slice::from_raw_parts(place, SIZE))
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing refers to it.
        unsafe { libc::munmap(self.pages.cast(), 2 * PAGE) };
    }
}
