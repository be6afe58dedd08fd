//! Series of figures from the runs of a store, in order of time.

use crate::exact::require_agreement;
use crate::sorted::Sorted;
use crate::value::Work;
use crate::verdict::boot_values;
use crate::{operations_of, outcomes, Value};
use std::collections::BTreeMap;
use std::rc::Rc;
use trapline_abi::Workload;
use trapline_model::observed::HOST_NOISE;
use trapline_model::{Clock, Config, Observation, Operation};

/// Facts of a host or an environment, by name.
pub(super) type Facts = BTreeMap<String, String>;

/// Facts that differ between boots and runs without a change of the system.
const VOLATILE: [&str; 3] = ["tsc mhz", "l1-start", "seed"];

/// Number and time of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTime {
    /// The number of the run.
    pub run: i64,
    /// Start of the run, in milliseconds since 1970 (UTC).
    pub at: u64,
}

/// Settings of a run that its figures depend on. Figures of runs that differ in these are
/// never in one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesSettings {
    /// Settings of all operations: the preset, and those of the machine.
    pub general: String,
    /// Further settings of workload irq.
    pub irq: String,
    /// Further settings of workload block.
    pub block: String,
    /// Further settings of packets.
    pub packets: String,
}

impl SeriesSettings {
    fn of(&self, op: impl Into<Operation>) -> String {
        let further = match op.into() {
            Operation::Packets(_) => self.packets.as_str(),
            op if op.is_of(Workload::Irq) => self.irq.as_str(),
            op if op.is_of(Workload::Block) => self.block.as_str(),
            _ => "",
        };
        let mut all = vec![self.general.as_str(), further];
        all.retain(|text| !text.is_empty());
        all.join(", ")
    }
}

/// One figure of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The run.
    pub moment: RunTime,
    /// The median, over boots, of each boot's figure ([`crate::verdict::BootValues::figure`]); on an
    /// exact clock, if its boots do not agree, the reason instead.
    pub figure: Result<f64, String>,
    pub(super) facts: Rc<Facts>,
}

/// The figures of one operation of one configuration, measured with the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The configuration.
    pub config: Config,
    /// The operation.
    pub op: Operation,
    /// The settings of its runs: preset, and others than the default.
    pub settings: String,
    /// The size of its work.
    pub work: Work,
    /// The figures, in order of time.
    pub entries: Vec<Entry>,
}

impl Series {
    /// Returns the clock of the figures.
    pub fn clock(&self) -> Clock {
        self.config.environment.clock()
    }
}

/// The key of a series: figures under equal keys are comparable.
type Key = (Config, Operation, String, Work);

/// Collects the series of a store, run by run.
#[derive(Clone, Debug, Default)]
pub struct SeriesBuilder {
    series: BTreeMap<Key, Vec<Entry>>,
}

impl SeriesBuilder {
    /// Adds a run, which began after those added before. Boots of an A/A control are left out.
    pub fn add(
        &mut self,
        moment: &RunTime,
        facts: &Facts,
        settings: &SeriesSettings,
        observations: &[Observation],
    ) {
        let mut boots: BTreeMap<Config, Vec<&Observation>> = BTreeMap::new();
        for boot in observations
            .iter()
            .filter(|boot| !boot.config.overrides.is_control)
        {
            boots.entry(boot.config.clone()).or_default().push(boot);
        }
        for (config, boots) in boots {
            let facts = Rc::new(merged(facts, boots[0]));
            for op in operations_of(boots.iter().copied()) {
                let clock = config.environment.clock();
                let Some((work, figure)) = figure(&boots, clock, op) else {
                    continue;
                };
                let key = (config.clone(), op, settings.of(op), work);
                self.series.entry(key).or_default().push(Entry {
                    moment: moment.clone(),
                    figure,
                    facts: Rc::clone(&facts),
                });
            }
        }
    }

    /// Returns all series, configurations in table order.
    pub fn series(self) -> Vec<Series> {
        let all = self.series.into_iter();
        all.map(|((config, op, settings, work), entries)| Series {
            config,
            op,
            settings,
            work,
            entries,
        })
        .collect()
    }
}

/// Returns the facts of a host and of an environment, which takes precedence, without volatile ones.
fn merged(host: &Facts, boot: &Observation) -> Facts {
    let mut facts = host.clone();
    facts.extend(boot.facts.clone());
    facts.retain(|name, _| !VOLATILE.contains(&name.as_str()) && !name.starts_with(HOST_NOISE));
    facts
}

/// Returns the figure of a run with its work; `None` if no boot measured the operation.
fn figure(
    boots: &[&Observation],
    clock: Clock,
    op: Operation,
) -> Option<(Work, Result<f64, String>)> {
    let all: Vec<_> = outcomes(boots.iter().copied(), op).collect();
    let mut outcomes = all.iter().map(|(_, outcome)| outcome);
    let work = Work::of(op, outcomes.find(|outcome| !outcome.batches().is_empty())?);
    if clock.is_exact() {
        if let Err(Value::Failed(failure)) = require_agreement(&all) {
            return Some((work, Err(failure.reason)));
        }
    }
    let boots = boot_values(boots.iter().copied(), op);
    let figures: Vec<f64> = boots.iter().filter_map(|boot| boot.figure(clock)).collect();
    Some((work, Ok(Sorted::new(figures)?.median())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{screen, Screened, Settings};
    use expect_test::expect;
    use trapline_abi::Op;
    use trapline_model::testing::{batches, measured};
    use trapline_model::EnvironmentId;

    fn boot(environment: EnvironmentId, ticks: u64) -> Observation {
        let outcome = measured(batches(&[ticks], 1));
        trapline_model::testing::boot(environment, 0, [(Op::PortOut, outcome)])
    }

    fn host(kernel: &str, tsc: &str) -> Facts {
        let facts = [("kernel", kernel), ("tsc mhz", tsc)];
        facts
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    fn moment(run: i64) -> RunTime {
        RunTime {
            run,
            at: 1_000 * run as u64,
        }
    }

    fn preset(name: &str) -> SeriesSettings {
        SeriesSettings {
            general: format!("preset {name}"),
            ..SeriesSettings::default()
        }
    }

    #[test]
    fn a_shift_lists_the_facts_that_changed_with_it() {
        let mut past = SeriesBuilder::default();
        for run in 0..6 {
            let later = run >= 4;
            let facts = host(if later { "6.2" } else { "6.1" }, &run.to_string());
            let ticks = if later { 3_300 } else { 3_264 };
            let mut control = boot(EnvironmentId::SIM_KVM, 1);
            control.config.overrides.is_control = true;
            let seen = [boot(EnvironmentId::SIM_KVM, ticks), control];
            past.add(&moment(run), &facts, &preset("quick"), &seen);
        }
        let screening = screen(past.series(), &Settings::default());
        let [Screened { series, shifts, .. }] = screening.series.as_slice() else {
            panic!("one series: {screening:?}");
        };
        assert_eq!((series.entries.len(), shifts.len()), (6, 1));
        assert_eq!(shifts[0].moment, moment(4));
        let point = shifts[0].point;
        assert_eq!((point.before, point.after), (3_264.0, 3_300.0));
        let kernel = ("kernel".to_owned(), "6.1".to_owned(), "6.2".to_owned());
        assert_eq!(shifts[0].changed, [kernel]);
        assert_eq!((screening.tested, screening.too_short), (0, 0));
    }

    #[test]
    fn presets_are_never_in_one_series() {
        let mut past = SeriesBuilder::default();
        for run in 0..6 {
            let name = if run % 2 == 0 { "quick" } else { "full" };
            let ticks = if run % 2 == 0 { 100 } else { 90 };
            let seen = [boot(EnvironmentId::SIM_KVM, ticks)];
            past.add(&moment(run), &Facts::new(), &preset(name), &seen);
        }
        let screening = screen(past.series(), &Settings::default());
        let found: Vec<_> = screening
            .series
            .iter()
            .map(|one| {
                (
                    one.series.settings.as_str(),
                    one.series.entries.len(),
                    one.shifts.len(),
                )
            })
            .collect();
        assert_eq!(found, [("preset full", 3, 0), ("preset quick", 3, 0)]);
    }

    #[test]
    fn settings_of_a_workload_separate_only_its_series() {
        let comparable = SeriesSettings {
            general: "preset quick".to_owned(),
            irq: "irq-period 1ms".to_owned(),
            block: String::new(),
            ..SeriesSettings::default()
        };
        assert_eq!(comparable.of(Op::PortOut), "preset quick");
        assert_eq!(comparable.of(Op::OwnTimer), "preset quick, irq-period 1ms");
        assert_eq!(SeriesSettings::default().of(Op::PortOut), "");
    }

    #[test]
    fn boots_that_disagree_on_an_exact_clock_give_no_figure() {
        let mut past = SeriesBuilder::default();
        for (run, ticks) in [(0, [100, 100]), (1, [100, 101]), (2, [101, 101])] {
            let mut seen = ticks.map(|ticks| boot(EnvironmentId::SIM_KVM, ticks));
            seen[1].replicate = 1;
            past.add(&moment(run), &Facts::new(), &preset("quick"), &seen);
        }
        let screening = screen(past.series(), &Settings::default());
        let Screened { series, shifts, .. } = &screening.series[0];
        let reason = series.entries[1].figure.as_ref().unwrap_err();
        expect!["not deterministic: boots 0 and 1 differ in 1 of 1 batches, first in batch 0: 100 insn for 1 and 101 insn for 1"].assert_eq(reason);
        assert_eq!(shifts.len(), 1);
        assert_eq!((shifts[0].moment.run, shifts[0].point.before), (2, 100.0));
    }

    #[test]
    fn series_of_the_wall_clock_need_six_runs() {
        let mut past = SeriesBuilder::default();
        for run in 0..6 {
            let mut seen = vec![boot(EnvironmentId::HOST, 100 + run as u64 % 2)];
            if run > 0 {
                seen.push(boot(EnvironmentId::KVM, 100));
            }
            past.add(&moment(run), &Facts::new(), &preset("quick"), &seen);
        }
        let screening = screen(past.series(), &Settings::default());
        assert_eq!((screening.tested, screening.too_short), (1, 1));
        assert!(screening.series.iter().all(|one| one.shifts.is_empty()));
    }
}
