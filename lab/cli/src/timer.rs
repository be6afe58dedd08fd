//! Timers of workload `irq`, by the values of `--timer`.

use clap::ValueEnum;
use trapline_abi::{Op, OpSet};
use trapline_model::irq;

/// Source of the interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Timer {
    /// Timer of the guest, set for each expiry
    Own,
    /// The same, which counts down
    Count,
    /// The same, set once
    Periodic,
    /// Timer of the host or VMM
    Host,
    /// Own and host, one after the other
    Both,
    /// Each of them, one after the other
    All,
}

impl Timer {
    /// Returns the operations of this timer.
    pub fn operations(self) -> OpSet {
        match self {
            Self::Own => Op::OwnTimer.into(),
            Self::Count => Op::CountTimer.into(),
            Self::Periodic => Op::PeriodicTimer.into(),
            Self::Host => Op::HostTimer.into(),
            Self::Both => Op::OwnTimer | Op::HostTimer,
            Self::All => irq::operations(),
        }
    }
}
