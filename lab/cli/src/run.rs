//! `trapline run`, in the order in which it happens: what is asked for becomes a
//! plan; each boot of the plan is observed in its environment and stored, raw;
//! what is stored becomes figures; the figures are printed.

use crate::args::{Format, MannerArgs, RunArgs};
use crate::failure::{Failure, Status};
use crate::followers::Followers;
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::ledgers::Counters;
use crate::measure::{self, Storekeeper};
use crate::progress::Bar;
use crate::resume::Asked;
use crate::{keep, keeper, kernel_build, outcome, plan, resume, seed};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trapline_abi::{block, OpSet};
use trapline_environments::{disk, Availability};
use trapline_model::request::usual_operations;
use trapline_model::{expand, irq, names, populate, Contender, EnvironmentId, Request, Scheduling};
use trapline_report::Report;
use trapline_store::{NewRun, Run, RunId, Store};

/// Measures, stores and shows.
///
/// # Errors
/// A part is missing, the plan cannot be read, the store cannot be written, or output
/// cannot.
pub fn run(args: &RunArgs) -> Result<Status, Failure> {
    let study = args.plan.as_deref().map(plan::read).transpose()?;
    let mut store = open_store(&args.manner)?;
    let interrupt = Interrupt::watch()?;
    let lab = Lab::open(&args.manner.simulated)?;
    let (lab, mut request) = match &study {
        Some(study) => {
            let lab = lab.with_files_of(&study.contenders)?;
            let seed = study.seed.unwrap_or_else(seed::drawn);
            let request = plan::request(study, &lab, seed);
            (lab, request)
        }
        None => {
            let request = request(args, &lab);
            (lab, request)
        }
    };
    let means = Means {
        deadline: study.as_ref().and_then(plan::deadline),
        plan: study.as_ref().map(|study| study.text.as_str()),
        ..Means::new(&lab, &interrupt, &args.manner)
    };
    if let Some((study, builds)) = study
        .as_ref()
        .and_then(|study| Some((study, study.builds.as_ref()?)))
    {
        let request = trapline_model::kernel_build::Request {
            seed: request.seed,
            ..builds.clone()
        };
        let unfinished = match args.anew {
            true => None,
            false => Some(study.seed),
        };
        return kernel_build::of_plan(&mut store, request, &means, unfinished, args.format);
    }
    let asked = Asked::of(&request, &lab);
    let unfinished = match (&study, args.anew) {
        (Some(study), false) => resume::unfinished(&mut store, &asked, study.seed)?,
        _ => None,
    };
    let number = match unfinished {
        Some(left) => {
            request.seed = left.seed;
            left.number
        }
        None => begin(&mut store, &request, asked, &means)?,
    };
    let run = go_on(&mut store, number, &request, &means)?;
    let status = show(&run, &outcome::reports(&run), args.format, &interrupt)?;
    if args.plot {
        outcome::plot(&run)?;
    }
    Ok(status)
}

/// What a run is made with.
pub struct Means<'a> {
    /// The environments.
    pub lab: &'a Lab,
    /// Who may end it early.
    pub interrupt: &'a Interrupt,
    /// What the user said of it.
    pub manner: &'a MannerArgs,
    /// Who counts instructions meanwhile, if anybody does.
    pub counters: Option<&'a Counters>,
    /// Who follows interrupts, if anybody does.
    pub followers: Option<&'a Followers>,
    /// No block is begun later, if it is said when.
    pub deadline: Option<Instant>,
    /// The plan that it is of, as it is written, if it is of one.
    pub plan: Option<&'a str>,
    /// Whether the boots of a block on the wall clock are done at the same time.
    pub duet: bool,
}

impl<'a> Means<'a> {
    /// What every run has; nobody counts or follows, and there is no end in time.
    pub fn new(lab: &'a Lab, interrupt: &'a Interrupt, manner: &'a MannerArgs) -> Self {
        Self {
            lab,
            interrupt,
            manner,
            counters: None,
            followers: None,
            deadline: None,
            plan: None,
            duet: false,
        }
    }
}

/// A request for exact figures, which depend on no seed: more boots or
/// samples would only repeat them.
pub fn exact(environments: &[EnvironmentId], operations: OpSet, lab: &Lab) -> Request {
    Request {
        contenders: usual(environments),
        ready: usual(environments),
        operations,
        // Whoever asks for a whole workload names none of it.
        named: match operations & populate::operations() == populate::operations() {
            true => 0,
            false => operations,
        },
        scheduling: lab.scheduling(),
        ..Request::default()
    }
}

/// Does what `request` asks for and stores it; the run as it was stored, whole or
/// up to where somebody ended it.
///
/// # Errors
/// The store cannot be written or read.
pub fn perform(store: &mut Store, request: &Request, means: &Means<'_>) -> Result<Run, Failure> {
    let asked = Asked::of(request, means.lab);
    let number = begin(store, request, asked, means)?;
    go_on(store, number, request, means)
}

/// Does what is left of a run.
///
/// # Errors
/// The store cannot be written or read.
pub fn go_on(
    store: &mut Store,
    number: RunId,
    request: &Request,
    means: &Means<'_>,
) -> Result<Run, Failure> {
    let failed = |error: trapline_store::StoreError| Failure::from_error(&error);
    let mut plan = expand(request);
    let done = store.booted(number).map_err(failed)?;
    plan.boots
        .retain(|boot| !done.contains(&(boot.contender(), boot.replicate)));
    let progress = Bar::new(plan.boots.len(), means.manner.quiet);
    let measured = measure::measure(
        &measure::Task {
            plan: &plan,
            lab: means.lab,
            interrupt: means.interrupt,
            progress: &progress,
            timeout: means.manner.timeout.map(Duration::from_secs),
            counters: means.counters,
            followers: means.followers,
            deadline: means.deadline,
            duet: means.duet,
        },
        &mut Storekeeper::new(store, number),
    );
    progress.finish();
    measured?;
    end(store, number, means.interrupt)
}

/// Opens the store that the user named, or his own.
///
/// # Errors
/// It cannot be written.
pub fn open_store(manner: &MannerArgs) -> Result<Store, Failure> {
    Store::open(&keep::file(&manner.store)?).map_err(|error| Failure::from_error(&error))
}

fn request(args: &RunArgs, lab: &Lab) -> Request {
    let (operations, named) = selected(&args.workloads);
    Request {
        contenders: usual(&environments(&args.environments, lab)),
        ready: ready(lab),
        operations,
        named,
        cpus: args.cpus,
        scheduling: lab.scheduling(),
        twin: true,
        ..args.extent.request()
    }
}

/// The operations of these workloads and operations, or the usual ones where there are
/// none; and those of them that were named one by one.
pub fn selected(workloads: &[String]) -> (OpSet, OpSet) {
    // The parser has let names of operations pass only.
    let union = |wanted: &dyn Fn(&str) -> bool| {
        let names = workloads.iter().filter(|name| wanted(name));
        let sets = names.filter_map(|name| names::operations(name).ok());
        sets.fold(0, |all, set| all | set)
    };
    let operations = match workloads {
        [] => usual_operations(),
        _ => union(&|_| true),
    };
    (operations, union(&|name| name.contains('/')))
}

/// Environments that can be measured here and now, as they usually are.
pub fn ready(lab: &Lab) -> Vec<Contender> {
    let places = lab.places().iter();
    let ready = places.filter(|place| place.availability == Availability::Ready);
    ready.map(|place| place.id.into()).collect()
}

/// These environments as they usually are.
pub fn usual(environments: &[EnvironmentId]) -> Vec<Contender> {
    environments.iter().map(|id| (*id).into()).collect()
}

/// Those that were chosen, or where none were those that are measured by default.
pub fn environments(chosen: &[EnvironmentId], lab: &Lab) -> Vec<EnvironmentId> {
    match chosen {
        [] => by_default(lab),
        chosen => chosen.to_vec(),
    }
}

/// The usual ones, and those whose VMM is the user's if he gives one; where it is said
/// how guests are scheduled, those that can do that.
fn by_default(lab: &Lab) -> Vec<EnvironmentId> {
    let given = lab.settings().vmm.is_some();
    let chosen = EnvironmentId::ALL.into_iter();
    let scheduling = lab.scheduling();
    let wanted = |id: &EnvironmentId| match scheduling {
        Scheduling::USUAL => (id.is_usual() || given && id.is_custom()) && lab.sched().fits(*id),
        said => said.fits(*id),
    };
    chosen.filter(wanted).collect()
}

/// Notes what will be done, and what cannot be done and why.
///
/// # Errors
/// The store cannot be written.
pub fn begin(
    store: &mut Store,
    request: &Request,
    mut asked: Asked,
    means: &Means<'_>,
) -> Result<RunId, Failure> {
    let (plan, lab) = (expand(request), means.lab);
    if request.operations & irq::operations() != 0 {
        asked.facts.extend(request.irq.facts());
    }
    if request.operations & block::operations() != 0 {
        let facts = disk::facts(lab.settings(), request.block.mib);
        asked.facts.extend(facts);
    }
    let number = note(store, request.seed, asked, means)?;
    let failed = |error: trapline_store::StoreError| Failure::from_error(&error);
    for contender in &plan.left_out {
        if let Some(reason) = lab.why_not_with(contender) {
            store.add_skip(number, contender, reason).map_err(failed)?;
        }
    }
    for (contender, reason) in &plan.idle {
        store.add_skip(number, contender, reason).map_err(failed)?;
    }
    Ok(number)
}

/// Notes that a run begins, with what the user said of it.
///
/// # Errors
/// The store cannot be written.
pub fn note(
    store: &mut Store,
    seed: u64,
    asked: Asked,
    means: &Means<'_>,
) -> Result<RunId, Failure> {
    let told = means.manner.facts.iter().cloned();
    let mut facts: BTreeMap<String, String> = told.collect();
    facts.extend(asked.facts);
    let run = NewRun {
        seed,
        request: &asked.words,
        version: env!("CARGO_PKG_VERSION"),
        facts,
        keeper: Some(&keeper::myself()),
        plan: means.plan,
    };
    let begun = store.begin_run(&run);
    begun.map_err(|error| Failure::from_error(&error))
}

/// Reads back what was stored: what is printed is what can be printed again.
///
/// # Errors
/// The store cannot be written or read.
pub fn end(store: &mut Store, number: RunId, interrupt: &Interrupt) -> Result<Run, Failure> {
    let finished = match interrupt.signal() {
        None => store.finish_run(number),
        Some(_) => Ok(()),
    };
    let run = finished.and_then(|()| store.load(number));
    run.map_err(|error| Failure::from_error(&error))
}

/// Prints the reports of a run and says how it ended.
///
/// # Errors
/// Output cannot be written.
pub fn show(
    run: &Run,
    reports: &[Report],
    format: Format,
    interrupt: &Interrupt,
) -> Result<Status, Failure> {
    outcome::print(reports, format)?;
    match interrupt.signal() {
        None => Ok(outcome::status_of(reports)),
        Some(signal) => {
            outcome::tell_interrupted(run);
            Ok(Status::Interrupted(signal))
        }
    }
}
