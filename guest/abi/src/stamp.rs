//! Stamps of boot stages.

/// Reads the clock, in ticks, and executes the marker of `$stage`.
#[macro_export]
macro_rules! stamp {
    ($stage:ident) => {
        $crate::arch::stamp_native!($crate::Stage::$stage as u8)
    };
}
