//! Page that a guest shares with the timer of its VMM, see [`crate::platform::TICKER`].
//!
//! The guest writes the period. For each expiry the VMM writes the due time, its own wake-up time
//! and the time just before it raises the interrupt into the slot of that expiry, then the number
//! of the expiry, and then raises the interrupt. Times are ticks of the host's clock. The VMM
//! reads the period once and checks it; the guest does not use the VMM's values as addresses.

/// Interrupt vector.
pub const VECTOR: u8 = 0x33;

/// Minimum period, in nanoseconds: shorter ones would occupy the VMM completely.
pub const MIN_PERIOD_NS: u64 = 20_000;

/// Number of slots.
pub const SLOTS: usize = 64;

/// Offsets in the page, in bytes. All fields are little-endian `u64`s.
pub mod at {
    use super::SLOTS;

    /// Number of the last expiry raised, from 1; 0 before the first.
    pub const RAISED: usize = 0;
    /// Period, in ticks of the host's clock. Written by the guest.
    pub const PERIOD: usize = 8;
    /// First slot.
    pub const SLOTS_BEGIN: usize = 64;
    /// Distance between slots.
    pub const SLOT: usize = 32;
    /// Within a slot: due time of the expiry.
    pub const DUE: usize = 0;
    /// Within a slot: wake-up of the VMM.
    pub const WOKE: usize = 8;
    /// Within a slot: time just before the interrupt is raised.
    pub const MARKED: usize = 16;

    const _: () = assert!(SLOTS_BEGIN + SLOTS * SLOT <= crate::platform::PAGE as usize);
}

/// Returns the offset of the slot of an expiry.
pub const fn slot(number: u64) -> usize {
    at::SLOTS_BEGIN + (number % SLOTS as u64) as usize * at::SLOT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::PAGE;

    #[test]
    fn slots_are_in_the_page_and_do_not_overlap() {
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
