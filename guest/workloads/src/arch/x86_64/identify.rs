//! The instruction that identifies the processor: `cpuid`.

use core::arch::x86_64::__cpuid;
use core::hint::black_box;
use trapline_abi::Op;

/// The operation.
pub const OP: Op = Op::Cpuid;

/// Reason of a failure.
pub const DIFFERS: &str = "cpuid leaf 0 returned different values";

/// Argument of [`identify`], unknown to the compiler.
#[inline(always)]
pub fn argument() -> u32 {
    black_box(0)
}

/// Returns the highest leaf.
#[inline(always)]
pub fn identify(leaf: u32) -> u32 {
    __cpuid(leaf).eax
}
