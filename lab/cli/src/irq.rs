//! `trapline irq`: how late interrupts are, how often, and at which stage. It measures,
//! stores and shows as `trapline run` does; with `--require` it also judges.

use crate::args::{Contradiction, IrqArgs};
use crate::failure::{Failure, Status};
use crate::followers::Followers;
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::outcome;
use crate::run::{self, Means};
use trapline_abi::Op;
use trapline_model::{Conditions, EnvironmentId, Request};
use trapline_report::{verdicts, Report};
use trapline_stats::irq::Proof;

/// Measures, stores, shows and judges.
///
/// # Errors
/// A part is missing, the store cannot be written, or output cannot.
pub fn irq(args: &IrqArgs) -> Result<Status, Failure> {
    let settings = args.settings().map_err(contradicted)?;
    let mut store = run::open_store(&args.manner)?;
    let interrupt = Interrupt::watch()?;
    let lab = Lab::for_interrupts(&args.manner.simulated)?;
    check_sched(&settings.conditions, &args.environments)?;
    let environments = run::environments(&args.environments, &lab);
    let request = Request {
        contenders: run::usual(&environments),
        ready: run::ready(&lab),
        operations: args.timer.operations(),
        scheduling: lab.scheduling(),
        irq: settings,
        ..args.extent.request()
    };
    let wanted = request.operations & Op::OwnTimer.bit() != 0;
    let followers = wanted.then(|| Followers::find(&lab, &environments, &interrupt));
    let means = Means {
        followers: followers.as_ref(),
        ..Means::new(&lab, &interrupt, &args.manner)
    };
    let run = run::perform(&mut store, &request, &means)?;
    let report = outcome::report(&run);
    let status = run::show(&run, std::slice::from_ref(&report), args.format, &interrupt)?;
    Ok(match status {
        Status::Done => judged(&report),
        other => other,
    })
}

fn contradicted(why: Contradiction) -> Failure {
    let (told, help) = match why {
        Contradiction::Busy => (
            "a guest that floods its console neither halts nor polls",
            "leave --idle or the console's load out",
        ),
        Contradiction::Bound => (
            "the kernel admits no deadline to a thread that is bound to a CPU",
            "leave --pin and --vcpus-per-cpu, or --sched deadline, out",
        ),
        Contradiction::Apart => (
            "two virtual CPUs share a CPU only if they are bound to it",
            "leave --pin free out, or name --pin exclusive",
        ),
    };
    Failure::new(told).help(help).status(Status::Usage)
}

/// That somebody who was chosen can schedule so; the others are skipped.
fn check_sched(conditions: &Conditions, chosen: &[EnvironmentId]) -> Result<(), Failure> {
    let sched = conditions.sched;
    if chosen.is_empty() || chosen.iter().any(|id| sched.fits(*id)) {
        return Ok(());
    }
    let names: Vec<_> = chosen.iter().map(|id| id.name()).collect();
    let told = format!("--sched {sched} means nothing to {}", names.join(", "));
    let help = format!("choose from {} with --env", sched.known_by());
    Err(Failure::new(told).help(help).status(Status::Usage))
}

/// How a run without failures ends: by what is demanded of it, if anything is.
fn judged(report: &Report) -> Status {
    let verdicts = verdicts(report);
    let is_any = |proof| verdicts.iter().any(|verdict| verdict.proof == proof);
    if report.irq.require.is_none() {
        Status::Done
    } else if verdicts.is_empty() {
        Status::Unmeasured
    } else if is_any(Proof::NotMet) {
        Status::Failed
    } else if is_any(Proof::NotProven) {
        Status::NotProven
    } else {
        Status::Done
    }
}
