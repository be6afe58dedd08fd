//! Breakdown of an interrupt's latency: from expiry, over the thread that raises it, to the thread that
//! its handler wakes.
//!
//! A point without a timestamp is left out, and its span extends to the next point with one. So the
//! spans of an interrupt always add up to the total.

use super::boot::IrqBoot;
use crate::Sorted;
use trapline_abi::Interrupt;

/// A timestamp of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Expiry of the timer.
    Due,
    /// Start of the host thread that raises it.
    Woke,
    /// Pending in the guest's interrupt controller.
    Marked,
    /// Entry of the guest's handler.
    Entered,
    /// End of the handler.
    Done,
    /// Start of the thread that the handler wakes.
    Resumed,
}

impl Point {
    /// All points, in order of time.
    pub const ALL: [Point; 6] = [
        Self::Due,
        Self::Woke,
        Self::Marked,
        Self::Entered,
        Self::Done,
        Self::Resumed,
    ];

    /// Returns the printed name.
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

    /// Returns the timestamp of an interrupt, in ticks, if it was taken.
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

/// Rounding error of a sum of the spans' means, as a share.
const ROUNDING: f64 = 1e-12;

/// The spans of an operation's interrupts.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    /// Spans between points with a timestamp, in order of time.
    pub spans: Vec<Span>,
    /// The span from the first point to the last.
    pub total: Span,
    /// Points without a timestamp.
    pub unstamped: Vec<Point>,
    /// Number of interrupts whose timestamps are not in order.
    pub out_of_order: u64,
    /// Number of interrupts whose host thread woke before the expiry, because its timer is set ahead of the
    /// guest's.
    pub early_wakeups: u64,
}

/// The time between two points, in the unit of the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The first point.
    pub from: Point,
    /// The second point.
    pub to: Point,
    /// The mean. Means of spans add up; medians do not.
    pub mean: f64,
    /// The median (nearest rank).
    pub p50: f64,
    /// The 99th percentile; `None` for too few interrupts ([`crate::least_count`]).
    pub p99: Option<f64>,
    /// The longest.
    pub max: f64,
}

impl Stages {
    pub(super) fn of(boots: &[IrqBoot<'_>]) -> Self {
        let is_stamped = |point: &Point| {
            let mut all = boots.iter().flat_map(|boot| boot.interrupts);
            all.all(|interrupt| point.of(interrupt).is_some())
        };
        let (stamped, unstamped): (Vec<_>, Vec<_>) = Point::ALL.into_iter().partition(is_stamped);
        let pairs = stamped.iter().zip(stamped.iter().skip(1));
        let spans: Vec<Span> = pairs
            .map(|(from, to)| Span::of(boots, *from, *to))
            .collect();
        Self {
            spans,
            total: Span::of(boots, Point::Due, Point::Resumed),
            unstamped,
            out_of_order: out_of_order(boots, &stamped),
            early_wakeups: all(boots).filter(is_early_wakeup).count() as u64,
        }
    }

    /// Returns the difference between the total and the sum of the spans, as a share; 0 within rounding.
    pub fn unexplained(&self) -> f64 {
        let explained: f64 = self.spans.iter().map(|span| span.mean).sum();
        match ((self.total.mean - explained) / self.total.mean).abs() {
            share if share > ROUNDING => share,
            _ => 0.0,
        }
    }
}

impl Span {
    fn of(boots: &[IrqBoot<'_>], from: Point, to: Point) -> Self {
        let mut lengths = Vec::new();
        for boot in boots {
            lengths.extend(boot.interrupts.iter().filter_map(|interrupt| {
                let ticks = to.of(interrupt)?.wrapping_sub(from.of(interrupt)?);
                Some(boot.units(ticks as i64))
            }));
        }
        let sorted = Sorted::new(lengths);
        let of = |value: fn(&Sorted) -> f64| sorted.as_ref().map_or(0.0, value);
        Self {
            from,
            to,
            mean: of(Sorted::mean),
            p50: of(|sorted| sorted.nearest_rank(50_000)),
            p99: sorted.as_ref().and_then(|sorted| sorted.percentile(99_000)),
            max: of(Sorted::max),
        }
    }
}

fn all<'a>(boots: &'a [IrqBoot<'_>]) -> impl Iterator<Item = &'a Interrupt> {
    boots.iter().flat_map(|boot| boot.interrupts)
}

fn is_early_wakeup(interrupt: &&Interrupt) -> bool {
    let woke_after = |woke: u64| woke.wrapping_sub(interrupt.due) as i64;
    interrupt.woke.is_some_and(|woke| woke_after(woke) < 0)
}

/// Counts interrupts whose timestamps are not in order. A wake-up before the expiry is in order.
fn out_of_order(boots: &[IrqBoot<'_>], stamped: &[Point]) -> u64 {
    let from = usize::from(stamped.contains(&Point::Woke));
    let is_unsorted = |interrupt: &&Interrupt| {
        let times = stamped[from..]
            .iter()
            .filter_map(|point| point.of(interrupt));
        !times.is_sorted()
    };
    all(boots).filter(is_unsorted).count() as u64
}
