//! Lateness of interrupts: a row for each environment and timer, then the time of each stage and
//! the latest interrupts.
//!
//! Times on the wall clock are in microseconds; on an exact clock they are instructions, one of
//! which is a nanosecond, so that one threshold serves both.

mod conditions;
pub(crate) mod json;
mod latest;
mod missing;
mod shares;
pub(crate) mod tables;
mod verdict;

pub use verdict::{verdicts, Verdict};

use crate::document::{Bar, Bars, Block, Look, Marker, Part, Section};
use crate::figures::{self, clock_name};
use crate::notes::Notes;
use crate::report::Report;
use trapline_abi::Op;
use trapline_model::Clock;
use trapline_stats::irq::{Interrupts, Point, Proof};
use trapline_stats::Cell;

/// Returns the sections of one clock, if any interrupts were measured.
pub fn sections(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let all = report.interrupts.iter();
    let shown: Vec<&Interrupts> = all.filter(|found| found.clock == clock).collect();
    if shown.is_empty() {
        return Vec::new();
    }
    let mut counts = tables::counts(&shown, &report.irq);
    counts.details(shares::explanations(&shown));
    let mut sections = vec![
        lateness(&shown, report, cells, clock),
        counts,
        tables::windows(&shown),
        tables::found(&shown),
        stages(&shown, report, clock),
        bars(&shown),
        latest::section(&shown),
    ];
    sections.extend(requirement(report, clock));
    sections
}

/// Returns the unit of times on `clock`.
const fn unit(clock: Clock) -> &'static str {
    if clock.is_exact() {
        "insn"
    } else {
        "µs"
    }
}

/// Explanations of the names of timers.
const TIMERS: [(Op, &str); 4] = [
    (Op::OwnTimer, "own: the guest's timer"),
    (Op::CountTimer, "count: the same, without a deadline"),
    (Op::PeriodicTimer, "periodic: the same, set once"),
    (Op::HostTimer, "host: a timer of the VMM or the host"),
];

fn lateness(shown: &[&Interrupts], report: &Report, cells: &[Cell], clock: Clock) -> Section {
    let period = report.irq.period;
    let unit_words = if clock.is_exact() { "insn = ns" } else { "µs" };
    let explanation = format!("how late, in {unit_words}, every {period}");
    let mut section = Section::new(&format!("Interrupts, {}", clock_name(clock)), explanation);
    section.table(tables::lateness(shown));
    let names = TIMERS.iter();
    let names = names.filter(|(op, _)| shown.iter().any(|one| one.op == *op));
    let names: Vec<_> = names.map(|(_, explanation)| *explanation).collect();
    section.details([
        names.join("; "),
        "of: number of interrupts that came; missed expiries are in none of these figures".into(),
    ]);
    section.details(tables::missing_percentiles(shown));
    section.details(conditions::words(report, shown, unit(clock)));
    section.warnings(Notes::of_clock(report, cells, clock));
    for interrupts in shown {
        let name = interrupts.name();
        let remarks = remarks(interrupts).into_iter();
        section.warnings(remarks.map(|remark| format!("{name}: {remark}")));
    }
    section
}

fn stages(shown: &[&Interrupts], report: &Report, clock: Clock) -> Section {
    let explanation = format!("{} since the one before: median, p99, max", unit(clock));
    let mut section = Section::new("Stages", explanation);
    section.table(tables::stages(shown));
    section.warnings(missing::points(shown, report));
    section.details(missing::entries(shown, report));
    section
}

/// Returns the means of the stages as bars.
fn bars(shown: &[&Interrupts]) -> Section {
    let bar = |interrupts: &&Interrupts| {
        let kind = |point: Point| Point::ALL.iter().skip(1).position(|known| *known == point);
        let part = |span: &trapline_stats::irq::Span| {
            Some(Part {
                kind: kind(span.to)?,
                length: span.mean,
                text: tables::time(span.mean, interrupts.clock),
                is_gap: false,
            })
        };
        let spans = interrupts.stages.spans.iter();
        let total = interrupts.stages.total.mean;
        Bar {
            label: interrupts.name(),
            total: tables::time(total, interrupts.clock),
            parts: spans.filter_map(part).collect(),
            length: total,
        }
    };
    let points = Point::ALL.into_iter().skip(1);
    let bars = Bars {
        legend: points
            .map(|point| format!("until {}", point.name()))
            .collect(),
        bars: shown.iter().map(bar).collect(),
    };
    let mut section = Section::new("Where the time goes", "mean of each stage");
    section.blocks.push(Block::Bars(bars));
    section
}

/// Returns the verdicts on the requirement, if there is one.
fn requirement(report: &Report, clock: Clock) -> Option<Section> {
    let all = verdicts(report);
    let here: Vec<&Verdict> = all.iter().filter(|it| it.clock == clock).collect();
    let require = report.irq.require.filter(|_| !here.is_empty())?;
    let (threshold, basis) = (report.irq.threshold, basis(clock));
    let explanation = format!("at least {require} within {threshold}, {basis}");
    let mut section = Section::new("Verdict", explanation);
    for verdict in here {
        section.note(Marker::Item, &verdict.words(), look(verdict.proof));
        if let Some(help) = verdict.help() {
            section.note(Marker::Detail, &format!("help: {help}"), Look::Plain);
        }
    }
    Some(section)
}

/// Returns the basis of the verdicts.
fn basis(clock: Clock) -> &'static str {
    if clock.is_exact() {
        "by count: every run gives the same"
    } else {
        "by the 95% interval for bursts"
    }
}

fn look(proof: Proof) -> Look {
    match proof {
        Proof::Met => Look::Good,
        Proof::NotMet => Look::Bad,
        Proof::NotProven => Look::Middling,
    }
}

/// A larger share of unexplained time is reported.
const UNEXPLAINED: f64 = 0.01;

/// Returns the time that handling one takes, thread included, and the period, if that is shorter.
fn overlong(interrupts: &Interrupts) -> Option<(f64, f64)> {
    let spans = interrupts.stages.spans.iter();
    let behind = spans.filter(|span| matches!(span.to, Point::Done | Point::Resumed));
    let handling: f64 = behind.map(|span| span.p50).sum();
    let period = interrupts.period?;
    (handling > period).then_some((handling, period))
}

/// Returns limits of the validity of the figures.
fn remarks(interrupts: &Interrupts) -> Vec<String> {
    let mut remarks = Vec::new();
    let time = |value| figures::time_with_unit(value, interrupts.clock);
    if interrupts.due_uncertainty.max > 0.0 {
        remarks.push(format!(
            "setting or reading the timer takes time, so that interrupts may be later than it says: by {} in half \
             of all cases, {} at the most",
            time(interrupts.due_uncertainty.p50),
            time(interrupts.due_uncertainty.max)
        ));
    }
    if interrupts.early > 0 {
        remarks.push(format!(
            "{} interrupts came before the timer was due; they count as 0 late",
            figures::count(interrupts.early)
        ));
    }
    if let Some((handling, period)) = overlong(interrupts) {
        remarks.push(format!(
            "handling one takes {} in half of all cases, longer than the period of {}: expiries \
             are missed for that alone, ask for a longer --period",
            time(handling),
            time(period)
        ));
    }
    if interrupts.stages.out_of_order > 0 {
        remarks.push(format!(
            "{} interrupts seem to have come to a stage before the one before it",
            figures::count(interrupts.stages.out_of_order)
        ));
    }
    if interrupts.stages.early_wakeups > 0 {
        remarks.push(format!(
            "the host woke before the timer was due for {} interrupts",
            figures::count(interrupts.stages.early_wakeups)
        ));
    }
    if interrupts.stages.unexplained() > UNEXPLAINED {
        remarks.push("the stages do not add up to the total".to_owned());
    }
    remarks
}
