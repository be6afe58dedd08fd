//! Two doubles in a vector register: SSE2.

use core::arch::asm;

pub use core::arch::x86_64::{
    __m128d as Pair, _mm_add_pd as add, _mm_load_pd as load, _mm_mul_pd as multiply,
    _mm_set1_pd as of, _mm_store_pd as store,
};

/// Hides the origin of a value from the compiler, so that a loop of loads and stores does not become
/// a `memcpy`. Takes no instruction.
#[inline(always)]
pub fn opaque(mut value: Pair) -> Pair {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(xmm_reg) value, options(nomem, nostack, preserves_flags)) };
    value
}
