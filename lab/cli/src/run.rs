//! `trapline run`: measures a request or a plan file, stores the observations, and prints the report of
//! the stored run.

use crate::args::{selected, Format, OutputOptions, RunArgs, RunOptions, StoreOptions};
use crate::layouts::in_layouts;
use crate::session::{open_store, Session};
use crate::{compare, fleet, outcome, plan, terminal};
use std::path::Path;
use trapline_model::file::Study;
use trapline_model::{expand, packets, Request};
use trapline_report::Report;
use trapline_runner::run::{default_configs, perform, perform_plan};
use trapline_runner::{
    random_seed, seed_of_slices, BootOptions, Failure, Interrupt, Resume, Status,
};
use trapline_store::{Run, RunId, Store};

/// Measures, stores and prints.
///
/// # Errors
/// A part is missing, the plan is invalid, the store cannot be written, or output cannot.
pub fn run(args: &RunArgs) -> Result<Status, Failure> {
    let options = &args.run_options;
    if args.engine.is_some() && args.plan.is_none() {
        return Err(Failure::usage(
            "--on executes plans only",
            "write what to measure into a plan (docs/plans.md), as in 'trapline run plan.toml --on slurm'",
        ));
    }
    // A plan may define VMMs, whose environments are then in the inventory.
    let study = args.plan.as_deref().map(plan::read).transpose()?;
    let inventory = args.environment_options.inventory_of(args.overrides())?;
    if let (Some(study), Some(engine), Some(plan)) = (&study, &args.engine, &args.plan) {
        reject_options(args, plan)?;
        let inventory = inventory.with_overrides(&study.configs)?;
        let boots = expand(&plan::request(study, &inventory, 0)).boots.len();
        let slices = args.slices.unwrap_or_else(|| fleet::usual_slices(boots));
        return fleet::run(plan, slices, engine, &args.run_options.store, &args.output);
    }
    if let Some(study) = study {
        let mut session = Session::open(options, inventory.with_overrides(&study.configs)?)?;
        session.show_findings();
        return run_plan(args, &study, &session);
    }
    let mut store = open_store(options)?;
    let mut session = Session::open(options, inventory)?;
    session.show_findings();
    let mut request = request(args, &session)?;
    if args.size_options.seed.is_none() {
        request = with_seed_of_slices(request);
    }
    session.warn_of_load(&request.configs, args.run_options.quiet);
    measure(
        &request,
        &mut store,
        &session,
        &args.output,
        &args.run_options.store,
    )
}

/// # Errors
/// An option would have no effect on other machines.
fn reject_options(args: &RunArgs, plan: &Path) -> Result<(), Failure> {
    let of_machines = |args: &RunArgs| {
        let RunOptions {
            timeout,
            allow_lost,
            facts,
            ..
        } = &args.run_options;
        let of_run = (timeout, allow_lost, facts);
        format!(
            "{:?}",
            (
                &args.environment_options,
                &args.guest_options,
                &args.size_options,
                of_run
            )
        )
    };
    let alone = RunArgs::of_plan(plan);
    if alone.is_some_and(|alone| of_machines(&alone) != of_machines(args)) {
        return Err(Failure::usage(
            "--on: options of environments, guests and boots have no effect on other machines",
            "write them into the plan (docs/plans.md)",
        ));
    }
    Ok(())
}

/// Measures a request, stores its observations and prints their report. Returns the status of the command.
///
/// # Errors
/// The store cannot be written or read, or output cannot be written.
pub fn measure(
    request: &Request,
    store: &mut Store,
    session: &Session,
    output: &OutputOptions,
    file: &StoreOptions,
) -> Result<Status, Failure> {
    let options = BootOptions::default();
    let run = perform(store, request, &session.context(), &options)?;
    finish(output, file, store, &run, session)
}

fn run_plan(args: &RunArgs, study: &Study, session: &Session) -> Result<Status, Failure> {
    let resume = if args.restart {
        Resume::Restart
    } else {
        Resume::Allowed { seed: study.seed }
    };
    let plan = (study.text.as_str(), resume);
    let seed = study.seed.unwrap_or_else(random_seed);
    let deadline = plan::deadline(study);
    let mut store = open_store(&args.run_options)?;
    let exact_boots = args.size_options.exact_options.exact_boots;
    let request = Request {
        exact_boots: exact_boots.unwrap_or(study.exact_boots),
        packets: packets::Settings {
            cpus: plan::cpus_of_packets(study)?,
            ..study.packets
        },
        slice: args.slice,
        ..plan::request(study, &session.inventory, seed)
    };
    let request = match study.seed {
        Some(_) => request,
        None => with_seed_of_slices(request),
    };
    session.warn_of_load(&request.configs, args.run_options.quiet);
    let options = BootOptions {
        deadline,
        ..BootOptions::default()
    };
    let run = perform_plan(&mut store, request, plan, &session.context(), &options)?;
    finish(
        &args.output,
        &args.run_options.store,
        &mut store,
        &run,
        session,
    )
}

/// Prints the report of a run, with the change since an earlier run of the same request, and returns the status of the
/// command.
///
/// # Errors
/// The store cannot be read, or output cannot be written.
fn finish(
    output: &OutputOptions,
    file: &StoreOptions,
    store: &mut Store,
    run: &Run,
    session: &Session,
) -> Result<Status, Failure> {
    if let Some(slice) = run.info.request.slice.as_ref().filter(|_| is_empty(run)) {
        terminal::print_text(&format!("Slice {slice} has no boots.\n"))?;
        return Ok(Status::Done);
    }
    let report = session.report(run);
    let since = if output.is_brief() && run.info.boots > 0 {
        compare::since(store, run, file)?
    } else {
        None
    };
    outcome::print_run(run, &report, output, file, since)?;
    Ok(status(run, &report, &session.interrupt))
}

/// Returns a request with the seed that all slices of a plan without one have.
fn with_seed_of_slices(request: Request) -> Request {
    match request.slice {
        None => request,
        Some(_) => Request {
            seed: seed_of_slices(&request),
            ..request
        },
    }
}

/// Returns whether a run is complete without boots. One without boots is stored only if it is that of a slice.
fn is_empty(run: &Run) -> bool {
    let is_stored = run.info.id != RunId::UNSTORED;
    is_stored && run.info.finished_at.is_some() && run.info.boots == 0
}

/// # Errors
/// Layouts are requested that no environment has.
fn request(args: &RunArgs, session: &Session) -> Result<Request, Failure> {
    let inventory = &session.inventory;
    let (operations, named) = selected(&args.workloads);
    let configs = default_configs(&inventory.select(&args.environments));
    let configs = in_layouts(&configs, args.layout_options.layouts, &session.context())?;
    Ok(Request {
        ready: inventory.ready(&configs, &[]),
        without_taps: inventory.without_taps(operations),
        configs,
        operations,
        named,
        overrides: inventory.overrides().clone(),
        with_control: true,
        slice: args.slice,
        ..args.size_options.request()
    })
}

/// Prints the report of a run and returns the status of the command.
///
/// # Errors
/// Output cannot be written.
pub fn show(
    run: &Run,
    report: &Report,
    format: Format,
    interrupt: &Interrupt,
) -> Result<Status, Failure> {
    outcome::print(&report.document(), format)?;
    Ok(status(run, report, interrupt))
}

fn status(run: &Run, report: &Report, interrupt: &Interrupt) -> Status {
    outcome::of_command(run, outcome::status(report), interrupt)
}
