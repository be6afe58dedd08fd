//! Where the time of an interrupt goes: from when it was due, over who raises it, to
//! the thread behind its handler.
//!
//! What nobody stamped is left out, and the span goes on to the next point that
//! somebody did. So the spans of an interrupt always add up to the whole of it.

use super::spread::{nearest_rank, percentile};
use super::Boot;
use trapline_abi::Interrupt;

/// A point on the way of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// The timer was due.
    Due,
    /// Whoever raises the interrupt ran.
    Woke,
    /// It was pending for the guest.
    Marked,
    /// The guest's handler was entered.
    Entered,
    /// The handler was done.
    Done,
    /// The thread behind it ran.
    Resumed,
}

impl Point {
    /// Every point, in order of time.
    pub const ALL: [Point; 6] = [
        Self::Due,
        Self::Woke,
        Self::Marked,
        Self::Entered,
        Self::Done,
        Self::Resumed,
    ];

    /// The name people read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Woke => "woke",
            Self::Marked => "marked",
            Self::Entered => "entered",
            Self::Done => "done",
            Self::Resumed => "resumed",
        }
    }

    /// When an interrupt came to it, in ticks, if that was told.
    pub(super) fn of(self, interrupt: &Interrupt) -> Option<u64> {
        match self {
            Self::Due => Some(interrupt.due),
            Self::Woke => interrupt.woke,
            Self::Marked => interrupt.marked,
            Self::Entered => Some(interrupt.entered),
            Self::Done => Some(interrupt.done),
            Self::Resumed => Some(interrupt.resumed),
        }
    }
}

/// The largest share that sums of as many means as there are spans, of numbers of 53 bits,
/// may differ by without meaning anything.
const ROUNDING: f64 = 1e-12;

/// Where the time went.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    /// From each point that was told to the next, in order of time.
    pub spans: Vec<Span>,
    /// From the first point to the last.
    pub total: Span,
    /// Points that were not told.
    pub untold: Vec<Point>,
    /// Interrupts that seem to have come to a point before an earlier one.
    pub disordered: u64,
    /// Interrupts whose host woke before they were due, as one does that sets its own timer
    /// ahead of its guest's.
    pub ahead: u64,
}

/// From one point to another, in the unit of the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// From this point.
    pub from: Point,
    /// To this one.
    pub to: Point,
    /// The mean: means of spans add up, as medians do not.
    pub mean: f64,
    /// The median (nearest rank).
    pub p50: f64,
    /// 99% took no longer; `None` where too few interrupts are beyond.
    pub p99: Option<f64>,
    /// The longest.
    pub max: f64,
}

impl Stages {
    pub(super) fn of(boots: &[Boot<'_>]) -> Self {
        let is_told = |point: &Point| {
            let mut all = boots.iter().flat_map(|boot| boot.interrupts);
            all.all(|interrupt| point.of(interrupt).is_some())
        };
        let (told, untold): (Vec<_>, Vec<_>) = Point::ALL.into_iter().partition(is_told);
        let pairs = told.iter().zip(told.iter().skip(1));
        let spans: Vec<Span> = pairs
            .map(|(from, to)| Span::of(boots, *from, *to))
            .collect();
        Self {
            spans,
            total: Span::of(boots, Point::Due, Point::Resumed),
            untold,
            disordered: disordered(boots, &told),
            ahead: all(boots).filter(is_ahead).count() as u64,
        }
    }

    /// What the spans do not explain, as a share of the whole; 0 if they differ by rounding
    /// alone.
    pub fn unexplained(&self) -> f64 {
        let explained: f64 = self.spans.iter().map(|span| span.mean).sum();
        match ((self.total.mean - explained) / self.total.mean).abs() {
            share if share > ROUNDING => share,
            _ => 0.0,
        }
    }
}

impl Span {
    fn of(boots: &[Boot<'_>], from: Point, to: Point) -> Self {
        let mut lengths = Vec::new();
        for boot in boots {
            lengths.extend(boot.interrupts.iter().filter_map(|interrupt| {
                let ticks = to.of(interrupt)?.wrapping_sub(from.of(interrupt)?);
                Some(boot.units(ticks as i64))
            }));
        }
        lengths.sort_by(f64::total_cmp);
        let some = !lengths.is_empty();
        let at = |of_100_000| {
            if some {
                nearest_rank(&lengths, of_100_000)
            } else {
                0.0
            }
        };
        Self {
            from,
            to,
            mean: lengths.iter().sum::<f64>() / lengths.len().max(1) as f64,
            p50: at(50_000),
            p99: percentile(&lengths, 99_000),
            max: at(100_000),
        }
    }
}

fn all<'a>(boots: &'a [Boot<'_>]) -> impl Iterator<Item = &'a Interrupt> {
    boots.iter().flat_map(|boot| boot.interrupts)
}

fn is_ahead(interrupt: &&Interrupt) -> bool {
    let woke_after = |woke: u64| woke.wrapping_sub(interrupt.due) as i64;
    interrupt.woke.is_some_and(|woke| woke_after(woke) < 0)
}

/// A host that wakes ahead of time is no disorder.
fn disordered(boots: &[Boot<'_>], told: &[Point]) -> u64 {
    let from = usize::from(told.contains(&Point::Woke));
    let is_disordered = |interrupt: &&Interrupt| {
        let times = told[from..].iter().filter_map(|point| point.of(interrupt));
        !times.is_sorted()
    };
    all(boots).filter(is_disordered).count() as u64
}
