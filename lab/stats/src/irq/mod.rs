//! Summary of workload `irq`: lateness of interrupts, missed expiries, latency by stage, and the latest
//! interrupts.
//!
//! An expiry without an interrupt of its own is missed. It counts as too late, even if the interrupt of
//! the next expiry is in time. On the wall clock the interrupts of all boots are pooled; on an exact clock
//! those of the first are used, which the others repeat.

mod boot;
mod histogram;
mod in_time;
mod lateness;
mod stages;

pub use histogram::{Bucket, DIGITS};
pub use in_time::{InTimeInterval, Proof, WindowCount};
pub use lateness::{ExpiryStats, Lateness};
pub use stages::{Point, Span, Stages};

use crate::{value, Sorted, Summary};
use boot::{boots, IrqBoot};
use trapline_abi::{CpuState, Interrupt, Op, Workload};
use trapline_model::irq::{Settings, Share};
use trapline_model::{Clock, Config, Observation};

/// Number of windows at the beginning of a boot that are shown separately: caches and predictors are cold.
pub const FIRST_WINDOWS: u64 = 2;

/// Number of latest interrupts that are kept with their stages.
const LATEST: usize = 10;

/// The interrupts of one operation in one environment. Times are in `unit`.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupts {
    /// The configuration.
    pub config: Config,
    /// The operation: a kind of timer.
    pub op: Op,
    /// Clock of the figures.
    pub clock: Clock,
    /// `ns` or `insn`.
    pub unit: &'static str,
    /// Number of boots; on an exact clock, of boots that agreed.
    pub boots: usize,
    /// Time from one expiry to the next.
    pub period: Option<f64>,
    /// Lateness above which an interrupt is too late.
    pub threshold: f64,
    /// All expiries.
    pub all: ExpiryStats,
    /// Expiries of the first windows of each boot.
    pub first: ExpiryStats,
    /// Expiries of the other windows, if any.
    pub rest: Option<ExpiryStats>,
    /// Each window, in order of time.
    pub windows: Vec<Window>,
    /// 95% intervals of the share of expiries served in time, over all windows including the first; `None`
    /// on an exact clock, on which every run gives the same count.
    pub in_time_interval: Option<InTimeInterval>,
    /// Latency by stage.
    pub stages: Stages,
    /// Lateness by interrupted code.
    pub found: Vec<(CpuState, ExpiryStats)>,
    /// The latest interrupts, the latest first.
    pub latest: Vec<LateInterrupt>,
    /// Uncertainty of the expiry times.
    pub due_uncertainty: DueUncertainty,
    /// Number of interrupts whose handler was entered before the expiry. Their lateness is 0.
    pub early: u64,
    /// Histogram of the lateness.
    pub histogram: Vec<Bucket>,
}

/// Uncertainty of expiry times: the time that setting the timer takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DueUncertainty {
    /// The median.
    pub p50: f64,
    /// The largest.
    pub max: f64,
}

/// A window: consecutive expiries between which the guest sent no records.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Number of the boot, from 0.
    pub boot: u32,
    /// Number within the boot, from 0.
    pub number: u64,
    /// The expiries.
    pub spread: ExpiryStats,
}

/// A late interrupt.
#[derive(Clone, Debug, PartialEq)]
pub struct LateInterrupt {
    /// Number of the boot, from 0.
    pub boot: u32,
    /// Number of the expiry, from 0.
    pub sequence: u64,
    /// Time from expiry to handler.
    pub lateness: f64,
    /// Timestamps relative to the expiry.
    pub points: Vec<(Point, f64)>,
    /// The interrupted code.
    pub found: CpuState,
}

impl Interrupts {
    /// Returns its name in tables and plots: the configuration and the timer.
    pub fn name(&self) -> String {
        let name = self.op.name();
        let timer = name.strip_suffix("-timer").unwrap_or(name);
        format!("{} {timer}", self.config)
    }

    /// Compares the share of expiries served in time with a requirement: by count on an exact clock, by
    /// the interval for bursts on the wall clock.
    pub fn proof(&self, share: Share) -> Proof {
        match (&self.in_time_interval, self.clock) {
            (Some(interval), _) => interval.proof(share),
            (None, Clock::Wall) => Proof::NotProven,
            (None, _) if share.is_met(self.all.in_time(), self.all.expiries) => Proof::Met,
            (None, _) => Proof::NotMet,
        }
    }
}

/// Summarises the interrupts of each operation of `summary` that has a figure.
pub fn summarise(
    observations: &[Observation],
    summary: &Summary,
    settings: &Settings,
) -> Vec<Interrupts> {
    let threshold = settings.threshold.0 as f64;
    let cells = summary.cells.iter();
    let measured = cells.filter(|cell| cell.op.is_of(Workload::Irq));
    let mut all: Vec<_> = measured
        .filter_map(|cell| {
            let (op, agreed) = (cell.op.guest()?, cell.value.figure()?.boots);
            let boots = boots(observations, &cell.config, op);
            Some(of_boots(&boots, agreed, &cell.config, op, threshold))
        })
        .collect();
    all.sort_by(|a, b| (&a.config, a.op).cmp(&(&b.config, b.op)));
    all
}

fn of_boots(
    boots: &[IrqBoot<'_>],
    agreed: usize,
    config: &Config,
    op: Op,
    threshold: f64,
) -> Interrupts {
    let clock = config.clock();
    let lateness: Vec<f64> = each(boots).map(|(boot, i)| boot.lateness(i)).collect();
    let expiries = boots.iter().map(IrqBoot::expiries).sum();
    let windows = windows(boots, threshold);
    let is_first = |number| number < FIRST_WINDOWS;
    let interval = || InTimeInterval::of(&counts(&windows));
    Interrupts {
        config: config.clone(),
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
        all: ExpiryStats::of(expiries, lateness, threshold),
        in_time_interval: if clock.is_exact() { None } else { interval() },
        first: some_windows(boots, threshold, is_first).unwrap_or_default(),
        rest: some_windows(boots, threshold, |number| !is_first(number)),
        windows,
        stages: Stages::of(boots),
        found: by_found(boots, threshold),
        latest: latest(boots),
        due_uncertainty: DueUncertainty::of(
            each(boots)
                .map(|(boot, i)| boot.units(i.uncertainty as i64))
                .collect(),
        ),
        early: each(boots).filter(|(_, i)| i.entered < i.due).count() as u64,
    }
}

/// Returns each interrupt with its boot.
fn each<'a>(boots: &'a [IrqBoot<'a>]) -> impl Iterator<Item = (&'a IrqBoot<'a>, &'a Interrupt)> {
    let boots = boots.iter();
    boots.flat_map(|boot| {
        boot.interrupts
            .iter()
            .map(move |interrupt| (boot, interrupt))
    })
}

fn counts(windows: &[Window]) -> Vec<WindowCount> {
    let count = |window: &Window| WindowCount {
        boot: window.boot,
        expiries: window.spread.expiries,
        late: window.spread.too_late(),
    };
    windows.iter().map(count).collect()
}

impl DueUncertainty {
    fn of(values: Vec<f64>) -> Self {
        Sorted::new(values).map_or_else(Self::default, |sorted| Self {
            p50: sorted.nearest_rank(50_000),
            max: sorted.max(),
        })
    }
}

fn windows(boots: &[IrqBoot<'_>], threshold: f64) -> Vec<Window> {
    let mut windows = Vec::new();
    for boot in boots {
        windows.extend(boot.windows().map(|(number, expiries, interrupts)| {
            let lateness = interrupts.iter().map(|i| boot.lateness(i)).collect();
            Window {
                boot: boot.number,
                number,
                spread: ExpiryStats::of(expiries, lateness, threshold),
            }
        }));
    }
    windows
}

/// Pools the windows of all boots whose number is `wanted`; `None` if there is none.
fn some_windows(
    boots: &[IrqBoot<'_>],
    threshold: f64,
    wanted: impl Fn(u64) -> bool,
) -> Option<ExpiryStats> {
    let (mut expiries, mut lateness) = (0, Vec::new());
    for boot in boots {
        for (_, of_window, interrupts) in boot.windows().filter(|(number, ..)| wanted(*number)) {
            expiries += of_window;
            lateness.extend(interrupts.iter().map(|i| boot.lateness(i)));
        }
    }
    (expiries > 0).then(|| ExpiryStats::of(expiries, lateness, threshold))
}

fn by_found(boots: &[IrqBoot<'_>], threshold: f64) -> Vec<(CpuState, ExpiryStats)> {
    let of = |found| {
        let such = each(boots).filter(|(_, i)| i.found == found);
        let lateness: Vec<f64> = such.map(|(boot, i)| boot.lateness(i)).collect();
        let count = lateness.len() as u64;
        (count > 0).then(|| (found, ExpiryStats::of(count, lateness, threshold)))
    };
    CpuState::ALL.into_iter().filter_map(of).collect()
}

/// Returns the latest interrupts; of equally late ones the first in order of time.
fn latest(boots: &[IrqBoot<'_>]) -> Vec<LateInterrupt> {
    let mut all: Vec<_> = each(boots)
        .map(|(boot, i)| (boot.lateness(i), boot, i))
        .collect();
    all.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    all.truncate(LATEST);
    all.into_iter()
        .map(|(lateness, boot, interrupt)| late_interrupt(lateness, boot, interrupt))
        .collect()
}

fn late_interrupt(lateness: f64, boot: &IrqBoot<'_>, interrupt: &Interrupt) -> LateInterrupt {
    let since_due = |point: Point| {
        let at = point.of(interrupt)?;
        Some((point, boot.units(at.wrapping_sub(interrupt.due) as i64)))
    };
    LateInterrupt {
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
