//! The table for a terminal.

use super::{native, Matrix};
use crate::printable;
use std::fmt::Write;
use trapline_plan::kernel_build::Column;
use trapline_plan::{Clock, EnvironmentId};
use trapline_stats::spread::Sorted;

/// Columns of text for a name, and for a figure.
const NAME: usize = 20;
const FIGURE: usize = 15;

/// The tables of all clocks, within `width` columns of text.
pub fn table(matrix: &Matrix, width: usize) -> String {
    let clocks = Clock::ALL.into_iter();
    let tables = clocks.filter_map(|clock| of_clock(matrix, clock, width));
    let tables: Vec<_> = tables.collect();
    let mut text = tables.join("\n");
    if let Some(size) = matrix.size {
        let source = matrix.facts.get("build-source");
        let source = source.map_or_else(String::new, |source| format!(", {source}"));
        let whole = format!("{size}: {}{source}.", size.what());
        text += &format!("\n{}\n", textwrap::fill(&whole, options(width)));
    }
    text
}

fn of_clock(matrix: &Matrix, clock: Clock, width: usize) -> Option<String> {
    let environments = matrix.environments(clock);
    if environments.is_empty() {
        return None;
    }
    let mut text = String::new();
    let columns = shown(matrix, &environments, matrix.columns(clock));
    let fits = width.saturating_sub(NAME) / FIGURE;
    for columns in columns.chunks(fits.max(1)) {
        text += &piece(matrix, clock, &environments, columns);
        text.push('\n');
    }
    text += &notes(matrix, clock, &environments, width);
    Some(text)
}

/// Columns with nothing in them are left out: the notes say why.
fn shown(matrix: &Matrix, rows: &[EnvironmentId], mut columns: Vec<Column>) -> Vec<Column> {
    columns.retain(|column| rows.iter().any(|id| matrix.took(*id, *column).is_some()));
    columns
}

fn piece(matrix: &Matrix, clock: Clock, rows: &[EnvironmentId], columns: &[Column]) -> String {
    let unit = match clock {
        Clock::Wall => "seconds",
        Clock::Insn | Clock::InsnVmx => "million instructions",
    };
    let size = matrix
        .size
        .map_or("", trapline_plan::kernel_build::Size::name);
    let title = format!("Kernel build, {size}, {clock} clock: {unit}");
    let names = columns.iter().map(Column::to_string);
    let mut text = format!("{title}\n{}\n", line("", names));
    let native = native(clock);
    for id in rows {
        let took = |column: &Column| matrix.took(*id, *column);
        if columns.iter().all(|column| took(column).is_none()) {
            continue;
        }
        let figures = columns.iter().map(|column| figure(took(column), clock));
        text += &format!("{}\n", line(id.name(), figures));
        let spread = columns.iter().map(|column| spread(took(column), clock));
        text += &further("min-max", spread);
        let base = columns.iter().map(|column| match *column {
            Column::BASE => String::new(),
            column => percent(matrix.above_base(*id, column)),
        });
        text += &further(&format!("over {}", Column::BASE), base);
        let over_native = columns
            .iter()
            .map(|column| percent(matrix.above_native(*id, *column)));
        text += &further(&format!("over {native}"), over_native);
    }
    text
}

fn line(name: &str, figures: impl Iterator<Item = String>) -> String {
    let figures: String = figures.map(|figure| format!("{figure:>FIGURE$}")).collect();
    format!(" {name:<0$}{figures}", NAME - 1)
        .trim_end()
        .to_owned()
}

/// A line below that of an environment, if there is anything in it.
fn further(name: &str, figures: impl Iterator<Item = String>) -> String {
    let figures: Vec<_> = figures.collect();
    if figures.iter().all(String::is_empty) {
        return String::new();
    }
    format!("{}\n", line(&format!("  {name}"), figures.into_iter()))
}

fn figure(took: Option<Sorted>, clock: Clock) -> String {
    took.map_or_else(|| "-".to_owned(), |took| written(took.median(), clock))
}

/// Of one build there is no spread, nor of several that were the same.
fn spread(took: Option<Sorted>, clock: Clock) -> String {
    let several = took.filter(|took| took.min() < took.max());
    several.map_or_else(String::new, |took| {
        format!(
            "{}-{}",
            written(took.min(), clock),
            written(took.max(), clock)
        )
    })
}

fn written(took: f64, clock: Clock) -> String {
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

fn notes(matrix: &Matrix, clock: Clock, rows: &[EnvironmentId], width: usize) -> String {
    let mut notes = vec![explanation(matrix, clock, rows)];
    let cells = matrix
        .cells
        .iter()
        .filter(|((id, _), _)| id.clock() == clock);
    let mut said: Vec<String> = Vec::new();
    for ((id, column), cell) in cells {
        let at = format!("{id} {column}");
        if let Some(reason) = &cell.failed {
            said.push(format!("{at} FAILED: {}", printable(reason)));
        }
        if let Some(reason) = &cell.skipped {
            said.push(format!("{at} not built: {}", printable(reason)));
        }
        if let Some(off) = cell.disagreement() {
            let off = percent(Some(off));
            said.push(format!("{at}: the clock of its Linux is off by {off}"));
        }
        if clock.is_exact() && cell.wavers() {
            said.push(format!("{at}: not the same twice"));
        }
    }
    notes.extend(said);
    let mut text = String::new();
    for note in notes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", textwrap::fill(&note, options(width)));
    }
    text
}

fn options(width: usize) -> textwrap::Options<'static> {
    textwrap::Options::new(width).subsequent_indent("  ")
}

fn explanation(matrix: &Matrix, clock: Clock, rows: &[EnvironmentId]) -> String {
    let counts = matrix.cells.iter().filter(|((id, _), _)| rows.contains(id));
    let most = counts.map(|(_, cell)| cell.done.len()).max().unwrap_or(0);
    let of = match (most, clock.is_exact()) {
        (..=1, _) => "one build each: no spread is known".to_owned(),
        (_, true) => format!("{most} builds each"),
        (_, false) => format!("median and range of {most} builds each"),
    };
    let native = native(clock);
    format!(
        "{of}. N(s): virtual CPU i on CPU i, the VMM on CPU 0; N(d): on CPU i+1. Over {}: \
         against the same environment there; over {native}: against {native} on the same CPUs; \
         + is slower.",
        Column::BASE
    )
}
