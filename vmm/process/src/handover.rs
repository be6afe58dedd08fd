//! Requests for address spaces ([`trapline_abi::spaces`]) that the guest's processes perform themselves.
//!
//! A load of another process's top-level table hands over to that process: it takes over the stack pointer, and returns in
//! place of the caller, which waits. The code needs no privilege: its system calls are `futex`, `sched_yield` and `munmap`, and a guest that
//! enters it with other registers or another table changes its own mappings, or stops itself.

// Code of optimisation handover.

use crate::handler::INDEX;
use crate::layout::{CONTROL, OWN, SPACES, SWITCHER};
use crate::spaces::{
    CLOCK, COUNT, CURRENT, DISCARDED, ENTRIES, ENTRY_SIZE, ROOT, STACK_POINTER, STALE, TURN, USED,
};
use std::io;
use trapline_abi::spaces::{FLUSH, LOAD, SHARED_END};
use trapline_interface::{Region, PAGE};

std::arch::global_asm!(
    ".pushsection .rodata.trapline_handover, \"a\"",
    ".globl trapline_handover_start",
    ".globl trapline_handover_wait",
    ".globl trapline_handover_end",
    "trapline_handover_start:",
    "movabs r8, {control}",
    "mov ecx, [r8 + {count}]",
    "lea r9, [r8 + {entries}]",
    "xor r10d, r10d",
    "cmp edi, {load}",
    "jne 20f",
    // LOAD: the process that has the table.
    "2:",
    "cmp r10d, ecx",
    "jae 10f",
    "cmp [r9 + {root}], rsi",
    "je 3f",
    "add r9, {entry_size}",
    "inc r10d",
    "jmp 2b",
    "3:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "movabs rbx, {own}",
    "mov rax, [r8 + {clock}]",
    "inc rax",
    "mov [r8 + {clock}], rax",
    "mov [r9 + {used}], rax",
    "cmp r10d, [rbx + {index}]",
    "je 8f",
    // Another one: it is current before it runs, so that its stops are those of the guest.
    "mov [r8 + {stack_pointer}], rsp",
    "mov [r8 + {current}], r10d",
    "mov eax, {given}",
    "xchg [r9 + {turn}], eax",
    "cmp eax, {asleep}",
    "jne trapline_handover_wait",
    "lea rdi, [r9 + {turn}]",
    "mov esi, {futex_wake}",
    "mov edx, 1",
    "mov eax, {futex}",
    "syscall",
    "trapline_handover_wait:",
    "movabs r8, {control}",
    "mov r12d, [rbx + {index}]",
    "imul r12, r12, {entry_size}",
    "lea r12, [r8 + r12 + {entries}]",
    "lea rdi, [r12 + {turn}]",
    // A process that gives its turn away, leaves the CPU and then has the turn again need not be woken.
    "5:",
    "cmp dword ptr [rdi], {given}",
    "je 6f",
    "mov eax, {sched_yield}",
    "syscall",
    "xor eax, eax",
    "mov edx, {asleep}",
    "lock cmpxchg [rdi], edx",
    "cmp eax, {given}",
    "je 6f",
    "mov esi, {futex_wait}",
    "xor r10d, r10d",
    "mov eax, {futex}",
    "syscall",
    "jmp 5b",
    "6:",
    "mov dword ptr [rdi], 0",
    "mov rsp, [r8 + {stack_pointer}]",
    "xor eax, eax",
    "xchg [r12 + {stale}], rax",
    "test rax, rax",
    "jz 7f",
    "lea rdi, [rax - 1]",
    "4:",
    "movabs rsi, {end}",
    "sub rsi, rdi",
    // Not a call of which the filter notifies.
    "xor edx, edx",
    "mov eax, {munmap}",
    "syscall",
    "7:",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "xor eax, eax",
    "ret",
    // The same one: all translations of programs are removed.
    "8:",
    "movabs rdi, {shared_end}",
    "jmp 4b",
    // No process has the table: one whose table is discarded takes it, or the only one.
    "10:",
    "lea r9, [r8 + {entries}]",
    "xor r10d, r10d",
    "11:",
    "cmp r10d, ecx",
    "jae 13f",
    "test byte ptr [r9 + {root}], {discarded}",
    "jnz 12f",
    "add r9, {entry_size}",
    "inc r10d",
    "jmp 11b",
    "12:",
    "mov [r9 + {root}], rsi",
    "jmp 3b",
    "13:",
    "lea r9, [r8 + {entries}]",
    "xor r10d, r10d",
    "cmp ecx, 1",
    "je 12b",
    "mov eax, 1",
    "ret",
    "20:",
    "cmp edi, {flush}",
    "jne 21f",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov eax, {munmap}",
    "syscall",
    "xor eax, eax",
    "ret",
    // DISCARD
    "21:",
    "cmp r10d, ecx",
    "jae 23f",
    "cmp [r9 + {root}], rsi",
    "je 22f",
    "add r9, {entry_size}",
    "inc r10d",
    "jmp 21b",
    "22:",
    "or byte ptr [r9 + {root}], {discarded}",
    "cmp qword ptr [r9 + {stale}], 0",
    "jne 23f",
    "movabs rax, {shared_end} + 1",
    "mov [r9 + {stale}], rax",
    "23:",
    "xor eax, eax",
    "ret",
    "trapline_handover_end:",
    ".popsection",
    control = const CONTROL,
    own = const OWN,
    end = const SWITCHER,
    shared_end = const SHARED_END,
    load = const LOAD,
    flush = const FLUSH,
    count = const COUNT,
    current = const CURRENT,
    clock = const CLOCK,
    stack_pointer = const STACK_POINTER,
    entries = const ENTRIES,
    entry_size = const ENTRY_SIZE,
    root = const ROOT,
    turn = const TURN,
    stale = const STALE,
    used = const USED,
    discarded = const DISCARDED,
    index = const INDEX,
    given = const GIVEN,
    asleep = const ASLEEP,
    sched_yield = const libc::SYS_sched_yield,
    futex = const libc::SYS_futex,
    futex_wait = const libc::FUTEX_WAIT,
    futex_wake = const libc::FUTEX_WAKE,
    munmap = const libc::SYS_munmap,
);

/// Values of the word [`TURN`]: the process has the turn; it waits for it in a system call. Otherwise 0.
pub(crate) const GIVEN: u32 = 1;
const ASLEEP: u32 = 2;

extern "C" {
    static trapline_handover_start: u8;
    static trapline_handover_wait: u8;
    static trapline_handover_end: u8;
}

/// Returns the address in the guest's processes at which one waits for its turn, with [`OWN`] in `rbx`.
pub(crate) fn wait_address() -> u64 {
    let start = &raw const trapline_handover_start as u64;
    SPACES + (&raw const trapline_handover_wait as u64 - start)
}

/// Writes the code to the switcher.
pub(crate) fn load(switcher: &Region) -> io::Result<()> {
    // SAFETY: both symbols enclose the code above, which nothing changes.
    let code = unsafe {
        let start = &raw const trapline_handover_start;
        let length = (&raw const trapline_handover_end).offset_from(start);
        std::slice::from_raw_parts(start, length as usize)
    };
    debug_assert!(SPACES + code.len() as u64 <= SWITCHER + PAGE as u64);
    switcher.load(SPACES - SWITCHER, code)
}
