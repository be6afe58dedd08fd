//! The runs of a store, in order of time, as series of figures.

use crate::cell::Told;
use crate::exact::require_agreement;
use crate::judge::boots_of;
use crate::spread::Sorted;
use crate::value::Work;
use crate::Value;
use std::collections::BTreeMap;
use std::rc::Rc;
use trapline_abi::{Op, Workload};
use trapline_model::observed::UNREST;
use trapline_model::{Clock, Contender, Observation};

/// Facts of a host or an environment, by name.
pub(super) type Facts = BTreeMap<String, String>;

/// Facts that differ from boot to boot and from run to run without a change.
const BY_CHANCE: [&str; 3] = ["tsc mhz", "l1-start", "seed"];

/// The time of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The number of the run.
    pub run: i64,
    /// When it began, in milliseconds since 1970 (UTC).
    pub at: u64,
}

/// Settings of a run that its figures depend on. Figures of runs that differ in these are
/// never in one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparable {
    /// Settings of all operations: the preset, and those of the machine.
    pub general: String,
    /// Further settings of workload irq.
    pub irq: String,
    /// Further settings of workload block.
    pub block: String,
}

impl Comparable {
    fn of(&self, op: Op) -> String {
        let further = match op.workload() {
            Workload::Irq => self.irq.as_str(),
            Workload::Block => self.block.as_str(),
            _ => "",
        };
        let all = [self.general.as_str(), further];
        let all: Vec<&str> = all.into_iter().filter(|text| !text.is_empty()).collect();
        all.join(", ")
    }
}

/// One figure of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When it was measured.
    pub moment: Moment,
    /// The median, over boots, of each boot's figure ([`crate::judge::BootValues::figure`]); on an exact
    /// clock, if its boots do not agree, the reason instead.
    pub figure: Result<f64, String>,
    pub(super) facts: Rc<Facts>,
}

/// The figures of one operation of one contender, measured with the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The contender.
    pub contender: Contender,
    /// The operation.
    pub op: Op,
    /// The settings of its runs: preset, and others than the default.
    pub settings: String,
    /// The size of its work.
    pub work: Work,
    /// The figures, in order of time.
    pub entries: Vec<Entry>,
}

impl Series {
    /// The clock of its figures.
    pub fn clock(&self) -> Clock {
        self.contender.environment.clock()
    }
}

/// The key of a series: figures under equal keys are comparable.
type Key = (Contender, Op, String, Work);

/// All series of a store.
#[derive(Clone, Debug, Default)]
pub struct Past {
    series: BTreeMap<Key, Vec<Entry>>,
}

impl Past {
    /// Adds a run, which began after those added before. Repeated measurements of an A/A
    /// control are left out.
    pub fn add(
        &mut self,
        moment: &Moment,
        facts: &Facts,
        settings: &Comparable,
        observations: &[Observation],
    ) {
        let mut boots: BTreeMap<Contender, Vec<&Observation>> = BTreeMap::new();
        for seen in observations.iter().filter(|seen| !seen.variant.again) {
            boots.entry(seen.contender()).or_default().push(seen);
        }
        for (contender, boots) in boots {
            let facts = Rc::new(merged(facts, boots[0]));
            for op in Op::ALL {
                let clock = contender.environment.clock();
                let Some((work, figure)) = figure(&boots, clock, op) else {
                    continue;
                };
                let key = (contender.clone(), op, settings.of(op), work);
                self.series.entry(key).or_default().push(Entry {
                    moment: moment.clone(),
                    figure,
                    facts: Rc::clone(&facts),
                });
            }
        }
    }

    /// Returns every series, contenders in table order.
    pub fn series(self) -> Vec<Series> {
        let all = self.series.into_iter();
        all.map(|((contender, op, settings, work), entries)| Series {
            contender,
            op,
            settings,
            work,
            entries,
        })
        .collect()
    }
}

/// A host's facts, and those of an environment, which precede where both have one.
fn merged(host: &Facts, boot: &Observation) -> Facts {
    let mut facts = host.clone();
    facts.extend(boot.facts.clone());
    facts.retain(|name, _| !BY_CHANCE.contains(&name.as_str()) && !name.starts_with(UNREST));
    facts
}

/// The figure of a run with its work; `None` if no boot measured the operation.
fn figure(boots: &[&Observation], clock: Clock, op: Op) -> Option<(Work, Result<f64, String>)> {
    let told: Vec<Told<'_>> = boots
        .iter()
        .flat_map(|seen| seen.operations.iter().map(|operation| (*seen, operation)))
        .filter(|(_, operation)| operation.op == op)
        .map(|(seen, operation)| Told::new(seen, operation))
        .collect();
    let mut batches = told.iter().map(|told| told.outcome.batches());
    let work = Work::of(op, &batches.find(|batches| !batches.is_empty())?);
    if clock.is_exact() {
        if let Err(Value::Failed(failure)) = require_agreement(&told) {
            return Some((work, Err(failure.reason)));
        }
    }
    let boots = boots_of(boots.iter().copied(), op);
    let figures: Vec<f64> = boots.iter().filter_map(|boot| boot.figure(clock)).collect();
    Some((work, Ok(Sorted::new(figures)?.median())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{screen, Screened, Settings};
    use trapline_model::{EnvironmentId, Operation, Outcome, Sample};

    fn boot(environment: EnvironmentId, ticks: u64, qemu: &str) -> Observation {
        let sample = Sample {
            start: 0,
            end: ticks,
            count: 1,
            host_ns: None,
        };
        Observation {
            environment,
            variant: Default::default(),
            clock: environment.clock(),
            replicate: 0,
            unit_per_tick: 1.0,
            operations: vec![Operation {
                op: Op::PortOut,
                outcome: Outcome::Measured {
                    clock_cost: 0,
                    loop_cost: 0,
                    samples: vec![sample],
                    interrupts: Vec::new(),
                    check: 1,
                    exits: None,
                    host_cpu_ns: None,
                    elapsed: None,
                },
            }],
            launches: Vec::new(),
            facts: BTreeMap::from([("qemu".to_owned(), qemu.to_owned())]),
            log: String::new(),
            problems: Vec::new(),
        }
    }

    fn host(kernel: &str, tsc: &str) -> Facts {
        let facts = [("kernel", kernel), ("tsc mhz", tsc)];
        facts
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    fn moment(run: i64) -> Moment {
        Moment {
            run,
            at: 1_000 * run as u64,
        }
    }

    fn preset(name: &str) -> Comparable {
        Comparable {
            general: format!("preset {name}"),
            ..Comparable::default()
        }
    }

    #[test]
    fn a_shift_has_the_facts_that_changed_there() {
        let mut past = Past::default();
        for run in 0..6 {
            let later = run >= 4;
            let facts = host(if later { "6.2" } else { "6.1" }, &run.to_string());
            let ticks = if later { 3_300 } else { 3_264 };
            let mut again = boot(EnvironmentId::SimKvm, 1, "9");
            again.variant.again = true;
            let seen = [boot(EnvironmentId::SimKvm, ticks, "9"), again];
            past.add(&moment(run), &facts, &preset("quick"), &seen);
        }
        let screening = screen(past.series(), &Settings::default());
        let [Screened { series, shifts }] = screening.series.as_slice() else {
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
        let mut past = Past::default();
        for run in 0..6 {
            let name = if run % 2 == 0 { "quick" } else { "full" };
            let ticks = if run % 2 == 0 { 100 } else { 90 };
            let seen = [boot(EnvironmentId::SimKvm, ticks, "9")];
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
    fn settings_of_a_workload_divide_only_its_series() {
        let comparable = Comparable {
            general: "preset quick".to_owned(),
            irq: "irq-period 1ms".to_owned(),
            block: String::new(),
        };
        assert_eq!(comparable.of(Op::PortOut), "preset quick");
        assert_eq!(comparable.of(Op::OwnTimer), "preset quick, irq-period 1ms");
        assert_eq!(Comparable::default().of(Op::PortOut), "");
    }

    #[test]
    fn boots_that_disagree_on_an_exact_clock_give_no_figure() {
        let mut past = Past::default();
        for (run, ticks) in [(0, [100, 100]), (1, [100, 101]), (2, [101, 101])] {
            let mut seen = ticks.map(|ticks| boot(EnvironmentId::SimKvm, ticks, "9"));
            seen[1].replicate = 1;
            past.add(&moment(run), &Facts::new(), &preset("quick"), &seen);
        }
        let screening = screen(past.series(), &Settings::default());
        let Screened { series, shifts } = &screening.series[0];
        let reason = series.entries[1].figure.as_ref().unwrap_err();
        assert!(
            reason.starts_with("not deterministic: boots 0 and 1 differ"),
            "{reason}"
        );
        assert_eq!(shifts.len(), 1);
        assert_eq!((shifts[0].moment.run, shifts[0].point.before), (2, 100.0));
    }

    #[test]
    fn series_of_the_wall_clock_need_six_runs() {
        let mut past = Past::default();
        for run in 0..6 {
            let mut seen = vec![boot(EnvironmentId::Host, 100 + run as u64 % 2, "9")];
            if run > 0 {
                seen.push(boot(EnvironmentId::Kvm, 100, "9"));
            }
            past.add(&moment(run), &Facts::new(), &preset("quick"), &seen);
        }
        let screening = screen(past.series(), &Settings::default());
        assert_eq!((screening.tested, screening.too_short), (1, 1));
        assert!(screening.series.iter().all(|one| one.shifts.is_empty()));
    }
}
