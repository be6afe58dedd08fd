//! The tables of interrupts: a row for each environment and timer.

use super::shares;
use crate::document::{Align, Look, Section, Span, Table};
use crate::figures;
use trapline_abi::CpuState;
use trapline_model::irq::Settings;
use trapline_model::Clock;
use trapline_stats::irq::{self as stats, FIRST_WINDOWS};
use trapline_stats::irq::{ExpiryStats, Interrupts, Lateness, Point};
use trapline_stats::least_count;

/// The heading of the names.
pub const NAMES: &str = "environment";

/// A time of `clock` in a table whose heading has the unit: microseconds or
/// instructions.
pub fn time(value: f64, clock: Clock) -> String {
    if clock.is_exact() {
        figures::exact(value.round())
    } else {
        figures::microseconds(value)
    }
}

/// The percentiles of the first table: their columns, names and shares of 100,000.
const PERCENTILES: [(usize, &str, usize); 5] = [
    (3, "p50", 50_000),
    (4, "p90", 90_000),
    (5, "p99", 99_000),
    (6, "p99.9", 99_900),
    (7, "p99.99", 99_990),
];

fn percentiles(late: &Lateness) -> [Option<f64>; 5] {
    [late.p50, late.p90, late.p99, late.p999, late.p9999]
}

/// Returns the lateness of interrupts.
pub fn lateness(shown: &[&Interrupts]) -> Table {
    let columns = [
        "mean", "sd", "min", "p50", "p90", "p99", "p99.9", "p99.99", "max", "of",
    ];
    let mut table = Table::new(NAMES, columns);
    for interrupts in shown {
        let cells = match interrupts.all.lateness {
            None => vec![],
            Some(late) => of_lateness(&late, interrupts),
        };
        table.row(interrupts.name(), cells);
    }
    // Columns without a figure, then p90, sd, p99.9, min.
    let mut give_way = empty_columns(shown);
    give_way.extend([4, 1, 6, 2]);
    table.with_optional(&give_way)
}

/// Columns of percentiles for which no row has enough interrupts, the highest first.
fn empty_columns(shown: &[&Interrupts]) -> Vec<usize> {
    let known = || shown.iter().filter_map(|one| one.all.lateness);
    let is_empty = |index: usize| known().all(|late| percentiles(&late)[index].is_none());
    let columns = PERCENTILES.iter().enumerate();
    let empty = columns.filter(|(index, _)| is_empty(*index));
    empty.map(|(_, (column, ..))| *column).rev().collect()
}

fn of_lateness(late: &Lateness, interrupts: &Interrupts) -> Vec<Span> {
    let clock = interrupts.clock;
    let cell = |value, look| Span::new(time(value, clock), look);
    let [p50, p90, p99, p999, p9999] = percentiles(late);
    vec![
        cell(late.mean, Look::Strong),
        cell(late.sd, Look::Plain),
        cell(late.min, Look::Plain),
        known(p50, clock, Look::Plain),
        known(p90, clock, Look::Plain),
        known(p99, clock, Look::Strong),
        known(p999, clock, Look::Plain),
        known(p9999, clock, Look::Plain),
        cell(late.max, Look::Strong),
        Span::new(figures::count(interrupts.all.count), Look::Faint),
    ]
}

/// A time, or a dash where there is none.
fn known(value: Option<f64>, clock: Clock, look: Look) -> Span {
    match value {
        Some(value) => Span::new(time(value, clock), look),
        None => Span::absent(),
    }
}

/// Explains the dashes in place of percentiles in any table of `shown`, if there are any.
pub fn missing_percentiles(shown: &[&Interrupts]) -> Option<String> {
    let is_missing = |index: usize| shown.iter().any(|one| lacks(one, index));
    let columns = PERCENTILES.iter().enumerate();
    let missing = columns.filter(|(index, _)| is_missing(*index));
    let counts: Vec<_> = missing
        .map(|(_, (_, name, of))| format!("{name} {}", figures::count(least_count(*of) as u64)))
        .collect();
    (!counts.is_empty()).then(|| {
        let counts = counts.join(", ");
        format!("–: fewer interrupts than a 95% interval of the percentile takes: {counts}")
    })
}

/// Returns true if a table of `interrupts` lacks a percentile; only the first has others than p99.
fn lacks(interrupts: &Interrupts, index: usize) -> bool {
    let all = interrupts.all.lateness.iter();
    let parts = [Some(&interrupts.first), interrupts.rest.as_ref()];
    let found = interrupts.found.iter().map(|(_, spread)| spread);
    let parts = parts.into_iter().flatten().chain(found);
    let parts = parts.filter_map(|spread| spread.lateness.as_ref());
    let parts = parts.filter(|_| PERCENTILES[index].1 == "p99");
    all.chain(parts)
        .any(|late| percentiles(late)[index].is_none())
}

fn section(title: &str, explanation: String, table: Table) -> Section {
    let mut section = Section::new(title, explanation);
    section.table(table);
    section
}

/// Returns the number of late and missed expiries.
pub fn counts(shown: &[&Interrupts], settings: &Settings) -> Section {
    let threshold = settings.threshold;
    let columns = ["expiries", "late", "missed", "too late", "in time"];
    let has_interval = shown.iter().any(|one| one.in_time_interval.is_some());
    let further = has_interval.then_some("95% interval");
    let mut table = Table::new(NAMES, columns.into_iter().chain(further));
    for interrupts in shown {
        table.row(interrupts.name(), of_counts(interrupts));
    }
    let in_insn = if shown.first().is_some_and(|one| one.clock.is_exact()) {
        format!(" = {} insn", figures::count(threshold.0))
    } else {
        String::new()
    };
    let explanation = format!("later than {threshold}{in_insn}, or missed");
    // The complement of the share in time.
    section("Too late", explanation, table.with_optional(&[3]))
}

fn of_counts(interrupts: &Interrupts) -> Vec<Span> {
    let all = &interrupts.all;
    let count = |value| Span::new(figures::count(value), Look::Plain);
    let share = |part| figures::share(part, all.expiries);
    let look = if all.too_late() > 0 {
        Look::Middling
    } else {
        Look::Good
    };
    let mut spans = vec![
        count(all.expiries),
        count(all.above),
        count(all.missed()),
        Span::new(share(all.too_late()), look),
        Span::new(share(all.in_time()), Look::Strong),
    ];
    if let Some(interval) = &interrupts.in_time_interval {
        let bursts = shares::interval(interval.bursts);
        spans.push(Span::new(bursts, Look::Strong));
    }
    spans
}

/// Returns the lateness in the first windows and in the others, and the range of means.
pub fn windows(shown: &[&Interrupts]) -> Section {
    let columns = [
        "first mean",
        "p99",
        "max",
        "rest mean",
        "p99",
        "max",
        "means of all",
    ];
    let mut table = Table::new(NAMES, columns);
    for interrupts in shown {
        let clock = interrupts.clock;
        let mut cells = three(Some(&interrupts.first), clock);
        cells.extend(three(interrupts.rest.as_ref(), clock));
        cells.push(Span::new(range_of_means(interrupts), Look::Plain));
        table.row(interrupts.name(), cells);
    }
    let explanation = format!("the first {FIRST_WINDOWS} of 1,024 expiries, and the rest");
    // The range of means, then both p99.
    section("Windows", explanation, table.with_optional(&[6, 4, 1]))
}

fn three(spread: Option<&ExpiryStats>, clock: Clock) -> Vec<Span> {
    let late = spread.and_then(|spread| spread.lateness);
    let values = late.map_or([None; 3], |late| {
        [Some(late.mean), late.p99, Some(late.max)]
    });
    values
        .map(|value| known(value, clock, Look::Plain))
        .to_vec()
}

fn range_of_means(interrupts: &Interrupts) -> String {
    let windows = interrupts.windows.iter();
    let means: Vec<f64> = windows
        .filter_map(|w| Some(w.spread.lateness?.mean))
        .collect();
    let time = |value| time(value, interrupts.clock);
    let ends = means
        .iter()
        .copied()
        .reduce(f64::min)
        .zip(means.iter().copied().reduce(f64::max));
    ends.map_or_else(String::new, |(least, most)| {
        format!("{}-{}", time(least), time(most))
    })
}

/// Returns the interrupts by what they interrupted.
pub fn found(shown: &[&Interrupts]) -> Section {
    let columns = CpuState::ALL.map(|found| [found.name().to_owned(), "p99".to_owned()]);
    let mut table = Table::new(NAMES, columns.into_iter().flatten());
    for interrupts in shown {
        let cells = CpuState::ALL
            .into_iter()
            .flat_map(|found| of_found(interrupts, found));
        table.row(interrupts.name(), cells);
    }
    let explanation = "interrupts of each kind, and how late 99% of those were".to_owned();
    section("What they found", explanation, table)
}

fn of_found(interrupts: &Interrupts, found: CpuState) -> [Span; 2] {
    let spread = interrupts.found.iter().find(|(kind, _)| *kind == found);
    match spread.and_then(|(_, spread)| Some((spread.count, spread.lateness?))) {
        None => [Span::absent(), Span::default()],
        Some((count, late)) => [
            Span::new(figures::count(count), Look::Plain),
            known(late.p99, interrupts.clock, Look::Plain),
        ],
    }
}

/// Returns the times of the stages by environment and timer.
pub fn stages(shown: &[&Interrupts]) -> Table {
    let mut table = Table::grouped(shown.iter().map(|it| it.name()), &[Align::Right; 3]);
    let cell = |span: Option<&stats::Span>, clock: Clock| match span {
        None => vec![Span::absent()],
        Some(span) => [Some(span.p50), span.p99, Some(span.max)]
            .map(|value| known(value, clock, Look::Plain))
            .to_vec(),
    };
    for point in Point::ALL.into_iter().skip(1) {
        let cells = shown.iter().map(|interrupts| {
            let mut spans = interrupts.stages.spans.iter();
            cell(spans.find(|span| span.to == point), interrupts.clock)
        });
        table.row(format!("until {}", point.name()), cells);
    }
    let totals = shown
        .iter()
        .map(|it| cell(Some(&it.stages.total), it.clock));
    table.row("all of it", totals);
    table
}
