//! Two doubles in a vector register: Advanced SIMD.

use core::arch::asm;

pub use core::arch::aarch64::{
    float64x2_t as Pair, vaddq_f64 as add, vdupq_n_f64 as of, vld1q_f64 as load,
    vmulq_f64 as multiply, vst1q_f64 as store,
};

/// Hides the origin of a value from the compiler, so that a loop of loads and stores does not become
/// a `memcpy`. Takes no instruction.
#[inline(always)]
pub fn opaque(mut value: Pair) -> Pair {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0:v} */", inout(vreg) value, options(nomem, nostack, preserves_flags)) };
    value
}
