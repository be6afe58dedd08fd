//! Findings about two figures of one operation and clock.

use super::super::context::Context;
use super::super::labels::{self, Row};
use super::ratio::{Kind, Span, HARDLY};
use crate::figures;
use trapline_abi::{Op, Workload};
use trapline_model::{names, Clock};
use trapline_stats::{Figure, Flag};

/// A finding.
#[derive(Clone, Debug)]
pub struct Finding {
    pub kind: Kind,
    pub clock: Clock,
    /// The smallest difference that both intervals allow.
    weight: f64,
    /// The ratio.
    pub number: String,
    pub title: String,
    pub text: String,
}

/// Operations that hypervisors are compared by, the most significant first.
const EXITS: [Op; 4] = [Op::PortOut, Op::MmioWrite, Op::PortIn, Op::Cpuid];
const BOOTS: [Op; 3] = [Op::BootMain, Op::BootSample, Op::BootEntry];

/// All findings, the most telling first: on the wall clock hypervisors against each other,
/// then on the exact ones, then against bare.
pub fn all(context: &Context<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for clock in Clock::ALL {
        let palette = context.palette(clock);
        let virtual_rows = palette.rows().iter().copied();
        let virtual_rows: Vec<Row> = virtual_rows
            .filter(|row| labels::hypervisor(*row).is_some())
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

/// Compares the most expensive hypervisor with the cheapest, by the first of `operations` that two
/// have.
fn between(
    context: &Context<'_>,
    clock: Clock,
    rows: &[Row],
    operations: &[Op],
) -> Option<Finding> {
    operations.iter().find_map(|op| {
        let figures = rows
            .iter()
            .filter_map(|row| Some((*row, trusted(context, *row, *op)?)));
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
    let times = figures::times(ratio.estimate);
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
    let value = |figure: &Figure| figures::time_with_unit(figure.estimate, clock);
    // What starting means stands beside the figures.
    let meant = match op.workload() {
        Workload::Boot => format!(" {}", op.description()),
        _ => String::new(),
    };
    let (above, below) = (value(dear.1), value(cheap.1));
    let text = format!("{above} against {below}{meant}{}.", ratio.confidence());
    Finding {
        kind,
        clock,
        weight: ratio.low,
        number: times,
        title,
        text,
    }
}

/// Returns the basic operation with the largest ratio to bare.
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
        let figure = trusted(context, row, op)?;
        let ratio = Span::of(figure, trusted(context, clock.bare(), op)?, clock);
        (ratio.kind() == Kind::Differs && ratio.low > HARDLY).then_some((row, op, figure, ratio))
    });
    let (row, op, figure, ratio) = ratios.max_by(|a, b| a.3.low.total_cmp(&b.3.low))?;
    let bare = trusted(context, clock.bare(), op)?;
    let value = |figure: &Figure| figures::time_with_unit(figure.estimate, clock);
    Some(Finding {
        kind: Kind::Differs,
        clock,
        weight: ratio.low,
        number: figures::times(ratio.estimate),
        title: format!(
            "Of everyday operations {} suffers most: in {} it costs {} as much as bare.",
            subject(op),
            people(row),
            factor(ratio.estimate)
        ),
        text: format!(
            "{} against {}{}.",
            value(figure),
            value(bare),
            ratio.confidence()
        ),
    })
}

/// Returns the lowest memory bandwidth against bare.
fn bandwidth(context: &Context<'_>, clock: Clock, rows: &[Row]) -> Option<Finding> {
    let op = Op::Triad;
    let bare = trusted(context, clock.bare(), op)?;
    let ratios = rows
        .iter()
        .filter_map(|row| Some((*row, trusted(context, *row, op)?)));
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
        number: figures::times(ratio.estimate),
        title,
        text: format!(
            "{} {unit} against {} {unit}{}.",
            value(figure),
            value(bare),
            ratio.confidence()
        ),
    })
}

/// Returns a figure without doubts.
fn trusted<'a>(context: &'a Context<'_>, row: Row, op: Op) -> Option<&'a Figure> {
    let harmless = |flag: &Flag| matches!(flag, Flag::BootsLost { .. });
    let figure = context.figure(row, op)?;
    figure.flags.iter().all(harmless).then_some(figure)
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
    labels::hypervisor(row).unwrap_or_else(|| labels::name(row))
}

/// Returns the name of an operation within a sentence.
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
    use super::super::super::{Run, Study};
    use super::*;
    use crate::fixture::{figure_between, measured};
    use crate::Report;
    use trapline_stats::{Cell, Summary};

    fn cell(row: Row, estimate: f64, flags: Vec<Flag>) -> Cell {
        let figure = figure_between(estimate * 0.99, estimate, estimate * 1.01);
        measured(row, Op::PortOut, Figure { flags, ..figure })
    }

    fn titles(cells: Vec<Cell>) -> Vec<String> {
        let summary = Summary {
            cells,
            ..Summary::default()
        };
        let study = Study {
            report: Report {
                summary,
                ..Report::default()
            },
            ..Study::default()
        };
        let run = Run::default();
        let found = all(&Context::new(&run, &study, 0));
        found.into_iter().map(|finding| finding.title).collect()
    }

    #[test]
    fn most_expensive_hypervisor_is_compared_with_the_cheapest() {
        let dear = cell(Row::QEMU_KVM, 28_000.0, vec![]);
        let cheap = cell(Row::KVM, 5_000.0, vec![]);
        let expected =
            "On this host a guest's write to a port costs 5.60 times as much in QEMU as in trapline-vmm.";
        assert_eq!(titles(vec![dear, cheap]), [expected]);
    }

    #[test]
    fn flagged_figures_give_no_finding() {
        let doubt = Flag::ClocksDisagree {
            share: 0.6,
            boots: 2,
        };
        let dear = cell(Row::QEMU_KVM, 28_000.0, vec![doubt]);
        let cheap = cell(Row::KVM, 5_000.0, vec![]);
        assert_eq!(titles(vec![dear, cheap]), [] as [&str; 0]);
    }
}
