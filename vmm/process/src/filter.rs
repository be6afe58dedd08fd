//! The seccomp filter of the guest's process.
//!
//! The tracer skips every system call of the guest before the kernel looks at it. The filter is a second lock: it
//! kills the process unless the call changes mappings of its own memory, which the tracer makes it do. None of
//! these calls can create memory, open anything, or reach another process.
//!
//! A process that reports signals itself ([`crate::signalled`]) has no tracer, and the filter is the only lock. It also
//! allows to return from a signal, to leave the CPU to another process, and to wait for and wake up waiters at a word of the
//! process's memory. It notifies the VMM of calls that bound the page tables of the process, which proceed only if the VMM has
//! requested them ([`crate::listener`]).

use crate::crossing::SignalSource;
use crate::layout::{CALLS, FILTER, SWITCHER};
use crate::listener::{CHECKED, REPORT};
use std::mem::size_of;
use trapline_abi::platform::HYPERCALL_UNKNOWN;
use trapline_interface::PAGE;

// BPF opcodes (linux/bpf_common.h) and offsets (linux/seccomp.h).
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const POINTER_LOW: u32 = 8;
const POINTER_HIGH: u32 = 12;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
const THIRD_ARGUMENT: u32 = 32;
/// `FUTEX_WAKE`, behind `FUTEX_WAIT`.
const LAST_FUTEX_OPERATION: u32 = 1;
const X86_64: u32 = 0xc000_003e;

/// Target of a jump: the next step, or a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Next,
    Elsewhere,
    Futex,
    Munmap,
    Prctl,
    Allow,
    Notify,
    Trap,
    Kill,
}

/// A step: its opcode, number, and the targets if its comparison holds and if not.
struct Step(u16, u32, Label, Label);

const fn load(offset: u32) -> Step {
    Step(LOAD, offset, Label::Next, Label::Next)
}

const fn result(action: u32) -> Step {
    Step(RETURN, action, Label::Next, Label::Next)
}

/// Returns the calls that are allowed, the most frequent ones first.
fn calls(source: Option<SignalSource>) -> Vec<(libc::c_long, Label)> {
    let changes = |mremap, munmap| {
        [
            (libc::SYS_mremap, mremap),
            (libc::SYS_mprotect, Label::Allow),
            (libc::SYS_munmap, munmap),
        ]
    };
    let Some(source) = source else {
        return changes(Label::Allow, Label::Allow).to_vec();
    };
    let reports: &[_] = match source {
        SignalSource::NotifyingFilter => &[(REPORT as libc::c_long, Label::Notify)],
        SignalSource::Dispatch | SignalSource::Filter => &[
            (libc::SYS_futex, Label::Futex),
            (libc::SYS_sched_yield, Label::Allow),
        ],
    };
    let start = [
        (libc::SYS_close, Label::Allow), // of the listener, which the VMM takes
        (libc::SYS_prctl, Label::Prctl),
    ];
    let returns = [(libc::SYS_rt_sigreturn, Label::Allow)];
    let changes = changes(Label::Notify, Label::Munmap);
    [&returns, reports, &changes, &start].concat()
}

/// Returns the program: its blocks, each with its label. No jump leads to the first.
fn blocks(source: Option<SignalSource>) -> Vec<(Label, Vec<Step>)> {
    use Label::{Allow, Elsewhere, Futex, Kill, Munmap, Next, Notify, Prctl, Trap};
    let mut start = vec![load(ARCHITECTURE), Step(IF_EQUAL, X86_64, Next, Kill)];
    if source.is_some() {
        // Outside of the switcher's first page no call is allowed.
        start.extend([
            load(POINTER_HIGH),
            Step(IF_EQUAL, (SWITCHER >> 32) as u32, Next, Elsewhere),
            load(POINTER_LOW),
            Step(IF_AT_LEAST, SWITCHER as u32 + PAGE as u32, Elsewhere, Next),
        ]);
    }
    start.push(load(NUMBER));
    let jump = |(number, label)| Step(IF_EQUAL, number as u32, label, Next);
    start.extend(calls(source).into_iter().map(jump));
    start.push(result(libc::SECCOMP_RET_KILL_PROCESS));
    let elsewhere = match source {
        Some(SignalSource::NotifyingFilter) => vec![
            load(NUMBER),
            Step(IF_EQUAL, HYPERCALL_UNKNOWN as u32, Notify, Trap),
        ],
        Some(SignalSource::Filter) => vec![result(libc::SECCOMP_RET_TRAP)],
        Some(SignalSource::Dispatch) | None => vec![result(libc::SECCOMP_RET_KILL_PROCESS)],
    };
    let futex_operation = Step(IF_AT_LEAST, LAST_FUTEX_OPERATION + 1, Kill, Allow);
    vec![
        (Next, start),
        (Elsewhere, elsewhere),
        (Futex, vec![load(SECOND_ARGUMENT), futex_operation]),
        (
            Munmap,
            vec![
                load(THIRD_ARGUMENT),
                Step(IF_EQUAL, CHECKED as u32, Notify, Allow),
            ],
        ),
        (
            Prctl,
            vec![
                load(FIRST_ARGUMENT),
                Step(IF_EQUAL, libc::PR_SET_DUMPABLE as u32, Next, Kill),
                load(SECOND_ARGUMENT),
                Step(IF_EQUAL, 0, Allow, Kill),
            ],
        ),
        (Allow, vec![result(libc::SECCOMP_RET_ALLOW)]),
        (Notify, vec![result(libc::SECCOMP_RET_USER_NOTIF)]),
        (Trap, vec![result(libc::SECCOMP_RET_TRAP)]),
        (Kill, vec![result(libc::SECCOMP_RET_KILL_PROCESS)]),
    ]
}

fn steps(source: Option<SignalSource>) -> Vec<libc::sock_filter> {
    let blocks = blocks(source);
    let position = |label| {
        let before = blocks.iter().take_while(|block| block.0 != label);
        before.map(|block| block.1.len()).sum::<usize>()
    };
    let all = blocks.iter().flat_map(|block| &block.1);
    let encode = |(at, &Step(code, k, then, otherwise)): (usize, &Step)| {
        let distance = |label| match label {
            Label::Next => 0,
            label => (position(label) - at - 1) as u8,
        };
        libc::sock_filter {
            code,
            jt: distance(then),
            jf: distance(otherwise),
            k,
        }
    };
    all.enumerate().map(encode).collect()
}

/// Returns a `struct sock_fprog` that will lie at `address`, followed by its program.
pub(crate) fn program(address: u64, source: Option<SignalSource>) -> Vec<u8> {
    let steps = steps(source);
    let start = size_of::<libc::sock_fprog>();
    let mut bytes = vec![0; start];
    bytes[..2].copy_from_slice(&(steps.len() as u16).to_ne_bytes());
    bytes[8..16].copy_from_slice(&(address + start as u64).to_ne_bytes());
    for step in steps {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    debug_assert!(bytes.len() as u64 <= CALLS - FILTER);
    bytes
}
