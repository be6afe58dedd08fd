//! What the interrupts of workload `irq` say: how late they were, how many were missed,
//! at which stage the time went, and what the latest of them had met.
//!
//! An expiry that has no interrupt of its own was missed. It counts as one that came
//! too late, never as one of the next expiry that came in time. On the wall clock the
//! interrupts of all boots are taken together; on an exact clock those of the first,
//! which all others repeat.

mod bound;
mod histogram;
mod share;
mod spread;
mod stages;

pub use histogram::{Bucket, DIGITS};
pub use share::{InTimeInterval, Proof, WindowCount};
pub use spread::{least_count, Lateness, Spread};
pub use stages::{Point, Span, Stages};

use crate::{value, Summary};
use trapline_abi::interrupt::WINDOW;
use trapline_abi::{Found, Interrupt, Op, Workload};
use trapline_model::irq::{Asked, Settings, Share};
use trapline_model::{Clock, EnvironmentId, Observation, Outcome};

/// Windows at the beginning that are shown apart: caches and predictors are cold then.
pub const FIRST_WINDOWS: u64 = 2;

/// Latest interrupts that are kept with their stages.
const LATEST: usize = 10;

/// The interrupts of one operation in one environment. Times are in `unit`.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupts {
    /// Where.
    pub environment: EnvironmentId,
    /// Of which timer.
    pub op: Op,
    /// By which clock.
    pub clock: Clock,
    /// `ns` or `insn`.
    pub unit: &'static str,
    /// Boots that they are of; on an exact clock those that agreed.
    pub boots: usize,
    /// From one expiry to the next.
    pub period: Option<f64>,
    /// An interrupt later than this is too late.
    pub threshold: f64,
    /// How late they were.
    pub all: Spread,
    /// Those of the first windows of each boot.
    pub first: Spread,
    /// All others, if there were more windows.
    pub rest: Option<Spread>,
    /// Each window, in order of time.
    pub windows: Vec<Window>,
    /// 95% intervals of the share of expiries served in time, over all windows, the first
    /// included; `None` on an exact clock, where every run gives the same count.
    pub in_time_interval: Option<InTimeInterval>,
    /// Where the time went.
    pub stages: Stages,
    /// What was interrupted, and how late interrupts of that were.
    pub found: Vec<(Found, Spread)>,
    /// The latest of all, the latest first.
    pub latest: Vec<Late>,
    /// By how much a timer may have been due later than it says.
    pub doubt: Doubt,
    /// Interrupts whose handler was entered before the timer was due. Their lateness
    /// is 0.
    pub early: u64,
    /// How many were how late.
    pub histogram: Vec<Bucket>,
}

/// By how much a timer may have been due later than it says: what setting it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Doubt {
    /// In half of all cases it is not more.
    pub p50: f64,
    /// The most.
    pub max: f64,
}

/// A window: expiries between which the guest said nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Of which boot, from 0.
    pub boot: u32,
    /// Which, from 0.
    pub number: u64,
    /// How late its interrupts were.
    pub spread: Spread,
}

/// One interrupt that was late.
#[derive(Clone, Debug, PartialEq)]
pub struct Late {
    /// Of which boot, from 0.
    pub boot: u32,
    /// Of which expiry, from 0.
    pub sequence: u64,
    /// How late it was.
    pub lateness: f64,
    /// When it came to which point, since it was due.
    pub points: Vec<(Point, f64)>,
    /// What it found.
    pub found: Found,
}

impl Interrupts {
    /// Returns whether the share of expiries served in time is at least `share`: by count on
    /// an exact clock, by the interval for bursts on the wall clock.
    pub fn proof(&self, share: Share) -> Proof {
        match (&self.in_time_interval, self.clock) {
            (Some(interval), _) => interval.proof(share),
            (None, Clock::Wall) => Proof::NotProven,
            (None, _) if share.is_met(self.all.in_time(), self.all.expiries) => Proof::Met,
            (None, _) => Proof::NotMet,
        }
    }
}

/// What the interrupts of `observations` say, for each operation of `summary` that has
/// a figure.
pub fn summarise(
    observations: &[Observation],
    summary: &Summary,
    settings: &Settings,
) -> Vec<Interrupts> {
    let measured = summary.cells.iter().filter(|cell| {
        let has_figure = cell.value.figure().is_some();
        cell.op.workload() == Workload::Irq && has_figure
    });
    let mut all: Vec<_> = measured
        .filter_map(|cell| {
            let figure = cell.value.figure()?;
            let boots = boots(observations, cell.environment, cell.op);
            Some(of_boots(
                &boots,
                figure.boots,
                cell.environment,
                cell.op,
                settings,
            ))
        })
        .collect();
    all.sort_by_key(|interrupts| (interrupts.environment, interrupts.op));
    all
}

/// What one boot told.
struct Boot<'a> {
    number: u32,
    unit_per_tick: f64,
    /// What it was asked for.
    asked: Option<Asked>,
    interrupts: &'a [Interrupt],
}

impl Boot<'_> {
    /// How many expiries there were; where nobody knows, up to the last that was told.
    fn expiries(&self) -> u64 {
        let told = self.interrupts.last().map_or(0, |last| last.sequence + 1);
        self.asked
            .map_or(told, |asked| asked.expiries.into())
            .max(told)
    }

    /// Ticks in the unit of its figures.
    fn units(&self, ticks: i64) -> f64 {
        ticks as f64 * self.unit_per_tick
    }

    /// How late an interrupt was.
    fn lateness(&self, interrupt: &Interrupt) -> f64 {
        let ticks = interrupt.entered.wrapping_sub(interrupt.due) as i64;
        self.units(ticks.max(0))
    }

    /// Runs of expiries that were late or missed.
    fn late_runs(&self, threshold: f64) -> u64 {
        let (mut runs, mut next, mut is_late) = (0, 0, false);
        let end = (self.expiries(), false);
        let served = self.interrupts.iter();
        let served = served.map(|i| (i.sequence, self.lateness(i) > threshold));
        for (sequence, late) in served.chain([end]) {
            let missed = sequence > next;
            runs += u64::from(!is_late && (missed || late));
            is_late = late;
            // A late one behind missed ones goes on with their run.
            next = sequence + 1;
        }
        runs
    }

    /// Its windows: number, expiries and interrupts of each.
    fn windows(&self) -> impl Iterator<Item = (u64, u64, &[Interrupt])> {
        let (window, expiries) = (u64::from(WINDOW), self.expiries());
        (0..expiries.div_ceil(window)).map(move |number| {
            let (from, to) = (number * window, expiries.min((number + 1) * window));
            let begin = self.interrupts.partition_point(|i| i.sequence < from);
            let end = self.interrupts.partition_point(|i| i.sequence < to);
            (number, to - from, &self.interrupts[begin..end])
        })
    }
}

fn boots(observations: &[Observation], environment: EnvironmentId, op: Op) -> Vec<Boot<'_>> {
    let mut boots = Vec::new();
    let here = observations
        .iter()
        .filter(|seen| seen.environment == environment);
    for seen in here {
        for operation in seen
            .operations
            .iter()
            .filter(|operation| operation.op == op)
        {
            if let Outcome::Measured { interrupts, .. } = &operation.outcome {
                boots.push(Boot {
                    number: seen.replicate,
                    unit_per_tick: seen.unit_per_tick,
                    asked: Asked::from_facts(&seen.facts),
                    interrupts,
                });
            }
        }
    }
    boots.sort_by_key(|boot| boot.number);
    if environment.clock().is_exact() {
        boots.truncate(1);
    }
    boots
}

fn of_boots(
    boots: &[Boot<'_>],
    agreed: usize,
    environment: EnvironmentId,
    op: Op,
    settings: &Settings,
) -> Interrupts {
    let clock = environment.clock();
    let threshold = settings.threshold.0 as f64;
    let each = || {
        boots
            .iter()
            .flat_map(|boot| boot.interrupts.iter().map(move |i| (boot, i)))
    };
    let lateness: Vec<f64> = each().map(|(boot, i)| boot.lateness(i)).collect();
    let expiries = boots.iter().map(Boot::expiries).sum();
    let windows = windows(boots, threshold);
    let is_first = |number| number < FIRST_WINDOWS;
    Interrupts {
        environment,
        op,
        clock,
        unit: value::unit(op, clock),
        boots: agreed,
        period: boots.first().and_then(|boot| {
            let asked = boot.asked?;
            Some(boot.units(asked.period as i64))
        }),
        threshold,
        histogram: histogram::buckets(&lateness),
        all: Spread::of(expiries, lateness, threshold),
        in_time_interval: match clock {
            Clock::Wall => InTimeInterval::of(&counts(&windows), late_runs(boots, threshold)),
            Clock::Insn | Clock::InsnVmx => None,
        },
        first: some_windows(boots, threshold, is_first).unwrap_or_default(),
        rest: some_windows(boots, threshold, |number| !is_first(number)),
        windows,
        stages: Stages::of(boots),
        found: found(boots, threshold),
        latest: latest(boots),
        doubt: Doubt::of(each().map(|(boot, i)| boot.units(i.doubt as i64)).collect()),
        early: each().filter(|(_, i)| i.entered < i.due).count() as u64,
    }
}

fn counts(windows: &[Window]) -> Vec<WindowCount> {
    let count = |window: &Window| WindowCount {
        boot: window.boot,
        expiries: window.spread.expiries,
        late: window.spread.too_late(),
    };
    windows.iter().map(count).collect()
}

/// Returns the number of runs of expiries that were late or missed, without one in time
/// between them.
fn late_runs(boots: &[Boot<'_>], threshold: f64) -> u64 {
    boots.iter().map(|boot| boot.late_runs(threshold)).sum()
}

impl Doubt {
    fn of(mut doubts: Vec<f64>) -> Self {
        doubts.sort_by(f64::total_cmp);
        doubts.last().map_or_else(Self::default, |max| Self {
            p50: spread::nearest_rank(&doubts, 50_000),
            max: *max,
        })
    }
}

fn windows(boots: &[Boot<'_>], threshold: f64) -> Vec<Window> {
    let mut windows = Vec::new();
    for boot in boots {
        windows.extend(boot.windows().map(|(number, expiries, interrupts)| {
            let lateness = interrupts.iter().map(|i| boot.lateness(i)).collect();
            Window {
                boot: boot.number,
                number,
                spread: Spread::of(expiries, lateness, threshold),
            }
        }));
    }
    windows
}

/// The windows of all boots whose number is `wanted`; `None` if there is none.
fn some_windows(
    boots: &[Boot<'_>],
    threshold: f64,
    wanted: impl Fn(u64) -> bool,
) -> Option<Spread> {
    let (mut expiries, mut lateness) = (0, Vec::new());
    for boot in boots {
        for (number, of_window, interrupts) in boot.windows() {
            if wanted(number) {
                expiries += of_window;
                lateness.extend(interrupts.iter().map(|i| boot.lateness(i)));
            }
        }
    }
    (expiries > 0).then(|| Spread::of(expiries, lateness, threshold))
}

fn found(boots: &[Boot<'_>], threshold: f64) -> Vec<(Found, Spread)> {
    let of = |found| {
        let mut lateness = Vec::new();
        for boot in boots {
            let such = boot.interrupts.iter().filter(|i| i.found == found);
            lateness.extend(such.map(|i| boot.lateness(i)));
        }
        let count = lateness.len() as u64;
        (count > 0).then(|| (found, Spread::of(count, lateness, threshold)))
    };
    Found::ALL.into_iter().filter_map(of).collect()
}

fn latest(boots: &[Boot<'_>]) -> Vec<Late> {
    let mut all = Vec::new();
    for boot in boots {
        all.extend(boot.interrupts.iter().map(|i| (boot.lateness(i), boot, i)));
    }
    // Of those that were equally late the first that came.
    all.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    all.truncate(LATEST);
    all.into_iter()
        .map(|(lateness, boot, interrupt)| late(lateness, boot, interrupt))
        .collect()
}

fn late(lateness: f64, boot: &Boot<'_>, interrupt: &Interrupt) -> Late {
    let since_due = |point: Point| {
        let at = point.of(interrupt)?;
        Some((point, boot.units(at.wrapping_sub(interrupt.due) as i64)))
    };
    Late {
        boot: boot.number,
        sequence: interrupt.sequence,
        lateness,
        points: Point::ALL
            .into_iter()
            .skip(1)
            .filter_map(since_due)
            .collect(),
        found: interrupt.found,
    }
}
