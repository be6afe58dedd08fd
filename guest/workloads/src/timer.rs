//! Windows of a periodic timer, and the log of its interrupts.

use trapline_abi::job::WaitMode;
use trapline_abi::Interrupt;

/// Timer of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerSource {
    /// The guest's, set for each expiry.
    Own,
    /// The guest's, set for each expiry to count down.
    Count,
    /// The guest's, set once.
    Periodic,
    /// The VMM, or the host kernel.
    Host,
}

/// Window of consecutive expiries.
#[derive(Clone, Copy, Debug)]
pub struct TimerWindow {
    /// Timer.
    pub source: TimerSource,
    /// Number of the first expiry.
    pub first: u64,
    /// Number of expiries.
    pub expiries: u32,
    /// Period, in ticks.
    pub period: u64,
    /// Activity between two expiries.
    pub wait_mode: WaitMode,
}

/// Log of the interrupts of a window, in memory allocated before.
pub struct InterruptLog<'a> {
    slots: &'a mut [Interrupt],
    used: usize,
}

impl<'a> InterruptLog<'a> {
    /// Creates a log with room for one interrupt per slot.
    pub fn new(slots: &'a mut [Interrupt]) -> Self {
        Self { slots, used: 0 }
    }

    /// Appends an interrupt. If the log is full, the interrupt is dropped, and its expiry counts as missed.
    #[inline(always)]
    pub fn push(&mut self, interrupt: Interrupt) {
        if let Some(slot) = self.slots.get_mut(self.used) {
            *slot = interrupt;
            self.used += 1;
        }
    }

    /// Returns the logged interrupts, for corrections.
    pub fn entries_mut(&mut self) -> &mut [Interrupt] {
        &mut self.slots[..self.used]
    }

    /// Returns the logged interrupts.
    pub fn entries(&self) -> &[Interrupt] {
        &self.slots[..self.used]
    }
}
