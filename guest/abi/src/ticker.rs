//! The page that a guest shares with the timer of its VMM, see
//! [`crate::platform::TICKER`].
//!
//! The guest says how often. For each expiry the VMM writes when
//! it was due, when the VMM woke and when it was about to raise the interrupt into
//! the slot of that expiry, then the expiry's number, and then raises it. All times
//! are ticks of the *host's* clock: no offset is assumed here, who reads them knows
//! it. Neither side can hurt the other: the VMM reads what the guest says once and
//! checks it, and the guest takes numbers for numbers.

/// The vector that it interrupts with.
pub const VECTOR: u8 = 0x33;

/// The shortest period that is kept, in nanoseconds: a guest cannot have its VMM do
/// nothing but raise interrupts.
pub const LEAST_PERIOD_NS: u64 = 20_000;

/// Expiries that are remembered.
pub const SLOTS: usize = 64;

/// Offsets in the page, in bytes. Every field is a little-endian `u64`.
pub mod at {
    use super::SLOTS;

    /// Number of the last expiry raised, from 1; 0 before the first.
    pub const RAISED: usize = 0;
    /// From one expiry to the next, in ticks of the host's clock. The guest's to say.
    pub const PERIOD: usize = 8;
    /// The first slot.
    pub const SLOTS_BEGIN: usize = 64;
    /// Bytes from one slot to the next.
    pub const SLOT: usize = 32;
    /// In a slot: when the expiry was due.
    pub const DUE: usize = 0;
    /// In a slot: when the VMM ran.
    pub const WOKE: usize = 8;
    /// In a slot: when the VMM was about to raise the interrupt.
    pub const MARKED: usize = 16;

    const _: () = assert!(SLOTS_BEGIN + SLOTS * SLOT <= crate::platform::PAGE as usize);
}

/// Offset of the slot of an expiry.
pub const fn slot(number: u64) -> usize {
    at::SLOTS_BEGIN + (number % SLOTS as u64) as usize * at::SLOT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::PAGE;

    #[test]
    fn slots_lie_in_the_page_and_do_not_overlap() {
        let mut before = at::SLOTS_BEGIN;
        for number in 1..SLOTS as u64 {
            assert!(slot(number) >= before + at::SLOT);
            before = slot(number);
        }
        assert!(before + at::SLOT <= PAGE as usize);
        assert_eq!(slot(SLOTS as u64), slot(0));
        assert_eq!(slot(u64::MAX), before);
    }
}
