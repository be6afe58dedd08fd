//! Stamps: timestamps of boot stages, followed by a marker, see [`crate::stamp!`].
//!
//! The marker is the instruction right after the reading of the clock. So the clock moves, from
//! one stamp to the next, by the number of instructions that the plugin counts between the two
//! markers, including the first one.

/// Reads the clock, in ticks, and executes the marker of the stage with this number. The read is ordered after
/// previous and before later instructions (Arm ARM, D12.2.1: `isb` on both sides).
#[macro_export]
macro_rules! stamp_aarch64 {
    ($stage:expr) => {{
        let now: u64;
        // SAFETY: reads a counter, which all environments allow; the marker is a no-op.
        unsafe {
            ::core::arch::asm!(
                "isb", "mrs {now}, cntvct_el0", "movz xzr, #{marker}", "isb",
                marker = const $crate::arch::aarch64::marker::of_stage($stage),
                now = out(reg) now,
                options(nostack, nomem, preserves_flags));
        }
        now
    }};
}
