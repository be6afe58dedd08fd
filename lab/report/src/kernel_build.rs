//! Duration of kernel builds by environment and by number and placement of CPUs, with the spread, a native row and computed
//! percentages: a table for each size and clock.

use crate::document::{Look, Section, Span, Table};
use crate::figures::{self, clock_name};
use crate::report::Report;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::kernel_build::{Column, Size};
use trapline_model::{Clock, Config, EnvironmentId, Operation};
use trapline_stats::order::Interval;
use trapline_stats::paired::PairedRatio;
use trapline_stats::{Cell, Figure, Flag};

/// Builds of one size with figures of one clock.
struct Builds<'a> {
    report: &'a Report,
    size: Size,
    clock: Clock,
    cells: BTreeMap<(EnvironmentId, Column), &'a Cell>,
}

/// Returns a section for each size.
pub fn sections(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let all = Size::ALL.into_iter();
    let all = all.map(|size| Builds::new(report, cells, size, clock));
    all.filter(|builds| builds.has_figures())
        .map(|builds| builds.section())
        .collect()
}

impl<'a> Builds<'a> {
    fn new(report: &'a Report, cells: &'a [Cell], size: Size, clock: Clock) -> Self {
        let of_size = cells
            .iter()
            .filter(|cell| cell.op == Operation::Build(size));
        let cells = of_size
            .filter(|cell| cell.clock == clock)
            .filter_map(|cell| {
                let column = Column::of(&cell.config)?;
                Some(((cell.config.environment, column), cell))
            });
        Self {
            report,
            size,
            clock,
            cells: cells.collect(),
        }
    }

    fn has_figures(&self) -> bool {
        self.cells
            .values()
            .any(|cell| cell.value.figure().is_some())
    }

    fn environments(&self) -> BTreeSet<EnvironmentId> {
        self.cells.keys().map(|(id, _)| *id).collect()
    }

    /// Returns the columns that have a figure.
    fn columns(&self) -> Vec<Column> {
        let measured = self.cells.iter();
        let measured = measured.filter(|(_, cell)| cell.value.figure().is_some());
        let columns: BTreeSet<Column> = measured.map(|((_, column), _)| *column).collect();
        columns.into_iter().collect()
    }

    fn figure(&self, id: EnvironmentId, column: Column) -> Option<&'a Figure> {
        self.cells.get(&(id, column))?.value.figure()
    }

    /// Returns the ratio to the same environment with one CPU of its own.
    fn over_base(&self, id: EnvironmentId, column: Column) -> Option<&PairedRatio> {
        let operation = Operation::Build(self.size);
        self.report.builds.get(&(column.config(id), operation))
    }

    /// Returns the ratio to the environment without virtualization, on the same CPUs, with its interval.
    fn over_native(&self, id: EnvironmentId, column: Column) -> Option<(f64, Option<Interval>)> {
        let figure = self.figure(id, column).filter(|_| id != self.native())?;
        figure.ratio.map(|ratio| (ratio.estimate, ratio.interval))
    }

    fn native(&self) -> EnvironmentId {
        self.clock.bare_linux()
    }

    fn section(&self) -> Section {
        let unit = if self.clock.is_exact() {
            "million instructions"
        } else {
            "seconds"
        };
        let title = format!("Kernel build, {}, {}", self.size, clock_name(self.clock));
        let mut section = Section::new(&title, unit);
        let columns = self.columns();
        let mut table = Table::new("", columns.iter().map(Column::to_string));
        for id in self.environments() {
            self.push_rows(id, &columns, &mut table);
        }
        section.table(table);
        section.details([self.explanation(), self.work()]);
        for ((id, column), cell) in &self.cells {
            if let Some(share) = cell.value.figure().and_then(disagreement) {
                let off = percent(Some(share));
                let text = format!("{id} {column}: the clock of its Linux is off by {off}");
                section.warnings([text]);
            }
        }
        section
    }

    /// Says what was built.
    fn work(&self) -> String {
        let source = self.fact("build-source");
        let source = source.map_or_else(String::new, |source| format!(", {source}"));
        format!("{}: {}{source}.", self.size, self.size.description())
    }

    /// Returns a fact of the first build.
    fn fact(&self, name: &str) -> Option<&str> {
        let all = self.cells.values();
        let mut all = all.filter_map(|cell| self.report.summary.facts.get(&cell.config)?.get(name));
        all.next().map(String::as_str)
    }

    /// Adds the rows of an environment that are not empty: figures, range, ratios and their intervals.
    fn push_rows(&self, id: EnvironmentId, columns: &[Column], table: &mut Table) {
        let figures: Vec<_> = columns
            .iter()
            .map(|column| self.figure(id, *column))
            .collect();
        if figures.iter().all(Option::is_none) {
            return;
        }
        table.row(
            id.name(),
            figures.iter().map(|figure| match figure {
                Some(figure) => Span::new(self.time(figure.estimate), Look::Strong),
                None => Span::absent(),
            }),
        );
        let mut row = |label: &str, cells: Vec<String>| {
            if cells.iter().any(|cell| !cell.is_empty()) {
                let cells = cells.into_iter().map(|cell| Span::new(cell, Look::Faint));
                table.row(format!("  {label}"), cells);
            }
        };
        row(
            "min-max",
            figures.iter().map(|figure| self.range(*figure)).collect(),
        );
        let over_base = |column: &Column| {
            let ratio = self.over_base(id, *column)?;
            Some((ratio.estimate, ratio.interval))
        };
        let over_native = |column: &Column| self.over_native(id, *column);
        let bases = [
            (
                Column::BASE.to_string(),
                columns.iter().map(over_base).collect::<Vec<_>>(),
            ),
            (
                self.native().to_string(),
                columns.iter().map(over_native).collect(),
            ),
        ];
        for (base, ratios) in bases {
            let over = ratios
                .iter()
                .map(|ratio| percent(ratio.map(|(estimate, _)| estimate - 1.0)));
            row(&format!("over {base}"), over.collect());
            if !self.clock.is_exact() {
                let levels = ratios
                    .iter()
                    .flatten()
                    .filter_map(|(_, interval)| *interval);
                let name = format!("  {}", interval_name(levels));
                row(&name, ratios.iter().map(|ratio| interval(*ratio)).collect());
            }
        }
    }

    fn time(&self, time: f64) -> String {
        if self.clock.is_exact() {
            return format!("{:.3}", time / 1e6);
        }
        let seconds = time / 1e9;
        let digits = if seconds < 10.0 {
            2
        } else {
            usize::from(seconds < 1000.0)
        };
        format!("{seconds:.digits$}")
    }

    /// Returns the range of several builds, unless they took the same time.
    fn range(&self, figure: Option<&Figure>) -> String {
        let several = figure.filter(|figure| figure.min < figure.max);
        several.map_or_else(String::new, |figure| {
            format!("{}-{}", self.time(figure.min), self.time(figure.max))
        })
    }

    fn explanation(&self) -> String {
        let boots = self
            .cells
            .values()
            .filter_map(|cell| Some(cell.value.figure()?.boots));
        let of = match (boots.max().unwrap_or(0), self.clock.is_exact()) {
            (..=1, true) => "one build each".to_owned(),
            (..=1, false) => "one build each: no interval".to_owned(),
            (most, true) => format!("{most} builds each"),
            (most, false) => format!("median and range of {most} builds each"),
        };
        let (base, native) = (Column::BASE, self.native());
        format!(
            "{of}. N(s): virtual CPU i on CPU i, the VMM on CPU 0; N(d): on CPU i+1. Over {base}: \
             against the same environment there; over {native}: against {native} on the same CPUs; \
             + is slower.{}",
            self.levels()
        )
    }

    /// Returns the method and the levels of the intervals of the wall clock.
    fn levels(&self) -> String {
        let intervals = self.cells.keys().flat_map(|(id, column)| {
            let over_base = self.over_base(*id, *column);
            let over_native = self.over_native(*id, *column);
            [
                over_base.and_then(|it| it.interval),
                over_native.and_then(|it| it.1),
            ]
        });
        let mut levels: Vec<f64> = intervals.flatten().map(|interval| interval.level).collect();
        levels.sort_by(f64::total_cmp);
        let mut levels: Vec<String> = levels.into_iter().map(figures::level).collect();
        levels.dedup();
        if levels.is_empty() || self.clock.is_exact() {
            return String::new();
        }
        let levels = levels.join(", ");
        format!(" Percentages are medians of the ratios of the rounds. Level of the interval: {levels}.")
    }
}

/// Returns how far the clock of the Linux that builds is off, if it is.
fn disagreement(figure: &Figure) -> Option<f64> {
    figure.flags.iter().find_map(|flag| match flag {
        Flag::ClocksDisagree { share, .. } => Some(*share),
        _ => None,
    })
}

/// Returns the name of a row of intervals, with their level if all have the same.
fn interval_name(intervals: impl Iterator<Item = Interval>) -> String {
    let levels: BTreeSet<String> = intervals
        .map(|interval| figures::level(interval.level))
        .collect();
    match levels.first() {
        Some(level) if levels.len() == 1 => format!("{level} interval"),
        _ => "interval".to_owned(),
    }
}

/// Returns the interval of a ratio, or the reason that there is none.
fn interval(ratio: Option<(f64, Option<Interval>)>) -> String {
    match ratio {
        None => String::new(),
        Some((_, None)) => "one build".to_owned(),
        Some((_, Some(interval))) => {
            let low = percent(Some(interval.low - 1.0));
            let high = percent(Some(interval.high - 1.0));
            format!("{}..{high}", low.trim_end_matches('%'))
        }
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| {
        let percent = share * 100.0;
        let digits = usize::from(percent.abs() < 100.0);
        format!("{percent:+.digits$}%")
    })
}

/// Returns the largest ratio to the native row of a clock, as a sentence and what stands behind it.
pub fn finding(report: &Report, cells: &[Cell]) -> Option<(String, String)> {
    let of_clock = |clock| {
        let all = Size::ALL.into_iter();
        let builds = all.map(move |size| Builds::new(report, cells, size, clock));
        let times = builds.flat_map(|builds| {
            let native = builds.native();
            let keys = builds.cells.keys().copied().collect::<Vec<_>>().into_iter();
            keys.filter_map(move |(id, column)| {
                let (times, _) = builds.over_native(id, column)?;
                Some((id, column, native, times))
            })
        });
        times.max_by(|one, other| one.3.total_cmp(&other.3))
    };
    let (id, column, native, times) = Clock::ALL.into_iter().find_map(of_clock)?;
    let times = figures::quantity(times);
    let title = format!("Building a kernel takes {times} times as long in {id} as in {native}.");
    Some((title, format!("on the same CPUs, {column}.")))
}

/// A ratio to the same environment with one CPU of its own.
#[derive(Serialize)]
pub struct JsonOverBase {
    environment: &'static str,
    settings: String,
    operation: String,
    /// Share above 1.
    over_base: f64,
    /// Rounds with both.
    rounds: usize,
    level: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

/// Returns the ratios for JSON.
pub fn json(report: &Report) -> Vec<JsonOverBase> {
    let of = |((config, operation), ratio): (&(Config, Operation), &PairedRatio)| JsonOverBase {
        environment: config.environment.name(),
        settings: config.overrides.to_string(),
        operation: operation.path(),
        over_base: ratio.estimate - 1.0,
        rounds: ratio.rounds,
        level: ratio.interval.map(|interval| interval.level),
        low: ratio.interval.map(|interval| interval.low - 1.0),
        high: ratio.interval.map(|interval| interval.high - 1.0),
    };
    report.builds.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
