//! Handler of signals in a process that has no tracer, and its installation.
//!
//! It runs on a stack of its own, in memory shared with the VMM. It answers marked system calls at once. Otherwise it
//! reports the signal in the words behind its stack, whose layout is that of the offsets below, and in the control page,
//! and waits until the VMM has it make system calls, and then report or return to the guest. It has no secret and no privilege: a guest that enters it with other registers,
//! or forges its data, reports a state of the guest as it could produce by executing instructions.

// Code of optimisation reports.

use crate::control::Call;
use crate::crossing::{Crossing, SignalSource};
use crate::layout::{
    CONTROL, HANDLER_SETUP, OWN, OWN_SIZE, SIGNAL_HANDLER, SPACES, STACK, STACK_SIZE, SWITCHER,
};
use crate::listener::REPORT;
use crate::pages::{set_word, Pages};
use crate::signals::SIGNAL;
use crate::spaces::REPORTS;
use std::io;
use trapline_abi::platform::{HYPERCALL_PADDING, HYPERCALL_REFUSED};
use trapline_interface::{Region, PAGE};

/// State of the process, the first word.
pub(crate) mod state {
    /// It waits in the handler.
    pub const STOPPED: u32 = 1;
    /// It shall make the calls of the list, and return to the guest.
    pub const RESUME: u32 = 2;
    /// It shall make the calls of the list, and stop again.
    pub const CALL: u32 = 3;
}

/// See [`state`].
pub(crate) const STATE: u64 = 0;
/// Address of the `struct ucontext` of the frame.
pub(crate) const CONTEXT: u64 = 8;
/// Address of its `siginfo_t`.
pub(crate) const INFO: u64 = 16;
/// Not 0: the handler answers marked system calls.
const ANSWERS: u64 = 24;

/// Number of the system call that reports a stop; 0: a wake-up at [`REPORTS`].
const REPORT_CALL: u64 = 32;

/// Number of the process.
pub(crate) const INDEX: u64 = 40;

/// List of system calls: number, five arguments, result. It ends at number 0, or at a call that fails.
pub(crate) const CALLS: u64 = 48;
/// Bytes of an element.
pub(crate) const CALL_SIZE: u64 = 56;
/// Offset of the result in an element.
pub(crate) const RESULT: u64 = 48;
/// Maximum length of the list.
pub(crate) const MOST_CALLS: u64 = 4;
const _: () = assert!(CALLS + MOST_CALLS * CALL_SIZE + 8 <= OWN_SIZE);

/// Offset of the registers in `struct ucontext`, in the order r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip,
/// eflags (`arch/x86/include/uapi/asm/sigcontext.h`).
pub(crate) const REGISTERS: u64 = 40;
const RAX: u64 = REGISTERS + 13 * 8;
const RIP: u64 = REGISTERS + 16 * 8;

const fn word(at: usize) -> u64 {
    let mut bytes = [0; 8];
    let mut index = 0;
    while index < 8 && at + index < HYPERCALL_PADDING.len() {
        bytes[index] = HYPERCALL_PADDING[at + index];
        index += 1;
    }
    u64::from_le_bytes(bytes)
}

std::arch::global_asm!(
    ".pushsection .rodata.trapline_handler, \"a\"",
    ".globl trapline_handler_start",
    ".globl trapline_handler_end",
    "trapline_handler_start:",
    "cmp edi, {sigsys}",
    "jne 3f",
    "movabs rbx, {own}",
    "cmp dword ptr [rbx + {answers}], 0",
    "je 3f",
    "mov rax, [rdx + {rip}]",
    // All bytes of a mark lie in the page of its first one, which is mapped unless it begins a page.
    "lea ecx, [rax - 1]",
    "and ecx, 0xfff",
    "cmp ecx, 0xfed",
    "ja 3f",
    "movabs rcx, {mark0}",
    "cmp [rax], rcx",
    "jne 3f",
    "movabs rcx, {mark1}",
    "cmp [rax + 8], rcx",
    "jne 3f",
    "cmp word ptr [rax + 16], {mark2}",
    "jne 3f",
    "add qword ptr [rdx + {rip}], {length}",
    "mov qword ptr [rdx + {rax}], {refused}",
    "mov rsp, rdx",
    "mov eax, {sigreturn}",
    "syscall",
    "3:",
    "movabs rbx, {own}",
    "mov r12, rdx",
    "mov [rbx + {context}], rdx",
    "mov [rbx + {info}], rsi",
    "4:",
    "mov eax, [rbx + {report}]",
    "test eax, eax",
    "jz 8f",
    "syscall",
    "mov eax, [rbx]",
    "jmp 6f",
    "8:",
    "mov eax, {stopped}",
    "xchg [rbx], eax",
    "movabs rdi, {reports}",
    "mov ecx, [rbx + {index}]",
    "lock bts dword ptr [rdi], ecx",
    "mov esi, {futex_wake}",
    "mov edx, 1",
    "mov eax, {futex}",
    "syscall",
    "5:",
    "mov eax, [rbx]",
    "cmp eax, {stopped}",
    "jne 6f",
    "mov rdi, rbx",
    "mov esi, {futex_wait}",
    "mov edx, {stopped}",
    "xor r10d, r10d",
    "mov eax, {futex}",
    "syscall",
    "jmp 5b",
    "6:",
    "mov r13d, eax",
    "lea r14, [rbx + {calls}]",
    "7:",
    "mov rax, [r14]",
    "test rax, rax",
    "jz 9f",
    "mov rdi, [r14 + 8]",
    "mov rsi, [r14 + 16]",
    "mov rdx, [r14 + 24]",
    "mov r10, [r14 + 32]",
    "mov r8, [r14 + 40]",
    "syscall",
    "mov [r14 + {result}], rax",
    "add r14, {call_size}",
    "cmp rax, -4095",
    "jb 7b",
    "jmp 4b",
    "9:",
    "cmp r13d, {call_state}",
    "je 4b",
    "mov dword ptr [rbx], 0",
    "mov rsp, r12",
    "mov eax, {sigreturn}",
    "syscall",
    "trapline_handler_end:",
    ".popsection",
    sigsys = const libc::SIGSYS,
    rip = const RIP,
    rax = const RAX,
    mark0 = const word(0),
    mark1 = const word(8),
    mark2 = const word(16),
    length = const HYPERCALL_PADDING.len(),
    refused = const HYPERCALL_REFUSED as i64,
    sigreturn = const libc::SYS_rt_sigreturn,
    own = const OWN,
    reports = const CONTROL + REPORTS,
    index = const INDEX,
    answers = const ANSWERS,
    context = const CONTEXT,
    report = const REPORT_CALL,
    info = const INFO,
    stopped = const state::STOPPED,
    call_state = const state::CALL,
    futex = const libc::SYS_futex,
    futex_wait = const libc::FUTEX_WAIT,
    futex_wake = const libc::FUTEX_WAKE,
    calls = const CALLS,
    call_size = const CALL_SIZE,
    result = const RESULT,
);

extern "C" {
    static trapline_handler_start: u8;
    static trapline_handler_end: u8;
}

/// Signals that the handler receives. All others are blocked.
const SIGNALS: [libc::c_int; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
    SIGNAL,
];

/// Offsets of the arguments from [`HANDLER_SETUP`].
const ACTION: u64 = 0;
const STACK_ARGUMENT: u64 = 0x20;
const MASK: u64 = 0x40;

/// Flag of `struct sigaction` without which the kernel accepts no handler on x86-64. The handler returns itself.
const SA_RESTORER: u64 = 0x400_0000;

/// Sets the words of a process before it starts.
pub(crate) fn set_words(pages: &Pages, crossing: Crossing, index: usize) {
    if crossing == Crossing::Notify {
        set_word(&pages.own, OWN + REPORT_CALL, REPORT.into());
    }
    if crossing.has_answering_handler() {
        set_word(&pages.own, OWN + ANSWERS, 1);
    }
    set_word(&pages.own, OWN + INDEX, index as u64);
}

/// Writes the handler and the arguments of its installation to the switcher.
pub(crate) fn load(switcher: &Region) -> io::Result<()> {
    // SAFETY: both symbols enclose the code above, which nothing changes.
    let code = unsafe {
        let start = &raw const trapline_handler_start;
        let length = (&raw const trapline_handler_end).offset_from(start);
        std::slice::from_raw_parts(start, length as usize)
    };
    debug_assert!(SIGNAL_HANDLER + code.len() as u64 <= SPACES);
    switcher.load(SIGNAL_HANDLER - SWITCHER, code)?;
    let flags = (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | SA_RESTORER;
    let action = [SIGNAL_HANDLER, flags, SIGNAL_HANDLER, u64::MAX];
    let stack = [STACK, 0, STACK_SIZE];
    let received = SIGNALS
        .iter()
        .fold(0, |set, signal| set | 1 << (signal - 1));
    let put = |at: u64, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        switcher.load(HANDLER_SETUP + at - SWITCHER, &bytes)
    };
    put(ACTION, &action)?;
    put(STACK_ARGUMENT, &stack)?;
    put(MASK, &[!received])
}

// Code of optimisation dispatch.

/// `PR_SET_SYSCALL_USER_DISPATCH` and `PR_SYS_DISPATCH_ON` (linux/prctl.h).
const SET_DISPATCH: u64 = 59;
const DISPATCH_ON: u64 = 1;

// End of optimisation dispatch.

/// Returns the calls that install the handler.
pub(crate) fn setup_calls(source: SignalSource) -> Vec<Call> {
    const BYTES_OF_MASK: u64 = 8;
    let at = |offset| HANDLER_SETUP + offset;
    let action = |signal: &libc::c_int| {
        let arguments = [*signal as u64, at(ACTION), 0, BYTES_OF_MASK, 0];
        (libc::SYS_rt_sigaction, arguments)
    };
    let mut calls: Vec<Call> = SIGNALS.iter().map(action).collect();
    calls.push((libc::SYS_sigaltstack, [at(STACK_ARGUMENT), 0, 0, 0, 0]));
    let block = libc::SIG_SETMASK as u64;
    calls.push((
        libc::SYS_rt_sigprocmask,
        [block, at(MASK), 0, BYTES_OF_MASK, 0],
    ));
    // Code of optimisation dispatch.
    if source == SignalSource::Dispatch {
        // Calls from the first page of the switcher remain calls.
        let arguments = [SET_DISPATCH, DISPATCH_ON, SWITCHER, PAGE as u64, 0];
        calls.push((libc::SYS_prctl, arguments));
    }
    // End of optimisation dispatch.
    calls
}
