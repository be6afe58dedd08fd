//! Stamps: when a stage of a start was reached, read and marked in one place.
//!
//! Whoever reaches a stage reads the clock and executes the mark of that stage as
//! the very next instruction. From one such mark to the next, the clock moves by
//! exactly the instructions in between, the first mark included: a watcher of the
//! simulated machine that counts them knows where the time of a stage went.

/// The clock now, in ticks, when `$stage` is reached: the time stamp counter with
/// nothing before or after it in flight (Intel SDM volume 2, RDTSC), and the mark
/// of the stage.
#[macro_export]
macro_rules! stamp {
    ($stage:ident) => {{
        let low: u64;
        let high: u64;
        // SAFETY: reads a counter, which no environment forbids; the mark is a no-op.
        unsafe {
            ::core::arch::asm!(
                "lfence", "rdtsc",
                ".byte 0x0f, 0x1f, 0x84, 0x00, {kind}, {stage}, 0x70, 0x7a",
                "lfence",
                kind = const $crate::mark::STAGE,
                stage = const $crate::Stage::$stage as u8,
                out("rax") low, out("rdx") high,
                options(nostack, nomem, preserves_flags));
        }
        high << 32 | low
    }};
}
