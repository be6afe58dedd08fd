//! The table of a clock, as rows of words, and for a terminal.

use super::{native, Matrix};
use crate::printable;
use std::collections::BTreeMap;
use std::fmt::Write;
use trapline_model::kernel_build::Column;
use trapline_model::{Clock, EnvironmentId};
use trapline_stats::paired::PairedRatio;
use trapline_stats::spread::Sorted;

/// Columns of text for a name, and for a figure.
const NAME: usize = 20;
const FIGURE: usize = 15;

/// In the place of a figure that there is not.
const NONE: &str = "-";

/// The tables of all clocks, within `width` columns of text.
pub fn table(matrix: &Matrix, width: usize) -> String {
    let clocks = Clock::ALL.into_iter();
    let tables = clocks.filter_map(|clock| of_clock(matrix, clock, width));
    let tables: Vec<_> = tables.collect();
    let mut text = tables.join("\n");
    let whole = format!("{}.", what(matrix));
    text += &format!("\n{}\n", textwrap::fill(&whole, options(width)));
    text
}

/// What is built, and from which source.
pub fn what(matrix: &Matrix) -> String {
    let source = matrix.facts.get("build-source");
    let source = source.map_or_else(String::new, |source| format!(", {source}"));
    format!("{}: {}{source}", matrix.size, matrix.size.what())
}

/// A row of the table: an environment's figures, or what is said of them below.
pub struct Row {
    /// Of the environment, or what is said.
    pub name: String,
    /// Whether these are the figures themselves.
    pub is_figures: bool,
    /// One for each column.
    pub cells: Vec<String>,
}

fn of_clock(matrix: &Matrix, clock: Clock, width: usize) -> Option<String> {
    if matrix.environments(clock).is_empty() {
        return None;
    }
    let mut text = String::new();
    let fits = width.saturating_sub(NAME) / FIGURE;
    for columns in columns(matrix, clock).chunks(fits.max(1)) {
        text += &format!("{}\n{}\n", title(matrix, clock), line("", &names(columns)));
        for row in rows(matrix, clock, columns) {
            let name = match row.is_figures {
                true => row.name,
                false => format!("  {}", row.name),
            };
            text += &format!("{}\n", line(&name, &row.cells));
        }
        text.push('\n');
    }
    for note in notes(matrix, clock) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", textwrap::fill(&note, options(width)));
    }
    Some(text)
}

/// What stands above the table.
fn title(matrix: &Matrix, clock: Clock) -> String {
    let unit = unit(clock);
    format!("Kernel build, {}, {clock} clock: {unit}", matrix.size)
}

/// Its columns. Those with nothing in them are left out: the notes say why.
pub fn columns(matrix: &Matrix, clock: Clock) -> Vec<Column> {
    let environments = matrix.environments(clock);
    let mut columns = matrix.columns(clock);
    let is_built = |id: &EnvironmentId, column| matrix.took(*id, column).is_some();
    columns.retain(|column| environments.iter().any(|id| is_built(id, *column)));
    columns
}

/// The titles of columns.
pub fn names(columns: &[Column]) -> Vec<String> {
    columns.iter().map(Column::to_string).collect()
}

/// The rows that have anything in these columns.
pub fn rows(matrix: &Matrix, clock: Clock, columns: &[Column]) -> Vec<Row> {
    let environments = matrix.environments(clock).into_iter();
    let rows = environments.flat_map(|id| rows_of(matrix, id, columns));
    rows.filter(|row| {
        row.cells
            .iter()
            .any(|cell| !matches!(cell.as_str(), "" | NONE))
    })
    .collect()
}

fn rows_of(matrix: &Matrix, id: EnvironmentId, columns: &[Column]) -> Vec<Row> {
    let clock = id.clock();
    let row = |name: &str, is_figures, cell: &dyn Fn(Column) -> String| Row {
        name: name.to_owned(),
        is_figures,
        cells: columns.iter().map(|column| cell(*column)).collect(),
    };
    let took = |column| matrix.took(id, column);
    let over_base = |column| match column {
        Column::BASE => None,
        column => matrix.ratio_to_base(id, column),
    };
    let over_native = |column| matrix.ratio_to_native(id, column);
    let mut rows = vec![
        row(id.name(), true, &|column| figure(took(column), clock)),
        row("min-max", false, &|column| spread(took(column), clock)),
    ];
    let bases = [Column::BASE.to_string(), native(clock).to_string()];
    let ratios: [&dyn Fn(Column) -> Option<PairedRatio>; 2] = [&over_base, &over_native];
    for (base, ratio) in bases.iter().zip(ratios) {
        let over = |column| percent(ratio(column).map(|ratio| ratio.estimate - 1.0));
        rows.push(row(&format!("over {base}"), false, &over));
        if !clock.is_exact() {
            let all = columns.iter().filter_map(|column| ratio(*column));
            let name = format!("  {}", interval_name(all));
            rows.push(row(&name, false, &|column| interval(ratio(column))));
        }
    }
    rows
}

/// The name of a row of intervals, with their level if all have the same.
fn interval_name(ratios: impl Iterator<Item = PairedRatio>) -> String {
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

fn line(name: &str, cells: &[String]) -> String {
    let cells: String = cells
        .iter()
        .map(|cell| format!("{cell:>FIGURE$}"))
        .collect();
    format!(" {name:<0$}{cells}", NAME - 1)
        .trim_end()
        .to_owned()
}

fn figure(took: Option<Sorted>, clock: Clock) -> String {
    took.map_or_else(|| NONE.to_owned(), |took| written(took.median(), clock))
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

/// In what figures are.
pub const fn unit(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "seconds",
        Clock::Insn | Clock::InsnVmx => "million instructions",
    }
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

/// How it is read, and what there is to say of cells.
pub fn notes(matrix: &Matrix, clock: Clock) -> Vec<String> {
    let mut notes = vec![explanation(matrix, clock)];
    let cells = matrix
        .cells
        .iter()
        .filter(|((id, _), _)| id.clock() == clock);
    let mut skipped: Vec<(&str, Vec<String>)> = Vec::new();
    for ((id, column), cell) in cells {
        let at = format!("{id} {column}");
        if let Some(reason) = &cell.failed {
            notes.push(format!("{at} FAILED: {}", printable(reason)));
        }
        if let Some(reason) = &cell.skipped {
            match skipped.iter_mut().find(|(other, _)| other == reason) {
                Some((_, places)) => places.push(at.clone()),
                None => skipped.push((reason, vec![at.clone()])),
            }
        }
        if let Some(off) = cell.disagreement() {
            let off = percent(Some(off));
            notes.push(format!("{at}: the clock of its Linux is off by {off}"));
        }
        if clock.is_exact() && cell.wavers() {
            notes.push(format!("{at}: not the same twice"));
        }
    }
    let skipped = skipped.into_iter();
    notes.extend(
        skipped.map(|(reason, places)| {
            format!("{} not built: {}", places.join(", "), printable(reason))
        }),
    );
    notes
}

fn options(width: usize) -> textwrap::Options<'static> {
    textwrap::Options::new(width).subsequent_indent("  ")
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
    let percentages = match clock.is_exact() {
        true => String::new(),
        false => intervals(matrix, clock),
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
