//! `trapline populate`: measures the cost of giving memory to a guest. With `--co-tenant` it also measures
//! the timer of a guest while another machine is populated, one run per method.

use crate::args::{populate_methods, PopulateArgs};
use crate::session::{open_store, Session};
use crate::{outcome, run, terminal};
use trapline_abi::interrupt::WINDOW;
use trapline_abi::{Op, OpSet};
use trapline_model::irq::{Settings, Time};
use trapline_model::{Clock, Conditions, EnvironmentId, Loads, Request, Sched, Scheduling};
use trapline_report::{CoTenant, Report};
use trapline_runner::run::{default_configs, perform};
use trapline_runner::{BootOptions, Failure, Inventory, Status};
use trapline_store::Store;

/// Measures, stores and prints.
///
/// # Errors
/// A part is missing, the store cannot be written, or output cannot.
pub fn populate(args: &PopulateArgs) -> Result<Status, Failure> {
    if args.co_tenant.is_some() && guests(args).is_empty() {
        return Err(Failure::usage(
            "--co-tenant is not supported by these environments: they have no guest",
            "add kvm or sim/kvm to --env, or leave --co-tenant out",
        ));
    }
    let mut store = open_store(&args.run_options)?;
    let inventory = args.environment_options.inventory()?;
    let session = Session::open(&args.run_options, inventory)?;
    let environments = args.environments();
    let request = request(args, args.operations(), &environments, &session.inventory);
    let options = BootOptions::default();
    let run = perform(&mut store, &request, &session.context(), &options)?;
    let mut report = session.report(&run);
    let mut status = Status::Done;
    for loads in args.co_tenant.map(populate_methods).unwrap_or_default() {
        if session.interrupt.is_requested() {
            break;
        }
        let with_load = measure_with_load(args, loads, &mut store, &session, &mut report)?;
        status = first_failure(status, with_load);
    }
    let shown = run::show(&run, &report, args.format, &session.interrupt)?;
    Ok(first_failure(shown, status))
}

/// Returns the environments of `args` whose guest can have a co-tenant.
fn guests(args: &PopulateArgs) -> Vec<EnvironmentId> {
    let mut all = args.environments();
    all.retain(|id| !id.is_native() && id.clock() != Clock::InsnVmx);
    all
}

fn first_failure(status: Status, other: Status) -> Status {
    match status {
        Status::Done => other,
        failure => failure,
    }
}

fn request(
    args: &PopulateArgs,
    (operations, named): (OpSet, OpSet),
    environments: &[EnvironmentId],
    inventory: &Inventory,
) -> Request {
    let configs = default_configs(environments);
    Request {
        ready: inventory.ready(&configs, &[]),
        configs,
        operations,
        named,
        overrides: inventory.overrides().clone(),
        ..args.size_options.request()
    }
}

/// Period of the guest's timer, and its number of expiries: two windows of warm-up, and two that are
/// shown.
const PERIOD: Time = Time(1_000_000);
const EXPIRIES: u32 = 4 * WINDOW;

/// Measures a guest under these loads, and adds its interrupts to the report.
fn measure_with_load(
    args: &PopulateArgs,
    loads: Loads,
    store: &mut Store,
    session: &Session,
    report: &mut Report,
) -> Result<Status, Failure> {
    let own_timer = (Op::OwnTimer.into(), OpSet::EMPTY);
    let mut request = request(args, own_timer, &guests(args), &session.inventory);
    request.boots = Some(1);
    let conditions = Conditions {
        loads,
        ..Conditions::default()
    };
    request.irq = Settings {
        period: PERIOD,
        expiries: Some(EXPIRIES),
        scheduling: Scheduling {
            pin: conditions.default_pin(Sched::Other),
            ..Scheduling::DEFAULT
        },
        conditions,
        ..Settings::default()
    };
    let run = perform(store, &request, &session.context(), &BootOptions::default())?;
    let measured = session.report(&run);
    let status = outcome::status(&measured);
    for (config, reason) in &measured.skips {
        let loads = &request.irq.conditions.loads;
        terminal::print_error(&format!("{config} with load {loads}: {reason}"));
    }
    let interrupts = measured.interrupts.into_iter();
    report
        .co_tenants
        .extend(interrupts.map(|interrupts| CoTenant {
            interrupts,
            settings: request.irq.clone(),
        }));
    Ok(status)
}
