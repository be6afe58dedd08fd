//! The runs of a store, in order of time, as series of figures: one for each operation of
//! each contender.

use super::{change_points, ChangePoint, Settings};
use crate::judge::boots_of;
use crate::spread::Sorted;
use std::collections::BTreeMap;
use std::rc::Rc;
use trapline_abi::Op;
use trapline_plan::observed::UNREST;
use trapline_plan::{Clock, Contender, Observation};

/// What is known of a host or an environment, by name.
type Facts = BTreeMap<String, String>;

/// Facts that differ from boot to boot and from run to run without anything having changed.
const BY_CHANCE: [&str; 3] = ["tsc mhz", "l1-start", "seed"];

/// When a figure was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The number of the run.
    pub run: i64,
    /// When it began, in milliseconds since 1970 (UTC).
    pub at: u64,
}

/// One figure of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When it was measured.
    pub moment: Moment,
    /// The median, over boots, of each boot's figure ([`crate::judge::BootValues::figure`]).
    pub figure: f64,
    facts: Rc<Facts>,
}

/// What the runs say of one operation of one contender.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Who.
    pub contender: Contender,
    /// What.
    pub op: Op,
    /// The figures, in order of time.
    pub entries: Vec<Entry>,
}

/// Where a series shifted, and what else was different from there on.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// The shift.
    pub point: ChangePoint,
    /// The first run of the new level.
    pub moment: Moment,
    /// The facts that changed there: name, before, after.
    pub changed: Vec<(String, String, String)>,
}

/// All series of a store.
#[derive(Clone, Debug, Default)]
pub struct Past {
    series: BTreeMap<(Contender, Op), Vec<Entry>>,
}

impl Past {
    /// Adds a run. Runs come in order of time. What was measured again only to see what
    /// chance does is no figure.
    pub fn add(&mut self, moment: &Moment, facts: &Facts, observations: &[Observation]) {
        let mut boots: BTreeMap<Contender, Vec<&Observation>> = BTreeMap::new();
        for seen in observations.iter().filter(|seen| !seen.variant.again) {
            boots.entry(seen.contender()).or_default().push(seen);
        }
        for (contender, boots) in boots {
            let facts = Rc::new(merged(facts, boots[0]));
            for op in Op::ALL {
                let Some(figure) = figure(&boots, contender.environment.clock(), op) else {
                    continue;
                };
                let series = self.series.entry((contender.clone(), op)).or_default();
                series.push(Entry {
                    moment: moment.clone(),
                    figure,
                    facts: Rc::clone(&facts),
                });
            }
        }
    }

    /// Every series, contenders in table order.
    pub fn series(self) -> Vec<Series> {
        let all = self.series.into_iter();
        all.map(|((contender, op), entries)| Series {
            contender,
            op,
            entries,
        })
        .collect()
    }
}

impl Series {
    /// Where it shifted.
    pub fn shifts(&self, settings: &Settings) -> Vec<Shift> {
        let figures: Vec<f64> = self.entries.iter().map(|entry| entry.figure).collect();
        let clock = self.contender.environment.clock();
        let points = change_points(&figures, clock, settings).into_iter();
        points.map(|point| self.shift(point)).collect()
    }

    fn shift(&self, point: ChangePoint) -> Shift {
        let (before, after) = (&self.entries[point.index - 1], &self.entries[point.index]);
        Shift {
            moment: after.moment.clone(),
            changed: changed(&before.facts, &after.facts),
            point,
        }
    }
}

/// A host's facts, and those of an environment there, which come first where both say it.
fn merged(host: &Facts, boot: &Observation) -> Facts {
    let mut facts = host.clone();
    facts.extend(boot.facts.clone());
    facts.retain(|name, _| !BY_CHANCE.contains(&name.as_str()) && !name.starts_with(UNREST));
    facts
}

fn figure(boots: &[&Observation], clock: Clock, op: Op) -> Option<f64> {
    let boots = boots_of(boots.iter().copied(), op);
    let figures: Vec<f64> = boots.iter().filter_map(|boot| boot.figure(clock)).collect();
    Sorted::new(figures).map(|sorted| sorted.median())
}

fn changed(before: &Facts, after: &Facts) -> Vec<(String, String, String)> {
    let names = before
        .keys()
        .chain(after.keys().filter(|name| !before.contains_key(*name)));
    let told = |facts: &Facts, name: &str| facts.get(name).cloned().unwrap_or_default();
    names
        .map(|name| (name.clone(), told(before, name), told(after, name)))
        .filter(|(_, before, after)| before != after)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_plan::{EnvironmentId, Operation, Outcome, Sample};

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

    #[test]
    fn a_shift_has_the_facts_that_changed_there() {
        let mut past = Past::default();
        for run in 0..6 {
            let later = run >= 4;
            let moment = Moment {
                run,
                at: 1_000 * run as u64,
            };
            let facts = host(if later { "6.2" } else { "6.1" }, &run.to_string());
            let ticks = if later { 3_300 } else { 3_264 };
            let mut again = boot(EnvironmentId::SimKvm, 1, "9");
            again.variant.again = true;
            let seen = [boot(EnvironmentId::SimKvm, ticks, "9"), again];
            past.add(&moment, &facts, &seen);
        }
        let series = past.series();
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].entries.len(), 6);
        let shifts = series[0].shifts(&Settings::default());
        assert_eq!(shifts.len(), 1);
        assert_eq!(shifts[0].moment, Moment { run: 4, at: 4_000 });
        assert_eq!(
            (shifts[0].point.before, shifts[0].point.after),
            (3_264.0, 3_300.0)
        );
        let kernel = ("kernel".to_owned(), "6.1".to_owned(), "6.2".to_owned());
        assert_eq!(shifts[0].changed, [kernel]);
    }
}
