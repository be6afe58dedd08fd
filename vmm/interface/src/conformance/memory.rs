//! Read-modify-write, string and unaligned accesses, accesses across pages and across the end of memory,
//! and writes to read-only memory.

use super::{
    create, guest, guest::memory::READ_ONLY, guest::WINDOW, test_vm::fill, test_vm::TestVm, trace,
    Failure, Host, Trace,
};
use crate::{Access, Caps, Controllers, Entry, Exit, Gpa, Hypervisor, PAGE};
use alloc::string::String;
use alloc::sync::Arc;

pub(super) const PART: &str = "memory";

/// Answers to the guest's reads, in order.
const ANSWERS: [u64; 9] = [
    0x10,
    0x01,
    0xdead_beef,
    0x1234,
    0x0123_4567_89ab_cdef,
    0x4647_4849,
    0xa1a2_a3a4,
    0xb1b2_b3b4,
    0xc1c2_c3c4,
];

/// Returns the expected trace for these capabilities.
pub(super) fn expected(caps: &Caps) -> String {
    let read_only = if caps.read_only {
        trace::MEMORY_READ_ONLY
    } else {
        ""
    };
    [trace::MEMORY, read_only, trace::MEMORY_ENDING].concat()
}

pub(super) fn run<H: Hypervisor>(
    hypervisor: &H,
    caps: &Caps,
    host: &dyn Host,
) -> Result<Trace, Failure> {
    let vm = create(hypervisor, PART, Controllers::None)?;
    let mut test = TestVm::new(PART, &vm, host, guest::memory::CODE, &[])?;
    let window = Arc::new(test.memory(PAGE)?);
    test.attach(Gpa(WINDOW), &window, Access::ReadWrite)?;
    let fixed = Arc::new(test.memory(PAGE)?);
    fill(&fixed, 0, &[0x77; 8])?;
    fill(&fixed, 8, &[0x99; 8])?;
    if caps.read_only {
        test.attach(Gpa(READ_ONLY), &fixed, Access::ReadOnly)?;
    }
    let mut answers = ANSWERS.into_iter();
    test.follow(&expected(caps), |test, exit| match exit {
        Exit::Started => test.adjust(|general| general.r15 = caps.read_only.into()),
        Exit::Read { .. } => Ok(Entry::Answer(answers.next().unwrap_or_default())),
        _ => Ok(Entry::Resume),
    })?;
    let stored = window.load32(PAGE as u64 - 4) == Some(0x5566_7788);
    test.check(
        stored,
        "what the guest stored at the end is not in its memory",
    )?;
    let untouched = fixed.load64(0) == Some(0x7777_7777_7777_7777);
    test.check(untouched, "read-only memory has changed")?;
    Ok(test.trace)
}
