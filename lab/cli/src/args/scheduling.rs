//! The arguments that say how a guest's CPUs are scheduled.

use clap::Args;
use std::str::FromStr;
use trapline_model::{Sched, Scheduling};

/// How CPUs of guests are scheduled, in environments that leave that to the user.
#[derive(Args, Debug, Clone, Default)]
pub struct SchedulingArgs {
    /// How guests' CPUs are scheduled; environments that cannot do that are
    /// skipped. Domains of Xen: credit or credit2; threads, in irq: other, fifo,
    /// fifo:PRIORITY or deadline:RUNTIME/PERIOD [default: each one's own]
    #[arg(long, value_name = "HOW", value_parser = Sched::from_str)]
    pub sched: Option<Sched>,
    /// The most that a guest gets of a CPU, in percent; for domains of Xen
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub cap: Option<u32>,
    /// Weight of a guest where others want the CPU, too [default: 256]; for domains
    /// of Xen
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub weight: Option<u32>,
}

impl SchedulingArgs {
    /// What they say of domains of Xen, and so of machines.
    pub fn scheduling(&self) -> Scheduling {
        Scheduling {
            scheduler: self.sched().of_xen(),
            cap: self.cap,
            weight: self.weight,
        }
    }

    /// By which rules a virtual CPU gets its CPU.
    pub fn sched(&self) -> Sched {
        self.sched.unwrap_or_default()
    }
}
