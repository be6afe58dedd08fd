//! `trapline populate`: what it costs to give a guest memory. It measures, stores and shows
//! as `trapline run` does. With `--neighbour` it also measures the interrupts of a guest
//! beside which a machine is populated, a run for each way.

use crate::args::{ways, PopulateArgs};
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::outcome;
use crate::run::{self, Means};
use trapline_abi::interrupt::WINDOW;
use trapline_abi::{Op, OpSet};
use trapline_model::irq::{Settings, Time};
use trapline_model::{Conditions, EnvironmentId, Loads, PerCpu, Request, Sched};
use trapline_report::{Neighbour, Report};
use trapline_store::Store;

/// Measures, stores and shows.
///
/// # Errors
/// A part is missing, the store cannot be written, or output cannot.
pub fn populate(args: &PopulateArgs) -> Result<Status, Failure> {
    if args.neighbour.is_some() && guests(args).is_empty() {
        let told = "--neighbour measures a guest, and none of these environments has one";
        let help = "add kvm or sim/kvm to --env, or leave --neighbour out";
        return Err(Failure::new(told).help(help).status(Status::Usage));
    }
    let mut store = run::open_store(&args.manner)?;
    let interrupt = Interrupt::watch()?;
    let lab = Lab::open(&args.manner.simulated)?;
    let means = Means::new(&lab, &interrupt, &args.manner);
    let request = request(args, args.operations(), args.environments(), &lab);
    let run = run::perform(&mut store, &request, &means)?;
    let mut report = outcome::report(&run);
    let mut status = Status::Done;
    for loads in args.neighbour.map(ways).unwrap_or_default() {
        if interrupt.is_asked() {
            break;
        }
        let beside = beside(args, loads, &mut store, &means, &mut report)?;
        status = first_trouble(status, beside);
    }
    let shown = run::show(&run, std::slice::from_ref(&report), args.format, &interrupt)?;
    Ok(first_trouble(shown, status))
}

/// Where a guest can have a neighbour, of where memory is measured.
fn guests(args: &PopulateArgs) -> Vec<EnvironmentId> {
    use EnvironmentId::{Kvm, SimKvm};
    let mut all = args.environments();
    all.retain(|id| matches!(id, Kvm | SimKvm));
    all
}

fn first_trouble(status: Status, other: Status) -> Status {
    match status {
        Status::Done => other,
        trouble => trouble,
    }
}

fn request(
    args: &PopulateArgs,
    (operations, named): (OpSet, OpSet),
    environments: Vec<EnvironmentId>,
    lab: &Lab,
) -> Request {
    Request {
        contenders: run::usual(&environments),
        ready: run::ready(lab),
        operations,
        named,
        scheduling: lab.scheduling(),
        ..args.extent.request()
    }
}

/// From one expiry of the neighbour's timer to the next, and how many there are: two
/// windows in which the guest itself has just started, and two that are shown.
const PERIOD: Time = Time(1_000_000);
const EXPIRIES: u32 = 4 * WINDOW;

/// Measures a guest beside these loads, and adds what is heard of it to the report.
fn beside(
    args: &PopulateArgs,
    loads: Loads,
    store: &mut Store,
    means: &Means<'_>,
    report: &mut Report,
) -> Result<Status, Failure> {
    let mut request = request(args, (Op::OwnTimer.bit(), 0), guests(args), means.lab);
    request.boots = Some(1);
    request.irq = Settings {
        period: PERIOD,
        expiries: Some(EXPIRIES),
        conditions: Conditions {
            pin: Conditions::usual_pin(&loads, Sched::Other, PerCpu::default()),
            loads,
            ..Conditions::default()
        },
        ..Settings::default()
    };
    let told = outcome::report(&run::perform(store, &request, means)?);
    let status = outcome::status(&told.summary);
    for (environment, reason) in &told.skips {
        anstream::eprintln!(
            "{environment} beside {}: {reason}",
            request.irq.conditions.loads
        );
    }
    let found = told.interrupts.into_iter();
    report.neighbours.extend(found.map(|interrupts| Neighbour {
        interrupts,
        settings: request.irq.clone(),
    }));
    Ok(status)
}
