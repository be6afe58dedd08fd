//! Stamps: timestamps of boot stages, followed by a marker, see [`crate::stamp!`].
//!
//! The marker is the instruction right after the reading of the clock. So the clock moves, from
//! one stamp to the next, by the number of instructions that the plugin counts between the two
//! markers, including the first one.

/// Reads the clock, in ticks, and executes the marker of the stage with this number. The read is ordered after
/// previous and before later instructions (Intel SDM volume 2, RDTSC).
#[macro_export]
macro_rules! stamp_x86_64 {
    ($stage:expr) => {{
        let low: u64;
        let high: u64;
        // SAFETY: reads a counter, which all environments allow; the marker is a no-op.
        unsafe {
            ::core::arch::asm!(
                "lfence", "rdtsc",
                ".byte 0x0f, 0x1f, 0x84, 0x00, {kind}, {stage}, 0x70, 0x7a",
                "lfence",
                kind = const $crate::arch::x86_64::marker::STAGE,
                stage = const $stage,
                out("rax") low, out("rdx") high,
                options(nostack, nomem, preserves_flags));
        }
        high << 32 | low
    }};
}
