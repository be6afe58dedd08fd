//! `trapline irq`: measures the lateness of interrupts, by stage. With `--require` the exit status is a
//! verdict.

use crate::args::{Contradiction, IrqArgs};
use crate::run;
use crate::session::{open_store, Session};
use trapline_abi::Op;
use trapline_model::{EnvironmentId, Request, Sched};
use trapline_report::{verdicts, Report};
use trapline_runner::irq_tracer::IrqTracers;
use trapline_runner::run::{default_configs, perform};
use trapline_runner::{BootOptions, Failure, Status};
use trapline_stats::irq::Proof;

/// Measures, stores, prints, and checks `--require`.
///
/// # Errors
/// A part is missing, the store cannot be written, or output cannot.
pub fn irq(args: &IrqArgs) -> Result<Status, Failure> {
    let settings = args.settings().map_err(contradiction)?;
    let mut store = open_store(&args.run_options)?;
    let environment_options = &args.environment_options;
    let inventory = environment_options.inventory_with(|settings| settings)?;
    check_sched(settings.scheduling.sched, &args.environments)?;
    let session = Session::open(&args.run_options, inventory)?;
    let (inventory, context) = (&session.inventory, session.context());
    let environments = inventory.select(&args.environments);
    let configs = default_configs(&environments);
    let request = Request {
        ready: inventory.ready(&configs, &[]),
        configs,
        operations: args.timer.operations(),
        overrides: inventory.overrides().clone(),
        irq: settings,
        ..args.size_options.request()
    };
    let of_guests = request.operations - Op::HostTimer;
    let tracers = (!of_guests.is_empty()).then(|| IrqTracers::find(&context, &environments));
    let options = BootOptions {
        irq_tracers: tracers.as_ref(),
        ..BootOptions::default()
    };
    let run = perform(&mut store, &request, &context, &options)?;
    let report = session.report(&run);
    let status = run::show(&run, &report, args.format, &session.interrupt)?;
    Ok(match status {
        Status::Done => verdict(&report),
        other => other,
    })
}

fn contradiction(contradiction: Contradiction) -> Failure {
    let (message, help) = match contradiction {
        Contradiction::Busy => (
            "--idle is not supported by console loads: the guest never idles",
            "leave --idle or the console's load out",
        ),
        Contradiction::Bound => (
            "--sched deadline is not supported by pinned threads",
            "leave --pin and --vcpus-per-cpu, or --sched deadline, out",
        ),
        Contradiction::Apart => (
            "--pin free is not supported by --vcpus-per-cpu 2: both must be pinned to one CPU",
            "leave --pin free out, or name --pin exclusive",
        ),
    };
    Failure::usage(message, help)
}

/// # Errors
/// None of the chosen environments supports the scheduling policy; if some do, the others are skipped.
fn check_sched(sched: Sched, chosen: &[EnvironmentId]) -> Result<(), Failure> {
    if chosen.is_empty() || chosen.iter().any(|id| sched.is_supported_by(*id)) {
        return Ok(());
    }
    let names: Vec<_> = chosen.iter().map(|id| id.name()).collect();
    Err(Failure::usage(
        format!("--sched {sched} is not supported by {}", names.join(", ")),
        format!(
            "choose from {} with --env",
            EnvironmentId::names_of(|id| sched.is_supported_by(id))
        ),
    ))
}

/// Returns the status of a run without failures.
fn verdict(report: &Report) -> Status {
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
