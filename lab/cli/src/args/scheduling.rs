//! The arguments that say how a guest's CPUs are scheduled.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::Args;
use trapline_plan::{Scheduler, Scheduling};

/// How CPUs of guests are scheduled, in environments that leave that to the user.
#[derive(Args, Debug, Clone, Default)]
pub struct SchedulingArgs {
    /// Scheduler of guests' CPUs; environments without it are skipped [default:
    /// each environment's own]
    #[arg(long = "sched", value_name = "NAME", value_parser = scheduler_parser())]
    pub scheduler: Option<Scheduler>,
    /// The most that a guest gets of a CPU, in percent; for domains of Xen
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub cap: Option<u32>,
    /// Weight of a guest where others want the CPU, too [default: 256]; for domains
    /// of Xen
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub weight: Option<u32>,
}

impl SchedulingArgs {
    /// What they say.
    pub fn scheduling(&self) -> Scheduling {
        Scheduling {
            scheduler: self.scheduler,
            cap: self.cap,
            weight: self.weight,
        }
    }
}

fn scheduler_parser() -> impl TypedValueParser<Value = Scheduler> {
    let known = Scheduler::ALL.map(|known| PossibleValue::new(known.name()).help(known.what()));
    PossibleValuesParser::new(known)
        .map(|name| Scheduler::from_name(&name).expect("the name was checked"))
}
