//! Accesses beyond memory that are more than a load or a store: what reads and writes, strings,
//! addresses at the edge of a page and of memory, and read-only memory.

use super::{
    create, guest, guest::memory::READ_ONLY, guest::WINDOW, stand::fill, stand::Stand, trace,
    Failure, Trace,
};
use crate::{Access, Caps, Controllers, Entry, Exit, Gpa, Hypervisor, Region, PAGE};
use std::sync::Arc;

const PART: &str = "memory";

/// What the guest reads, in order.
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

/// The trace that a backend with these capabilities must show.
pub(super) fn expected(caps: &Caps) -> String {
    let read_only = match caps.read_only {
        true => trace::MEMORY_READ_ONLY,
        false => "",
    };
    [trace::MEMORY, read_only, trace::MEMORY_ENDING].concat()
}

pub(super) fn run<H: Hypervisor>(hypervisor: &H, caps: &Caps) -> Result<Trace, Failure> {
    let vm = create(hypervisor, PART, Controllers::None)?;
    let mut stand = Stand::new(PART, &vm, guest::memory::CODE, &[])?;
    let window = Arc::new(Region::new(PAGE)?);
    stand.attach(Gpa(WINDOW), &window, Access::ReadWrite)?;
    let fixed = Arc::new(Region::new(PAGE)?);
    fill(&fixed, 0, &[0x77; 8])?;
    fill(&fixed, 8, &[0x99; 8])?;
    if caps.read_only {
        stand.attach(Gpa(READ_ONLY), &fixed, Access::ReadOnly)?;
    }
    let mut answers = ANSWERS.into_iter();
    stand.follow(&expected(caps), |stand, exit| match exit {
        Exit::Started => stand.adjust(|general| general.r15 = caps.read_only.into()),
        Exit::Read { .. } => Ok(Entry::Answer(answers.next().unwrap_or_default())),
        _ => Ok(Entry::Resume),
    })?;
    let stored = window.load32(PAGE as u64 - 4) == Some(0x5566_7788);
    stand.check(
        stored,
        "what the guest stored at the end is not in its memory",
    )?;
    let untouched = fixed.load64(0) == Some(0x7777_7777_7777_7777);
    stand.check(untouched, "read-only memory has changed")?;
    Ok(stand.trace)
}
