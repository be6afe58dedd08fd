//! Sections of kernel builds: one table for each clock.

use super::{native, Matrix};
use crate::document::{Look, Marker, Section, Span, Table};
use crate::figures::clock_name;
use std::collections::BTreeMap;
use trapline_model::kernel_build::Column;
use trapline_model::{Clock, EnvironmentId};
use trapline_stats::paired::PairedRatio;
use trapline_stats::Sorted;

/// Returns a section for each clock, and one with the size and the source of the build.
pub fn sections(matrix: &Matrix) -> Vec<Section> {
    let clocks = Clock::ALL.into_iter();
    let clocks = clocks.filter(|clock| !matrix.environments(*clock).is_empty());
    let mut sections: Vec<Section> = clocks.map(|clock| of_clock(matrix, clock)).collect();
    let source = matrix.facts.get("build-source");
    let source = source.map_or_else(String::new, |source| format!(", {source}"));
    let work = format!("{}: {}{source}.", matrix.size, matrix.size.description());
    let mut section = Section::default();
    section.note(Marker::Paragraph, &work, Look::Plain);
    sections.push(section);
    sections
}

fn of_clock(matrix: &Matrix, clock: Clock) -> Section {
    let unit = if clock.is_exact() {
        "million instructions"
    } else {
        "seconds"
    };
    let title = format!("Kernel build, {}, {}", matrix.size, clock_name(clock));
    let mut section = Section::new(&title, unit);
    let columns = columns(matrix, clock);
    if !columns.is_empty() {
        let mut table = Table::new("", columns.iter().map(Column::to_string));
        for id in matrix.environments(clock) {
            push_rows(matrix, id, &columns, &mut table);
        }
        section.table(table);
    }
    section.details([explanation(matrix, clock)]);
    push_notes(matrix, clock, &mut section);
    section
}

/// Returns the columns that have a figure.
pub fn columns(matrix: &Matrix, clock: Clock) -> Vec<Column> {
    let environments = matrix.environments(clock);
    let mut columns = matrix.columns(clock);
    let is_built = |id: &EnvironmentId, column| matrix.took(*id, column).is_some();
    columns.retain(|column| environments.iter().any(|id| is_built(id, *column)));
    columns
}

/// Adds the rows of an environment that are not empty: figures, range, ratios and their intervals.
fn push_rows(matrix: &Matrix, id: EnvironmentId, columns: &[Column], table: &mut Table) {
    let clock = id.clock();
    let took: Vec<_> = columns
        .iter()
        .map(|column| matrix.took(id, *column))
        .collect();
    if took.iter().all(Option::is_none) {
        return;
    }
    let figures = took.iter().map(|took| match took {
        Some(took) => Span::new(formatted(took.median(), clock), Look::Strong),
        None => Span::absent(),
    });
    table.row(id.name(), figures);
    let mut row = |label: &str, cells: Vec<String>| {
        if cells.iter().any(|cell| !cell.is_empty()) {
            let cells = cells.into_iter().map(|cell| Span::new(cell, Look::Faint));
            table.row(format!("  {label}"), cells);
        }
    };
    row(
        "min-max",
        took.iter()
            .map(|took| spread(took.as_ref(), clock))
            .collect(),
    );
    let over_base = |column: &Column| match *column {
        Column::BASE => None,
        column => matrix.ratio_to_base(id, column),
    };
    let over_native = |column: &Column| matrix.ratio_to_native(id, *column);
    let bases = [
        (
            Column::BASE.to_string(),
            columns.iter().map(over_base).collect::<Vec<_>>(),
        ),
        (
            native(clock).to_string(),
            columns.iter().map(over_native).collect(),
        ),
    ];
    for (base, ratios) in bases {
        let over = ratios
            .iter()
            .map(|ratio| percent(ratio.map(|ratio| ratio.estimate - 1.0)));
        row(&format!("over {base}"), over.collect());
        if !clock.is_exact() {
            let name = format!("  {}", interval_name(ratios.iter().flatten()));
            row(&name, ratios.iter().map(|ratio| interval(*ratio)).collect());
        }
    }
}

/// The name of a row of intervals, with their level if all have the same.
fn interval_name<'a>(ratios: impl Iterator<Item = &'a PairedRatio>) -> String {
    let levels = ratios.filter_map(|ratio| Some(ratio.interval?.level));
    match Sorted::new(levels.collect()) {
        Some(levels) if levels.min() == levels.max() => {
            format!("{} interval", level(levels.min()))
        }
        _ => "interval".to_owned(),
    }
}

/// A level in percent, with as many digits as it has up to one.
fn level(level: f64) -> String {
    let percent = format!("{:.1}", level * 100.0);
    format!("{}%", percent.strip_suffix(".0").unwrap_or(&percent))
}

/// The interval of a ratio, or the reason that there is none.
fn interval(ratio: Option<PairedRatio>) -> String {
    match ratio.map(|ratio| ratio.interval) {
        None => String::new(),
        Some(None) => "one build".to_owned(),
        Some(Some(interval)) => {
            let low = percent(Some(interval.low - 1.0));
            let high = percent(Some(interval.high - 1.0));
            format!("{}..{high}", low.trim_end_matches('%'))
        }
    }
}

/// Returns the range of several builds, unless they took the same time.
fn spread(took: Option<&Sorted>, clock: Clock) -> String {
    let several = took.filter(|took| took.min() < took.max());
    several.map_or_else(String::new, |took| {
        format!(
            "{}-{}",
            formatted(took.min(), clock),
            formatted(took.max(), clock)
        )
    })
}

fn formatted(took: f64, clock: Clock) -> String {
    match clock {
        Clock::Wall => {
            let seconds = took / 1e9;
            let digits = if seconds < 10.0 {
                2
            } else {
                usize::from(seconds < 1000.0)
            };
            format!("{seconds:.digits$}")
        }
        Clock::Insn | Clock::InsnVmx => format!("{:.3}", took / 1e6),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| {
        let percent = share * 100.0;
        let digits = usize::from(percent.abs() < 100.0);
        format!("{percent:+.digits$}%")
    })
}

/// Adds the reasons of failed and skipped cells, and doubts about figures.
fn push_notes(matrix: &Matrix, clock: Clock, section: &mut Section) {
    let cells = matrix
        .cells
        .iter()
        .filter(|((id, _), _)| id.clock() == clock);
    let mut skipped: Vec<(&str, Vec<String>)> = Vec::new();
    for ((id, column), cell) in cells {
        let at = format!("{id} {column}");
        if let Some(reason) = &cell.failed {
            let text = format!("{at} FAILED: {reason}");
            section.note(Marker::Warning, &text, Look::Bad);
        }
        if let Some(reason) = &cell.skipped {
            match skipped.iter_mut().find(|(other, _)| other == reason) {
                Some((_, places)) => places.push(at.clone()),
                None => skipped.push((reason, vec![at.clone()])),
            }
        }
        if let Some(off) = cell.disagreement() {
            let off = percent(Some(off));
            section.warnings([format!("{at}: the clock of its Linux is off by {off}")]);
        }
        if clock.is_exact() && cell.wavers() {
            section.warnings([format!("{at}: not the same twice")]);
        }
    }
    for (reason, places) in skipped {
        section.details([format!("{} not built: {reason}", places.join(", "))]);
    }
}

fn explanation(matrix: &Matrix, clock: Clock) -> String {
    let cells = matrix.cells.iter();
    let counts = cells.filter(|((id, _), _)| id.clock() == clock);
    let most = counts.map(|(_, cell)| cell.done.len()).max().unwrap_or(0);
    let of = match (most, clock.is_exact()) {
        (..=1, true) => "one build each".to_owned(),
        (..=1, false) => "one build each: no interval".to_owned(),
        (_, true) => format!("{most} builds each"),
        (_, false) => format!("median and range of {most} builds each"),
    };
    let percentages = if clock.is_exact() {
        String::new()
    } else {
        intervals(matrix, clock)
    };
    let native = native(clock);
    format!(
        "{of}. N(s): virtual CPU i on CPU i, the VMM on CPU 0; N(d): on CPU i+1. Over {}: \
         against the same environment there; over {native}: against {native} on the same CPUs; \
         + is slower.{percentages}",
        Column::BASE
    )
}

/// The method and the levels of the intervals.
fn intervals(matrix: &Matrix, clock: Clock) -> String {
    let cells = matrix.cells.keys().filter(|(id, _)| id.clock() == clock);
    let ratios = cells.flat_map(|(id, column)| {
        [
            Some(*column)
                .filter(|column| *column != Column::BASE)
                .and_then(|column| matrix.ratio_to_base(*id, column)),
            matrix.ratio_to_native(*id, *column),
        ]
    });
    let with = ratios
        .flatten()
        .filter_map(|ratio| Some((ratio.rounds, ratio.interval?.level)));
    let levels: BTreeMap<usize, f64> = with.collect();
    if levels.is_empty() {
        return String::new();
    }
    let levels = levels.into_iter();
    let levels: Vec<String> = levels
        .map(|(rounds, of)| format!("{} ({rounds} rounds)", level(of)))
        .collect();
    format!(
        " Percentages are medians of the ratios of the rounds. Level of the interval: {}.",
        levels.join(", ")
    )
}
