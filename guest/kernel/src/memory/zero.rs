//! Zeroing of frames.

use super::frames::Run;
use core::arch::asm;

/// Stores that zero memory, eight bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// `rep stosq`, through the caches.
    Ordinary,
    /// `movnti`, past the caches (Intel SDM volume 1, 10.4.6.2).
    NonTemporal,
}

impl Stores {
    /// Zeroes `run`, whole frames.
    ///
    /// # Safety
    /// The run is identity-mapped memory that nothing else uses.
    pub unsafe fn zero(self, run: Run) {
        // SAFETY: both write the run, which is exclusive by contract, and nothing else.
        unsafe {
            match self {
                Self::Ordinary => asm!("rep stosq", in("rax") 0_u64, inout("rdi") run.start => _,
                    inout("rcx") (run.end - run.start) / 8 => _, options(nostack, preserves_flags)),
                // Non-temporal stores are not ordered with others: the fence orders them.
                Self::NonTemporal => asm!(
                    "2:",
                    "movnti [{at}], {zero}",
                    "movnti [{at} + 8], {zero}",
                    "movnti [{at} + 16], {zero}",
                    "movnti [{at} + 24], {zero}",
                    "movnti [{at} + 32], {zero}",
                    "movnti [{at} + 40], {zero}",
                    "movnti [{at} + 48], {zero}",
                    "movnti [{at} + 56], {zero}",
                    "add {at}, 64",
                    "cmp {at}, {end}",
                    "jne 2b",
                    "sfence",
                    at = inout(reg) run.start => _, end = in(reg) run.end, zero = in(reg) 0_u64,
                    options(nostack)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FRAME;
    use super::*;
    use std::vec;

    #[test]
    fn a_run_is_zeroed_and_no_byte_beside_it() {
        let words = FRAME as usize / 8;
        for stores in [Stores::Ordinary, Stores::NonTemporal] {
            let mut memory = vec![!0_u64; 2 * words + 2];
            let start = &raw mut memory[1] as u64;
            // SAFETY: the run is the test's own.
            unsafe { stores.zero(start..start + 2 * FRAME) };
            let (last, zeroed) = memory[1..].split_last().unwrap();
            assert_eq!((memory[0], *last), (!0, !0), "{stores:?}");
            assert!(zeroed.iter().all(|word| *word == 0), "{stores:?}");
        }
    }
}
