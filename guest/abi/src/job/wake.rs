//! Method by which a CPU waits for a semaphore.

use core::fmt;

/// Method by which a CPU of workload `ipc` waits for a semaphore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakePolicy {
    /// Halts, until an interrupt of the other CPU wakes it. A thread of Linux sleeps on a futex.
    #[default]
    Halt,
    /// Polls for this number of ticks, then halts.
    Poll(u64),
    /// Waits for a write to the semaphore with `monitor` and `mwait`.
    Mwait,
    /// [`Self::Halt`] in a Linux guest whose kernel polls before it halts a CPU: driver and governor `haltpoll`
    /// (Linux, Documentation/virt/guest-halt-polling.rst).
    HaltPoll,
    /// [`Self::Halt`] in a Linux guest whose kernel never halts a CPU: kernel option `idle=poll`.
    IdlePoll,
}

impl WakePolicy {
    /// Parses what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        match (text, text.split_once(':')) {
            ("halt", _) => Some(Self::Halt),
            ("mwait", _) => Some(Self::Mwait),
            ("haltpoll", _) => Some(Self::HaltPoll),
            ("idle-poll", _) => Some(Self::IdlePoll),
            (_, Some(("poll", ticks))) => ticks.parse().ok().map(Self::Poll),
            _ => None,
        }
    }

    /// Returns the duration of polling, in ticks.
    pub const fn poll_ticks(self) -> u64 {
        match self {
            Self::Poll(ticks) => ticks,
            Self::Halt | Self::Mwait | Self::HaltPoll | Self::IdlePoll => 0,
        }
    }
}

impl fmt::Display for WakePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halt => f.write_str("halt"),
            Self::Poll(ticks) => write!(f, "poll:{ticks}"),
            Self::Mwait => f.write_str("mwait"),
            Self::HaltPoll => f.write_str("haltpoll"),
            Self::IdlePoll => f.write_str("idle-poll"),
        }
    }
}
