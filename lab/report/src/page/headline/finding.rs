//! Two figures of one operation by one clock, and what may be said of them.

use super::super::context::Context;
use super::super::who::{self, Row};
use crate::figures;
use trapline_abi::{Op, Workload};
use trapline_plan::{names, Clock};
use trapline_stats::Figure;

/// What is found of two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Their intervals lie apart.
    Differs,
    /// Both intervals allow only a difference that hardly matters.
    AsGood,
    /// Their intervals overlap and allow more than that.
    Unsure,
}

/// One of the things a run says.
#[derive(Clone, Debug)]
pub struct Finding {
    pub kind: Kind,
    pub clock: Clock,
    /// By how much, at the least, as both intervals allow.
    weight: f64,
    /// The ratio, to stand alone.
    pub number: String,
    pub title: String,
    pub text: String,
}

/// A difference up to this hardly matters.
const HARDLY: f64 = 1.1;

/// What is asked of hypervisors, the most telling first of each kind.
const EXITS: [Op; 4] = [Op::PortOut, Op::MmioWrite, Op::PortIn, Op::Cpuid];
const BOOTS: [Op; 3] = [Op::BootMain, Op::BootSample, Op::BootEntry];

/// All findings, the most telling first: on the wall clock hypervisors against each other,
/// then on the exact ones, then against bare.
pub fn all(context: &Context<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for clock in Clock::ALL {
        let cast = context.cast(clock);
        let virtual_rows = cast.rows().iter().copied();
        let virtual_rows: Vec<Row> = virtual_rows
            .filter(|row| who::hypervisor(*row).is_some())
            .collect();
        let mut of_clock: Vec<Finding> = [&EXITS[..], &BOOTS[..]]
            .into_iter()
            .filter_map(|operations| between(context, clock, &virtual_rows, operations))
            .collect();
        of_clock.sort_by(|a, b| (a.kind).cmp(&b.kind).then(b.weight.total_cmp(&a.weight)));
        // In instructions memory has no speed, and what is mapped already costs nothing.
        if clock == Clock::Wall {
            of_clock.extend(dearest(context, clock, &virtual_rows));
            of_clock.extend(bandwidth(context, clock, &virtual_rows));
        }
        found.push(of_clock);
    }
    // What is certain comes first, whatever its clock; within that the wall clock.
    let mut all: Vec<Finding> = found.into_iter().flatten().collect();
    all.sort_by_key(|finding| finding.kind == Kind::Unsure);
    all
}

/// The dearest hypervisor against the cheapest, at the first of `operations` that two have.
fn between(
    context: &Context<'_>,
    clock: Clock,
    rows: &[Row],
    operations: &[Op],
) -> Option<Finding> {
    operations.iter().find_map(|op| {
        let figures = rows
            .iter()
            .filter_map(|row| Some((*row, context.figure(*row, *op)?)));
        let mut figures: Vec<(Row, &Figure)> = figures.collect();
        figures.sort_by(|(_, a), (_, b)| a.estimate.total_cmp(&b.estimate));
        let (cheap, dear) = (*figures.first()?, *figures.last()?);
        (cheap.0 != dear.0 && cheap.1.estimate > 0.0).then(|| pair(*op, clock, cheap, dear))
    })
}

fn pair(op: Op, clock: Clock, cheap: (Row, &Figure), dear: (Row, &Figure)) -> Finding {
    let ratio = Span::of(dear.1, cheap.1, clock);
    let kind = ratio.kind();
    let (one, other) = (people(cheap.0), people(dear.0));
    let times = figures::times(ratio.estimate, true);
    let what = subject(op);
    let (place, verb) = (place(clock), verb(op));
    let title = match kind {
        Kind::Differs => {
            let factor = factor(ratio.estimate);
            let unit = if verb == "takes" { "long" } else { "much" };
            format!("{place} {what} {verb} {factor} as {unit} in {other} as in {one}.")
        }
        Kind::AsGood => format!("{place} {what} {verb} the same in {other} and in {one}."),
        Kind::Unsure => format!(
            "{place} this run does not tell {other} from {one} by {what}: more boots would."
        ),
    };
    let value = |figure: &Figure| figures::time_with_unit(figure.estimate, clock, true);
    // What starting means stands beside the figures.
    let meant = match op.workload() {
        Workload::Boot => format!(" {}", op.what()),
        _ => String::new(),
    };
    let (above, below) = (value(dear.1), value(cheap.1));
    let text = format!("{above} against {below}{meant}{}.", ratio.told());
    Finding {
        kind,
        clock,
        weight: ratio.low,
        number: times,
        title,
        text,
    }
}

/// What virtualization makes dearest of what a kernel does all day.
fn dearest(context: &Context<'_>, clock: Clock, rows: &[Row]) -> Option<Finding> {
    let operations = || {
        Op::ALL
            .into_iter()
            .filter(|op| op.workload() == Workload::Basic)
    };
    let all = rows
        .iter()
        .flat_map(|row| operations().map(move |op| (*row, op)));
    let ratios = all.filter_map(|(row, op)| {
        let figure = context.figure(row, op)?;
        let ratio = Span::of(figure, context.figure(clock.bare(), op)?, clock);
        (ratio.kind() == Kind::Differs && ratio.low > HARDLY).then_some((row, op, figure, ratio))
    });
    let (row, op, figure, ratio) = ratios.max_by(|a, b| a.3.low.total_cmp(&b.3.low))?;
    let bare = context.figure(clock.bare(), op)?;
    let value = |figure: &Figure| figures::time_with_unit(figure.estimate, clock, true);
    Some(Finding {
        kind: Kind::Differs,
        clock,
        weight: ratio.low,
        number: figures::times(ratio.estimate, true),
        title: format!(
            "Of everyday operations {} suffers most: in {} it costs {} as much as bare.",
            subject(op),
            people(row),
            factor(ratio.estimate)
        ),
        text: format!("{} against {}{}.", value(figure), value(bare), ratio.told()),
    })
}

/// How memory moves against bare, where it may be called as good.
fn bandwidth(context: &Context<'_>, clock: Clock, rows: &[Row]) -> Option<Finding> {
    let op = Op::Triad;
    let bare = context.figure(clock.bare(), op)?;
    let ratios = rows
        .iter()
        .filter_map(|row| Some((*row, context.figure(*row, op)?)));
    let (row, figure) = ratios.min_by(|a, b| a.1.estimate.total_cmp(&b.1.estimate))?;
    let ratio = Span::of(figure, bare, clock);
    let kind = ratio.kind();
    let value = |figure: &Figure| figures::rate(figure.estimate);
    let title = match kind {
        Kind::AsGood => format!("Memory moves as fast in {} as bare.", people(row)),
        Kind::Differs => format!(
            "Memory moves {} as fast in {} as bare.",
            factor(ratio.estimate),
            people(row)
        ),
        Kind::Unsure => format!(
            "Whether memory moves as fast in {} as bare this run does not tell.",
            people(row)
        ),
    };
    let unit = trapline_stats::value::unit(op, clock);
    Some(Finding {
        kind,
        clock,
        weight: 0.0,
        number: figures::times(ratio.estimate, true),
        title,
        text: format!(
            "{} {unit} against {} {unit}{}.",
            value(figure),
            value(bare),
            ratio.told()
        ),
    })
}

/// A ratio with the ends that both intervals allow.
struct Span {
    estimate: f64,
    low: f64,
    high: f64,
    is_exact: bool,
    is_known: bool,
}

impl Span {
    fn of(figure: &Figure, by: &Figure, clock: Clock) -> Self {
        let ends = |figure: &Figure| figure.low.zip(figure.high);
        let (above, below) = (ends(figure), ends(by));
        let estimate = figure.estimate / by.estimate;
        let (low, high) = match (above, below) {
            _ if clock.is_exact() => (estimate, estimate),
            (Some((low, high)), Some((least, most))) if least > 0.0 => (low / most, high / least),
            _ => (0.0, f64::INFINITY),
        };
        Self {
            estimate,
            low,
            high,
            is_exact: clock.is_exact(),
            is_known: clock.is_exact() || above.is_some() && below.is_some(),
        }
    }

    fn kind(&self) -> Kind {
        if self.low >= 1.0 / HARDLY && self.high <= HARDLY {
            Kind::AsGood
        } else if self.low > 1.0 || self.high < 1.0 {
            Kind::Differs
        } else {
            Kind::Unsure
        }
    }

    /// How sure it is, behind two figures.
    fn told(&self) -> String {
        if self.is_exact {
            return ", exact".to_owned();
        }
        if !self.is_known {
            return "; a single boot says nothing about others".to_owned();
        }
        let times = |ratio: f64| match ratio.is_finite() {
            true => figures::times(ratio, true),
            false => "any factor".to_owned(),
        };
        format!(
            "; the 95% intervals of both allow {} to {}",
            times(self.low),
            times(self.high)
        )
    }
}

fn place(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "On this host",
        Clock::Insn => "In instructions (AMD)",
        Clock::InsnVmx => "In instructions (Intel)",
    }
}

/// Starting takes long, whatever by which clock; an operation costs much.
fn verb(op: Op) -> &'static str {
    match op.workload() {
        Workload::Boot => "takes",
        _ => "costs",
    }
}

fn factor(ratio: f64) -> String {
    format!("{} times", figures::quantity(ratio))
}

fn people(row: Row) -> &'static str {
    who::hypervisor(row).unwrap_or_else(|| who::name(row))
}

/// What an operation is, as a sentence goes on.
fn subject(op: Op) -> String {
    let known = match op {
        Op::PortOut => "a guest's write to a port",
        Op::PortIn => "a guest's read from a port",
        Op::MmioWrite => "a guest's write to a device's register",
        Op::Cpuid => "an exit that stays in the kernel (cpuid)",
        Op::BootMain | Op::BootSample | Op::BootEntry => "starting a guest",
        Op::Getpid => "a request for the process number",
        Op::Yield => "a switch between threads",
        Op::Malloc1m => "an allocation of 1 MiB",
        Op::FirstTouch4k => "the first write to a page",
        other => return names::path(other),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(low: f64, estimate: f64, high: f64) -> Figure {
        Figure {
            estimate,
            low: Some(low),
            high: Some(high),
            min: low,
            max: high,
            p50: estimate,
            p90: high,
            p99: high,
            samples: 9,
            boots: 3,
            ratio: None,
            exits: None,
            host_cpu_ns: None,
            flags: vec![],
        }
    }

    #[test]
    fn only_intervals_that_lie_apart_are_a_difference() {
        let kind = |a: &Figure, b: &Figure| Span::of(a, b, Clock::Wall).kind();
        let ten = figure(9.9, 10.0, 10.1);
        assert_eq!(kind(&figure(19.0, 20.0, 21.0), &ten), Kind::Differs);
        assert_eq!(kind(&figure(9.8, 10.0, 10.2), &ten), Kind::AsGood);
        assert_eq!(kind(&figure(5.0, 20.0, 90.0), &ten), Kind::Unsure);
        let mut once = figure(19.0, 20.0, 21.0);
        once.low = None;
        assert_eq!(kind(&once, &ten), Kind::Unsure);
        assert!(Span::of(&once, &ten, Clock::Wall)
            .told()
            .contains("single boot"));
        assert_eq!(Span::of(&once, &ten, Clock::Insn).kind(), Kind::Differs);
    }
}
