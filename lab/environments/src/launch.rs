//! Results of one launch of a guest.

use trapline_abi::Counter;
use trapline_protocol::GuestReport;

/// Clock of a guest's boot stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootClock {
    /// The guest reads the TSC of this host.
    Host,
    /// The guest has its own clock; the VMM, the kernel or the arrival of records relates it to ours.
    Guest,
    /// The guest's clock is the only one, and starts with the machine.
    Machine,
}

/// Relation of the guest's clock to the clock of the process that launches it, the *host clock* below: the
/// TSC of this host, or the clock of the simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockOffset {
    /// They are the same clock.
    Same,
    /// The guest's clock is ahead by this number of ticks.
    Known(i64),
    /// Unknown unless the guest's VMM reports it; bounded by the arrival of the guest's records.
    Unknown,
}

/// A launch that ended.
#[derive(Debug)]
pub struct FinishedLaunch {
    /// Decoded records.
    pub report: GuestReport,
    /// Start of the VMM, in ticks of the host clock.
    pub exec: u64,
    /// End of the VMM, in ticks of the host clock, if it was observed.
    pub reaped: Option<u64>,
    /// Relation of the guest's clock to the host clock.
    pub offset: ClockOffset,
    /// Peak memory of the VMM beyond guest RAM, in bytes, if it was sampled.
    pub own_memory: Option<u64>,
    /// The VMM did not exit after its guest, and was killed.
    pub outlived_guest: bool,
}

impl FinishedLaunch {
    /// Returns the guest's clock minus the host clock in ticks, if it is known.
    pub fn exact_offset(&self) -> Option<i64> {
        let reported = self.report.counters.get(&Counter::TscOffset);
        match self.offset {
            ClockOffset::Same => Some(0),
            ClockOffset::Known(offset) => Some(offset),
            ClockOffset::Unknown => reported.map(|&offset| offset as i64),
        }
    }
}
