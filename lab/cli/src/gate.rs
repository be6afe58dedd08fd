//! `trapline baseline` and `trapline check`: exact figures, kept and compared.
//! Both measure as `trapline run` does, and store what they observed. A baseline's
//! ledgers come from the very runs of its figures; a check makes ledgers only when
//! something changed.

use crate::args::{BaselineArgs, CheckArgs, GateFormat, MannerArgs};
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::ledgers::{Counters, Desk};
use crate::run::{self, Means};
use crate::terminal;
use std::path::Path;
use std::time::Duration;
use trapline_abi::{Op, OpSet, Workload};
use trapline_gate::{baseline, compare, forms, Baseline, Comparison, Outcome, Verdict};
use trapline_model::{names, request, Clock, EnvironmentId, Scheduling};
use trapline_stats::{FailureKind, Summary};
use trapline_store::{Run, Store};

/// Measures and writes a baseline to standard output.
///
/// # Errors
/// An environment is none of the instruction clock or cannot be measured here,
/// or an operation failed: a baseline has no gaps.
pub fn baseline(args: &BaselineArgs) -> Result<(), Failure> {
    require_exact(&args.environments)?;
    let operations = match args.workloads.as_slice() {
        [] => steady(),
        chosen => operations(chosen),
    };
    let mut gate = Gate::open(&args.manner)?;
    let counters = gate.counters(&args.environments);
    let run = gate.measure(&args.environments, operations, counters.as_ref())?;
    let summary = trapline_stats::summarise(&run.observations);
    require_figures(&summary)?;
    let mut made = Baseline::new(&summary, operations, env!("CARGO_PKG_VERSION"));
    if let Some(counters) = &counters {
        made.add_ledgers(&gate.desk().ledgers(&run.observations, counters)?);
    }
    terminal::print_text(&made.text())
}

/// Measures what a baseline holds and prints what changed, and where.
///
/// # Errors
/// The baseline cannot be used, or an environment of it cannot be measured here.
pub fn check(args: &CheckArgs) -> Result<Status, Failure> {
    let kept = read(&args.baseline)?;
    let ids = kept
        .ids()
        .map_err(|error| unusable(&args.baseline, &error))?;
    let mut gate = Gate::open(&args.manner)?;
    require_alike(&kept, gate.lab.scheduling())?;
    let run = gate.measure(&ids, kept.operations(), None)?;
    let summary = trapline_stats::summarise(&run.observations);
    let mut comparison = compare(&kept, &summary, &args.tolerances.tolerances());
    let explained = gate.explain(&mut comparison, &kept);
    if let Err(why) = &explained {
        let unknown = "which functions gained or lost is not known";
        comparison.notes.push(format!("{unknown}: {}", why.whole()));
    }
    print(&comparison, args.format)?;
    if let Some(signal) = gate.interrupt.signal() {
        return Ok(Status::Interrupted(signal));
    }
    let undetermined = explained.is_err_and(|why| why.is(Status::Undetermined));
    Ok(match comparison.outcome() {
        _ if undetermined => Status::Undetermined,
        Outcome::Same => Status::Done,
        Outcome::Changed => Status::Failed,
        Outcome::Undetermined => Status::Undetermined,
    })
}

/// That figures are taken as those of the baseline were.
fn require_alike(kept: &Baseline, now: Scheduling) -> Result<(), Failure> {
    let other = |(name, then)| (then != now).then_some((name, then));
    let taken = kept.scheduling().find_map(other);
    let Some((name, then)) = taken else {
        return Ok(());
    };
    let told = |scheduling| match scheduling {
        Scheduling::USUAL => "without --sched, --cap and --weight".to_owned(),
        said => format!("with {said}"),
    };
    let differs = format!(
        "the baseline of {name} was taken {}, not {}",
        told(then),
        told(now)
    );
    let help = "check it with what it was taken with, or make one anew with 'trapline baseline'";
    Err(Failure::new(differs).help(help).status(Status::Usage))
}

/// What both commands measure with.
struct Gate<'a> {
    manner: &'a MannerArgs,
    store: Store,
    interrupt: Interrupt,
    lab: Lab,
}

impl<'a> Gate<'a> {
    fn open(manner: &'a MannerArgs) -> Result<Self, Failure> {
        Ok(Self {
            manner,
            store: run::open_store(manner)?,
            interrupt: Interrupt::watch()?,
            lab: Lab::open(&manner.simulated)?,
        })
    }

    fn desk(&self) -> Desk<'_> {
        Desk {
            lab: &self.lab,
            interrupt: &self.interrupt,
            timeout: self.manner.timeout.map(Duration::from_secs),
            quiet: self.manner.quiet,
            stacks: false,
        }
    }

    /// Who counts instructions; where nobody can, that is told and figures alone
    /// are kept.
    fn counters(&self, environments: &[EnvironmentId]) -> Option<Counters> {
        let found = Counters::find(self.lab.settings(), environments, false);
        found
            .inspect_err(|error| anstream::eprintln!("note: no ledgers are kept: {error}"))
            .ok()
    }

    fn measure(
        &mut self,
        environments: &[EnvironmentId],
        operations: OpSet,
        counters: Option<&Counters>,
    ) -> Result<Run, Failure> {
        let wanted = Wanted {
            environments,
            operations,
            manner: self.manner,
            counters,
        };
        wanted.run(&mut self.store, &self.lab, &self.interrupt)
    }

    /// Finds the functions that moved what changed. All that the baseline has is
    /// measured again: with other operations around them, the digits of some would
    /// be others.
    fn explain(&self, comparison: &mut Comparison, kept: &Baseline) -> Result<(), Failure> {
        if comparison.count(Verdict::Changed) == 0 {
            return Ok(());
        }
        if !kept.has_ledgers() {
            return Err(Failure::new(
                "the baseline has no ledgers; 'trapline baseline' makes one that has",
            ));
        }
        let environments = comparison.to_explain(kept);
        if environments.is_empty() {
            return Ok(());
        }
        let counted = self.desk().count(&environments, kept.operations())?;
        comparison.explain(kept, &counted.ledgers);
        Ok(())
    }
}

/// That all of these have exact figures.
///
/// # Errors
/// One has not.
pub fn require_exact(environments: &[EnvironmentId]) -> Result<(), Failure> {
    let other = environments.iter().find(|id| !id.has_baseline());
    let exact = EnvironmentId::ALL.iter().filter(|id| id.has_baseline());
    let names: Vec<_> = exact.map(|id| id.name()).collect();
    let why = |id: &EnvironmentId| match id.clock() {
        Clock::Wall => "is measured on the wall clock, whose figures are never the same twice",
        _ => "is not kept in baselines, which hold the ledgers of starts, too",
    };
    match other {
        None => Ok(()),
        Some(id) => Err(Failure::new(format!("{id} {}", why(id)))
            .help(format!(
                "environments with exact figures and ledgers: {}",
                names.join(", ")
            ))
            .status(Status::Usage)),
    }
}

/// The set that these names choose; the parser has let known ones pass only.
pub fn operations(names: &[String]) -> OpSet {
    let selected = names.iter().filter_map(|name| names::operations(name).ok());
    selected.fold(0, |all, set| all | set)
}

/// All whose digits move only with what they execute: not those of boots, which
/// move with every byte of an initramfs, nor that of a timer, which moves with where
/// the ticks of the machine's own kernel fall.
fn steady() -> OpSet {
    let boot = Workload::Boot.operations();
    let moved = boot.fold(Op::TimerWake.bit(), |set, op| set | op.bit());
    request::usual_operations() & !moved
}

/// Exact figures that are wanted.
pub struct Wanted<'a> {
    /// Where; all of the instruction clock.
    pub environments: &'a [EnvironmentId],
    /// Set of [`trapline_abi::Op::bit`].
    pub operations: OpSet,
    /// How.
    pub manner: &'a MannerArgs,
    /// Who counts instructions meanwhile, if anybody does.
    pub counters: Option<&'a Counters>,
}

impl Wanted<'_> {
    /// Measures them in `lab` and stores what was observed, which is whole.
    ///
    /// # Errors
    /// An environment cannot be measured ([`Status::Unmeasured`]), the store
    /// cannot be written, or somebody ended it.
    pub fn run(&self, store: &mut Store, lab: &Lab, interrupt: &Interrupt) -> Result<Run, Failure> {
        for id in self.environments {
            if let Some(reason) = lab.why_not(*id) {
                return Err(unmeasured(*id, reason));
            }
        }
        let means = Means {
            counters: self.counters,
            ..Means::new(lab, interrupt, self.manner)
        };
        let request = run::exact(self.environments, self.operations, lab);
        let run = run::perform(store, &request, &means)?;
        whole(&run, interrupt)?;
        Ok(run)
    }
}

/// That nothing of a run is missing.
fn whole(run: &Run, interrupt: &Interrupt) -> Result<(), Failure> {
    if let Some(signal) = interrupt.signal() {
        return Err(Failure::new("interrupted").status(Status::Interrupted(signal)));
    }
    match run.skips.first() {
        Some((id, reason)) => Err(unmeasured(id.environment, reason)),
        None => Ok(()),
    }
}

fn unmeasured(id: EnvironmentId, reason: &str) -> Failure {
    Failure::new(format!("{id} cannot be measured here: {reason}"))
        .help("'trapline list' tells what can be")
        .status(Status::Unmeasured)
}

/// That nothing failed that should have given a figure.
///
/// # Errors
/// Something did; [`Status::Undetermined`] if two runs disagree.
pub fn require_figures(summary: &Summary) -> Result<(), Failure> {
    let disagree = summary.has_failure(FailureKind::NotDeterministic);
    let mut failures = baseline::failures(summary)
        .filter(|(_, failure)| !disagree || failure.kind == FailureKind::NotDeterministic);
    let Some((cell, failure)) = failures.next() else {
        return Ok(());
    };
    let (path, id) = (names::path(cell.op), cell.environment);
    let told = Failure::new(format!("{path} in {id}: {}", failure.reason));
    Err(told.status(match disagree {
        true => Status::Undetermined,
        false => Status::Failed,
    }))
}

fn read(file: &Path) -> Result<Baseline, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::new(format!(
            "cannot read the baseline {}: {error}",
            file.display()
        ))
        .help("make one with 'trapline baseline > FILE'")
        .status(Status::Usage)
    })?;
    Baseline::parse(&text).map_err(|error| unusable(file, &error))
}

fn unusable(file: &Path, error: &trapline_gate::BaselineError) -> Failure {
    let told = format!("the baseline {} cannot be used: {error}", file.display());
    let (message, help) = told.rsplit_once("; ").unwrap_or((&told, ""));
    Failure::new(message).help(help).status(Status::Usage)
}

fn print(comparison: &Comparison, format: GateFormat) -> Result<(), Failure> {
    let text = match format {
        GateFormat::Table => forms::table(comparison),
        GateFormat::Markdown => forms::markdown(comparison),
        GateFormat::Junit => {
            forms::junit(comparison).map_err(|error| Failure::from_error(&error))?
        }
        GateFormat::Bencher => forms::bencher(comparison),
        GateFormat::Json => forms::json(comparison),
    };
    terminal::print_text(&text)
}
