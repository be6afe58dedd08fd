//! Boot stages, which the machine's second serial port reports as frames at the end of the guest.

use crate::ports::send_event;
use core::sync::atomic::{AtomicU64, Ordering};
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::record::{Record, Stage};

/// Time of the first instruction of this program, in ticks of the TSC.
static START: AtomicU64 = AtomicU64::new(0);

/// Records the start of this program.
pub fn started(at: u64) {
    START.store(at, Ordering::Relaxed);
}

/// Reports the start of this program, and further stages with their times.
pub fn report(stages: &[(Stage, u64)]) {
    let start = (Stage::VmmMain, START.load(Ordering::Relaxed));
    for &(stage, at) in [start].iter().chain(stages) {
        let mut frame = [0; MAX_FRAME];
        if let Ok(length) = encode(&Record::Stage { stage, at }, at, &mut frame) {
            frame[..length].iter().copied().for_each(send_event);
        }
    }
}
