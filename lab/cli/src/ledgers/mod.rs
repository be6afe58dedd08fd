//! The ledgers of many operations from one pair of machine runs.
//!
//! Operations are measured as `trapline run` measures them, while a plugin of QEMU or
//! the debugger of Bochs tells every instruction between the marks around each batch
//! ([`counters`]). The batches
//! that a guest told and the windows that were counted are the same batches in the
//! same order ([`windows`]); all of an operation have one ledger, whose total is the
//! figure, and both runs must give the same one. Starts have windows from stage to stage
//! instead ([`boot`]).

mod boot;
mod counters;
pub mod symbols;
mod windows;

pub use counters::Counters;

use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::measure::{self, Keeper, Task};
use crate::progress::Bar;
use crate::run;
use std::collections::BTreeMap;
use std::time::Duration;
use trapline_abi::{mark, Op, OpSet, Unit, Workload};
use trapline_environments::Watch;
use trapline_model::{expand, names, Contender, EnvironmentId, Observation};
use trapline_profile::wire::Span;
use trapline_profile::{Batch, Ledger, Machine, Symbols, Window};
use windows::Marked;

/// Ledgers by where and of what.
pub type Ledgers = BTreeMap<(EnvironmentId, Op), Ledger>;

/// Whether an operation has a ledger: there are marks around its batches or at its
/// stages, and its figure is instructions.
pub fn has_ledger(op: Op) -> bool {
    let is_counted = !op.is_lateness() || op.workload() == Workload::Boot;
    is_counted && op.unit() == Unit::Time
}

/// What was observed only to make ledgers; no store holds it.
#[derive(Default)]
pub struct Counted {
    /// The boots.
    pub observations: Vec<Observation>,
    /// The ledgers of all operations that were measured and have one.
    pub ledgers: Ledgers,
}

impl Keeper for Counted {
    fn observed(&mut self, seen: Observation) -> Result<(), Failure> {
        self.observations.push(seen);
        Ok(())
    }

    fn skipped(&mut self, contender: &Contender, reason: &str) -> Result<(), Failure> {
        Err(Failure::new(format!("{contender}: {reason}")))
    }
}

/// What makes ledgers.
pub struct Desk<'a> {
    /// The environments.
    pub lab: &'a Lab,
    /// Who may end it early.
    pub interrupt: &'a Interrupt,
    /// The most time that one boot may take, if not the usual.
    pub timeout: Option<Duration>,
    /// Whether nobody wants to see how far it is.
    pub quiet: bool,
    /// Whether call stacks are wanted: they take a fifth more time.
    pub stacks: bool,
}

impl Desk<'_> {
    /// Runs `environments` to make the ledgers of `operations`, a set of
    /// [`trapline_abi::Op::bit`].
    ///
    /// # Errors
    /// QEMU cannot load the plugin, an environment cannot be run, somebody ended it,
    /// or those of [`Self::ledgers`].
    pub fn count(
        &self,
        environments: &[EnvironmentId],
        operations: OpSet,
    ) -> Result<Counted, Failure> {
        if let Some((id, reason)) = environments
            .iter()
            .find_map(|id| Some((id, self.lab.why_not(*id)?)))
        {
            return Err(Failure::new(format!("{id}: {reason}")));
        }
        let found = Counters::find(self.lab.settings(), environments, self.stacks);
        let counters = found.map_err(|error| self.interrupt.explain(&error))?;
        let plan = expand(&run::exact(environments, operations, self.lab));
        let progress = Bar::new(plan.boots.len(), self.quiet);
        let mut counted = Counted::default();
        let task = Task {
            plan: &plan,
            lab: self.lab,
            interrupt: self.interrupt,
            progress: &progress,
            timeout: self.timeout,
            counters: Some(&counters),
            followers: None,
            deadline: None,
            duet: false,
        };
        let measured = measure::measure(&task, &mut counted);
        progress.finish();
        measured?;
        if let Some(signal) = self.interrupt.signal() {
            return Err(Failure::new("interrupted").status(Status::Interrupted(signal)));
        }
        counted.ledgers = self.ledgers(&counted.observations, &counters)?;
        Ok(counted)
    }

    /// The ledgers of all operations that these boots measured.
    ///
    /// # Errors
    /// What was told and what was counted do not fit together, names cannot be had,
    /// or two runs disagree ([`Status::Undetermined`]).
    pub fn ledgers(
        &self,
        observations: &[Observation],
        counters: &Counters,
    ) -> Result<Ledgers, Failure> {
        let mut ledgers = Ledgers::new();
        for id in EnvironmentId::ALL {
            let runs: Vec<_> = observations
                .iter()
                .filter(|o| o.environment == id)
                .collect();
            if runs.is_empty() {
                continue;
            }
            let symbols = symbols::of(self.lab, id, &self.watch(), self.interrupt)?;
            let of_run = |run: &&Observation| {
                let windows = counters.take(id, run.replicate)?;
                of_run(run, windows, &symbols)
            };
            let of_runs = runs.iter().map(of_run).collect::<Result<Vec<_>, _>>()?;
            let agreed = agreed(id, of_runs)?;
            ledgers.extend(agreed.into_iter().map(|(op, ledger)| ((id, op), ledger)));
        }
        Ok(ledgers)
    }

    fn watch(&self) -> Watch {
        Watch {
            patience: measure::PATIENCE_INSN,
            stop: self.interrupt.flag(),
        }
    }
}

/// What all runs of an environment gave.
fn agreed(
    environment: EnvironmentId,
    runs: Vec<BTreeMap<Op, Ledger>>,
) -> Result<BTreeMap<Op, Ledger>, Failure> {
    let mut runs = runs.into_iter();
    let (Some(first), Some(second)) = (runs.next(), runs.next()) else {
        let told = format!("{environment}: there is no second run to compare with");
        return Err(Failure::new(told));
    };
    let differs = |op: &&Op| first.get(op) != second.get(op);
    match first.keys().chain(second.keys()).find(differs) {
        None => Ok(first),
        Some(op) => Err(Failure::new(format!(
            "not deterministic: two runs of {} in {environment} gave different ledgers",
            names::path(*op)
        ))
        .status(Status::Undetermined)),
    }
}

/// Who executes what no guest does in an environment.
pub fn machine_of(environment: EnvironmentId) -> Machine {
    match environment {
        bare if bare.is_bare() => Machine::Bare,
        id if id.is_xen() => Machine::Xen,
        _ => Machine::Linux,
    }
}

/// The ledgers of one run.
fn of_run(
    run: &Observation,
    windows: Vec<Window>,
    symbols: &Symbols,
) -> Result<BTreeMap<Op, Ledger>, Failure> {
    let machine = machine_of(run.environment);
    let is_batch = |window: &Window| window.span == Span::Batch;
    let (batches, stages): (Vec<_>, Vec<_>) = windows.into_iter().partition(is_batch);
    let assigned = windows::assign(run, &batches)?;
    let with_ledger = assigned.iter().filter(|marked| has_ledger(marked.op));
    let ledger = |marked| ledger(marked, symbols, machine);
    let ledgers = with_ledger.filter_map(|marked| Some((marked.op, ledger(marked)?)));
    let mut ledgers: BTreeMap<_, _> = ledgers.collect();
    ledgers.extend(boot::ledgers(run, &stages, (symbols, machine))?);
    Ok(ledgers)
}

/// The ledger of all batches of an operation; `None` if there are none.
fn ledger(marked: &Marked<'_>, symbols: &Symbols, machine: Machine) -> Option<Ledger> {
    let all = Batch::all(&marked.batches)?;
    let window = Window::all(marked.windows);
    let around = marked.batches.len() as u64 * mark::AROUND;
    Some(Ledger::new(&all, &window, symbols, machine, around))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(total: f64, residual: i64) -> Ledger {
        Ledger {
            total,
            residual,
            operations: 1,
            ..Ledger::default()
        }
    }

    #[test]
    fn runs_that_differ_in_a_ledger_are_not_deterministic() {
        let run = |residual| BTreeMap::from([(Op::PortOut, ledger(5.0, residual))]);
        let id = EnvironmentId::SimKvm;
        assert_eq!(agreed(id, vec![run(0), run(0)]), Ok(run(0)));
        for other in [run(1), BTreeMap::new()] {
            let failure = agreed(id, vec![run(0), other]).unwrap_err();
            assert!(failure.is(Status::Undetermined), "{failure}");
            assert!(failure.to_string().contains("exits/port-out in sim/kvm"));
        }
        assert!(agreed(id, vec![run(0)]).is_err());
    }
}
