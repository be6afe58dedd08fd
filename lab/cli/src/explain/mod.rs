//! `trapline explain`: where the instructions of one operation go.
//!
//! The operation is measured as `trapline run` measures it, twice, while a plugin
//! counts every instruction between the marks around each batch. One batch whose
//! figure is the median becomes the ledger; both runs must give the same one.

mod show;
mod symbols;

use crate::args::ExplainArgs;
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::progress::Bar;
use std::time::Duration;
use trapline_abi::{mark, Op, Workload};
use trapline_environments::{boot, EnvError, Plugin, Settings, Watch};
use trapline_ledger::{wire, Batch, Ledger, Machine, Symbols, Window};
use trapline_plan::{
    expand, names, Clock, EnvironmentId, Observation, Outcome, PlannedBoot, Preset, Request,
};

/// The most time that a machine may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A ledger and what it is of.
struct Explained {
    environment: EnvironmentId,
    ledger: Ledger,
}

/// Explains an operation and prints its ledger, or the difference of two.
///
/// # Errors
/// It cannot be measured there, or two runs disagree.
pub fn explain(args: &ExplainArgs) -> Result<Status, Failure> {
    let op = explainable(args)?;
    let desk = Desk {
        lab: Lab::open(&args.simulated)?,
        interrupt: Interrupt::watch()?,
        op,
    };
    let first = desk.explain(args.environment)?;
    let second = args.against.map(|environment| desk.explain(environment));
    show::print(op, &first, second.transpose()?.as_ref(), args.format)?;
    Ok(Status::Done)
}

/// The operation, if the marks surround its batches.
fn explainable(args: &ExplainArgs) -> Result<Op, Failure> {
    for environment in std::iter::once(args.environment).chain(args.against) {
        if environment.clock() != Clock::Insn {
            let told = format!("{environment} is not on the instruction clock");
            let help = "instructions are counted in sim, sim/linux, sim/kvm and sim/qemu-kvm";
            return Err(Failure::new(told).help(help).status(Status::Usage));
        }
    }
    let op = Op::from_path(&args.operation);
    let marked = |op: &Op| {
        matches!(op.workload(), Workload::Basic | Workload::Exits) && *op != Op::TimerWake
    };
    op.filter(marked).ok_or_else(|| {
        let told = format!("'{}' cannot be explained", args.operation);
        let help = "name one operation of basic or exits, such as exits/port-out; timer-wake \
                    is no batch of work";
        Failure::new(told).help(help).status(Status::Usage)
    })
}

/// What explaining needs.
struct Desk {
    lab: Lab,
    interrupt: Interrupt,
    op: Op,
}

impl Desk {
    fn explain(&self, environment: EnvironmentId) -> Result<Explained, Failure> {
        if let Some(reason) = self.lab.why_not(environment) {
            return Err(Failure::new(format!("{environment}: {reason}")));
        }
        let bar = Bar::of_one(&format!("{} in {environment}", names::path(self.op)));
        let ledgers = self.ledgers(environment);
        bar.finish();
        let (ledger, again) = ledgers?;
        if ledger != again {
            let told = format!(
                "not deterministic: two runs of {} in {environment} gave different ledgers",
                names::path(self.op)
            );
            return Err(Failure::new(told).status(Status::Undetermined));
        }
        Ok(Explained {
            environment,
            ledger,
        })
    }

    /// The ledgers of two runs of the whole machine, side by side.
    fn ledgers(&self, environment: EnvironmentId) -> Result<(Ledger, Ledger), Failure> {
        let settings = self.lab.settings();
        let explained = |error: EnvError| self.interrupt.explain(&error);
        let plugin = Plugin::find(settings, wire::READY).map_err(explained)?;
        let plugins = [plugin.another().map_err(explained)?, plugin];
        let symbols = symbols::of(settings, environment, &self.watch(), &self.interrupt)?;
        let plan = expand(&self.request(environment));
        let runs = std::thread::scope(|scope| {
            let pairs = plan.boots.iter().zip(&plugins);
            let runs: Vec<_> = pairs
                .map(|(planned, plugin)| scope.spawn(|| self.run(planned, plugin)))
                .collect();
            runs.into_iter()
                .map(|run| run.join().expect("a run does not panic"))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let mut ledgers = runs
            .iter()
            .map(|run| self.ledger(environment, run, &symbols));
        match (ledgers.next(), ledgers.next()) {
            (Some(one), Some(other)) => Ok((one?, other?)),
            _ => Err(Failure::new("the plan has no second run to compare with")),
        }
    }

    fn watch(&self) -> Watch {
        Watch {
            patience: PATIENCE,
            stop: self.interrupt.flag(),
        }
    }

    fn request(&self, environment: EnvironmentId) -> Request {
        Request {
            environments: vec![environment],
            ready: vec![environment],
            operations: self.op.bit(),
            preset: Preset::Quick,
            boots: None,
            seed: 1,
        }
    }

    /// One run: what was measured and what was counted.
    fn run(
        &self,
        planned: &PlannedBoot,
        plugin: &Plugin,
    ) -> Result<(Observation, Vec<Window>), Failure> {
        let settings = Settings {
            plugin: Some(plugin.clone()),
            ..self.lab.settings().clone()
        };
        let explained = |error: EnvError| self.interrupt.explain(&error);
        let environments = trapline_environments::all(&settings);
        let found = environments.iter().find(|e| e.id() == planned.environment);
        let environment = found.ok_or_else(|| Failure::new("there is no such environment"))?;
        let image = self.lab.image().map_err(explained)?;
        let booted = boot(
            environment.as_ref(),
            &image,
            planned,
            &self.watch(),
            &mut |_| {},
        )
        .map_err(explained)?;
        if let Some(trouble) = booted.trouble {
            return Err(explained(trouble));
        }
        let text = plugin.written().map_err(explained)?;
        let windows = wire::read(&text).map_err(|error| Failure::from_error(&error))?;
        Ok((booted.observation, windows))
    }

    /// The ledger of the batch that stands for the run.
    fn ledger(
        &self,
        environment: EnvironmentId,
        (observation, windows): &(Observation, Vec<Window>),
        symbols: &Symbols,
    ) -> Result<Ledger, Failure> {
        let batches = self.batches(observation)?;
        if windows.len() < batches.len() {
            return Err(Failure::new(format!(
                "the guest measured {} batches, but marks were seen around {}",
                batches.len(),
                windows.len()
            ))
            .help("make build, so that image, agent and plugin are of one source"));
        }
        let machine = match environment {
            EnvironmentId::Sim => Machine::Bare,
            _ => Machine::Linux,
        };
        let middle = median(&batches);
        let account = |(batch, window): (&Batch, &Window)| {
            Ledger::new(batch, window, symbols, machine, mark::AROUND)
        };
        let pairs = batches.iter().zip(windows);
        let typical = pairs.filter(|(batch, _)| batch.figure() == middle);
        let ledgers: Vec<_> = typical.map(account).collect();
        let balanced = ledgers.iter().find(|ledger| ledger.residual == 0);
        let chosen = balanced.or(ledgers.first());
        chosen
            .cloned()
            .ok_or_else(|| Failure::new("no batch was measured"))
    }

    fn batches(&self, observation: &Observation) -> Result<Vec<Batch>, Failure> {
        let found = observation.operations.iter().find(|o| o.op == self.op);
        let outcome = found.map(|operation| &operation.outcome);
        let why_not = |reason: &str| {
            let (op, environment) = (names::path(self.op), observation.environment);
            Failure::new(format!("{op} is not measured in {environment}: {reason}"))
        };
        match outcome {
            Some(Outcome::Measured {
                clock_cost,
                loop_cost,
                samples,
                ..
            }) => Ok(samples
                .iter()
                .map(|sample| Batch {
                    ticks: sample.end.wrapping_sub(sample.start),
                    count: sample.count.max(1),
                    clock_cost: *clock_cost,
                    loop_cost: *loop_cost,
                })
                .collect()),
            Some(Outcome::Skipped(reason) | Outcome::Failed(reason)) => Err(why_not(reason)),
            None => Err(why_not("the guest did not tell what came of it")),
        }
    }
}

/// The figure in the middle, the lower of two: always one that a batch has.
fn median(batches: &[Batch]) -> f64 {
    let mut figures: Vec<_> = batches.iter().map(Batch::figure).collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len().saturating_sub(1) / 2;
    figures.get(middle).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_batch_of_its_own() {
        let batch = |ticks| Batch {
            ticks,
            count: 1,
            clock_cost: 0,
            loop_cost: 0,
        };
        assert_eq!(median(&[9, 1, 5, 7].map(batch)), 5.0);
        assert_eq!(median(&[]), 0.0);
    }
}
