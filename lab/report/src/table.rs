//! Tables of operations by configuration, one for each clock: figures, and exits with host CPU time.

use crate::document::{Align, Cell as TableCell, Look, Section, Span, Table};
use crate::figures::{self, clock_name, clock_title};
use crate::notes::Notes;
use crate::report::Report;
use std::collections::BTreeSet;
use trapline_abi::{block, Direction, OpSet, Unit, Workload};
use trapline_model::file;
use trapline_model::{irq, populate, Clock, Config, Operation};
use trapline_stats::order::Interval;
use trapline_stats::{value, Cell, Figure, Flag, Idle, Value};

/// Largest ratio that counts as no cost.
const AS_GOOD: f64 = 1.1;

/// Larger ratios are highlighted.
const DEAR: f64 = 10.0;

/// A figure with a larger spread is shown as its interval.
const UNUSABLE: f64 = 0.5;

/// The cells of operations of guests by one clock that have anything to show, with their operations and configurations. An
/// operation or configuration that has only skips is left out.
pub struct Shown<'a> {
    cells: Vec<&'a Cell>,
    /// The rows.
    pub operations: Vec<Operation>,
    /// The columns.
    pub configs: Vec<&'a Config>,
}

impl<'a> Shown<'a> {
    /// Selects everything but skips.
    pub fn measured(cells: &'a [Cell], clock: Clock) -> Option<Self> {
        Self::new(cells, clock, |cell| !matches!(cell.value, Value::Skip(_)))
    }

    /// Returns `None` if no cell of `clock` is `wanted`.
    pub fn new(cells: &'a [Cell], clock: Clock, wanted: impl Fn(&Cell) -> bool) -> Option<Self> {
        let cells: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.clock == clock && cell.op.guest().is_some() && wanted(cell))
            .collect();
        let configs: BTreeSet<&Config> = cells.iter().map(|cell| &cell.config).collect();
        let shown = Self {
            operations: Operation::in_display_order(cells.iter().map(|cell| cell.op)),
            configs: configs.into_iter().collect(),
            cells,
        };
        (!shown.cells.is_empty()).then_some(shown)
    }

    /// Returns the cell of a configuration and an operation, if it has anything to show.
    pub fn cell(&self, config: &Config, op: Operation) -> Option<&'a Cell> {
        let mut of_op = self.cells.iter().filter(|cell| cell.op == op);
        of_op.find(|cell| cell.config == *config).copied()
    }

    /// Returns an empty table with a column for each configuration.
    pub fn table(&self, report: &Report, parts: &[Align]) -> Table {
        Table::grouped(self.configs.iter().map(|config| report.name(config)), parts)
    }
}

/// Returns the sections of one clock: the figures of all operations, or one section for each table
/// of the plan. Interrupts, memory and disks have sections of their own.
pub fn sections(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    sections_by(report, cells, clock, section)
}

/// Returns the sections of the figures of a clock, under the title of a table of the plan if there is one.
type Builder = fn(&Report, &[Cell], Clock, Option<&file::Table>) -> Vec<Section>;

/// Returns the operations that have sections of their own.
pub fn with_own_sections() -> OpSet {
    irq::operations() | populate::operations() | block::operations()
}

/// Returns one section for all operations, or one for each table of the plan.
pub fn sections_by(
    report: &Report,
    cells: &[Cell],
    clock: Clock,
    section: Builder,
) -> Vec<Section> {
    let others = with_own_sections();
    let tables = report.tables.iter();
    if report.tables.is_empty() && !report.operations.is_subset(others) {
        section(report, cells, clock, None)
    } else {
        tables
            .flat_map(|table| {
                let rows = cells.iter();
                let rows = rows.filter(|cell| {
                    cell.op
                        .guest()
                        .is_some_and(|op| table.operations.contains(op))
                });
                let rows: Vec<Cell> = rows.cloned().collect();
                section(report, &rows, clock, Some(table))
            })
            .collect()
    }
}

fn section(
    report: &Report,
    cells: &[Cell],
    clock: Clock,
    table: Option<&file::Table>,
) -> Vec<Section> {
    let Some(shown) = Shown::measured(cells, clock) else {
        return Vec::new();
    };
    let mut section = Section::new(&title(clock, table), explanation(cells, clock));
    let mut notes = Notes::default();
    let mut table = shown.table(report, &[Align::Right; 4]);
    push_rows(&mut table, &shown.operations, unit_remark(clock), |op| {
        let cells = shown.configs.iter().map(|it| shown.cell(it, op));
        cells.map(|cell| figure_cell(cell, &mut notes)).collect()
    });
    section.table(table);
    section.footnotes(notes.texts(report));
    vec![section]
}

/// Returns the title of a table of figures.
pub fn title(clock: Clock, table: Option<&file::Table>) -> String {
    match table {
        None => clock_title(clock).to_owned(),
        Some(table) => format!("{}, {}", table.title, clock_name(clock)),
    }
}

/// Returns the method of the figures of `clock`.
fn explanation(cells: &[Cell], clock: Clock) -> String {
    let ratio = |text: &str| {
        if has_ratios(cells, clock) {
            format!("{text}{}", clock.bare())
        } else {
            String::new()
        }
    };
    if clock.is_exact() {
        format!(
            "mean over batches (min..max if they differ), {}{}",
            reproduced(cells, clock),
            ratio("; × = times ")
        )
    } else {
        let ratio = ratio(", × = ratio to ");
        let paired = if ratio.is_empty() { "" } else { ", paired" };
        let interval = interval_words(cells, clock);
        let over = replicates(cells, clock);
        format!("median over {over}{ratio}{paired}; ± {interval}")
    }
}

/// Returns what figures of the wall clock are medians over.
pub fn replicates(cells: &[Cell], clock: Clock) -> &'static str {
    let figures = cells.iter().filter(|cell| cell.clock == clock);
    let mut figures = figures.filter_map(|cell| cell.value.figure());
    if figures.any(|figure| figure.hosts > 1) {
        "hosts"
    } else {
        "boots"
    }
}

/// Returns whether a figure has a ratio to the bare row.
pub fn has_ratios(cells: &[Cell], clock: Clock) -> bool {
    let mut figures = cells.iter().filter(|cell| cell.clock == clock);
    figures.any(|cell| cell.value.figure().is_some_and(|it| it.ratio.is_some()))
}

/// Returns the number of boots that gave the same figures of an exact clock, in words.
pub fn reproduced(cells: &[Cell], clock: Clock) -> String {
    let cells = cells.iter().filter(|cell| cell.clock == clock);
    let boots = cells.filter_map(|cell| Some(cell.value.figure()?.boots));
    match boots.min() {
        Some(boots) if boots > 1 => format!("same in {boots} boots"),
        _ => "not reproduced".to_owned(),
    }
}

/// Returns exits and host CPU time of one clock, if any are known.
pub fn costs(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let shown = Shown::new(cells, clock, |cell| {
        let figure = cell.value.figure();
        figure.is_some_and(|figure| figure.exits.is_some() || figure.host_cpu_ns.is_some())
    });
    let Some(shown) = shown else {
        return Vec::new();
    };
    let title = format!("Exits and host CPU time, {}", clock_name(clock));
    let explanation = "per operation (stream: per MB)";
    let mut section = Section::new(&title, explanation);
    let mut table = shown.table(report, &[Align::Right; 2]);
    for op in &shown.operations {
        let cells = shown.configs.iter().map(|it| shown.cell(it, *op));
        table.row(
            op.path(),
            cells.map(|cell| cost(cell.and_then(|cell| cell.value.figure()))),
        );
    }
    section.table(table);
    vec![section]
}

/// Returns the figures of one clock with the instructions that are excluded from them, if any are.
pub fn raw(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let raw_of = |cell: &Cell| cell.value.figure().and_then(|figure| figure.raw);
    let Some(shown) = Shown::new(cells, clock, |cell| raw_of(cell).is_some()) else {
        return Vec::new();
    };
    let title = format!(
        "With instructions that find the length of an instruction, {}",
        clock_name(clock)
    );
    let explanation = "the simulated processor does not report the length of an intercepted instruction, as \
                       processors do: what the hypervisor executes to find it is in these figures and in no other";
    let mut section = Section::new(&title, explanation);
    let mut table = shown.table(report, &[Align::Right]);
    for op in &shown.operations {
        let cells = shown.configs.iter().map(|it| shown.cell(it, *op));
        table.row(
            op.path(),
            cells.map(
                |cell| match cell.and_then(|cell| Some((cell, raw_of(cell)?))) {
                    Some((cell, raw)) => {
                        vec![Span::plain(figures::value(raw, cell.op, cell.clock))]
                    }
                    None => vec![Span::new(crate::document::ABSENT, Look::Faint)],
                },
            ),
        );
    }
    section.table(table);
    vec![section]
}

fn cost(figure: Option<&Figure>) -> Vec<Span> {
    let span = |text: Option<String>, look| match text {
        None => Span::new(crate::document::ABSENT, look),
        Some(text) => Span::new(text, look),
    };
    let exits = figure
        .and_then(|figure| figure.exits)
        .map(figures::quantity);
    let cpu = figure.and_then(|figure| figure.host_cpu_ns);
    vec![
        span(exits, Look::Plain),
        span(cpu.map(figures::nanoseconds), Look::Faint),
    ]
}

/// Adds a row for each operation, under a heading for each workload.
pub fn push_rows(
    table: &mut Table,
    operations: &[Operation],
    remark: impl Fn(Operation) -> String,
    mut cells: impl FnMut(Operation) -> Vec<TableCell>,
) {
    for workload in Workload::ALL {
        let operations = operations.iter().filter(|op| op.is_of(workload));
        for (index, op) in operations.enumerate() {
            if index == 0 {
                table.heading(workload.name(), remark(*op));
            }
            table.row(op.name(), cells(*op));
        }
    }
}

/// Returns a function that returns the question of the workload of an operation, with the unit of rates.
pub fn unit_remark(clock: Clock) -> impl Fn(Operation) -> String {
    move |op| {
        let question = op.workload().map_or("", Workload::question);
        match op.unit() {
            Unit::Time => question.to_owned(),
            Unit::Rate => format!("{question} In {}, more is better.", value::unit(op, clock)),
        }
    }
}

/// Returns value, spread, ratio and spread of the ratio; below them the range of an exact figure, and work between
/// its batches.
pub fn figure_cell(cell: Option<&Cell>, notes: &mut Notes) -> TableCell {
    match cell.map(|cell| (cell, &cell.value)) {
        None | Some((_, Value::Skip(_))) => Span::absent().into(),
        Some((_, Value::Failed(_))) => Span::new("failed", Look::Bad).into(),
        Some((cell, Value::Measured(figure))) => TableCell {
            parts: vec![
                estimate(cell, figure),
                Span::new(spread(figure), Look::Faint),
                ratio(cell, figure),
                Span::new(ratio_spread(cell, figure), Look::Faint),
            ],
            notes: notes.on(cell),
            below: [range(cell, figure), idle(cell, figure)]
                .into_iter()
                .flatten()
                .map(|text| format!("({text})"))
                .collect::<Vec<_>>()
                .join(" "),
        },
    }
}

/// Returns the figure, or its interval if the figure is too uncertain to be of use.
pub fn estimate(cell: &Cell, figure: &Figure) -> Span {
    if let Some(limit) = figure.resolution() {
        let limit = figures::value(limit, cell.op, cell.clock);
        return Span::new(format!("<{limit}"), Look::Faint);
    }
    match figure.interval.filter(|_| is_unusable(figure)) {
        Some(interval) => Span::new(
            figures::interval(interval.low, interval.high, cell.op, cell.clock),
            Look::Faint,
        ),
        None => {
            let value = figures::value(figure.estimate, cell.op, cell.clock);
            Span::new(value, Look::Strong)
        }
    }
}

/// Returns true if the interval reaches further than half the figure to one side.
pub fn is_unusable(figure: &Figure) -> bool {
    side(figure).is_some_and(|side| side > UNUSABLE)
}

/// Returns the larger side of the interval as a share of the figure.
pub fn side(figure: &Figure) -> Option<f64> {
    let interval = figure.interval.filter(|_| figure.estimate > 0.0)?;
    Some(interval.larger_side(figure.estimate))
}

/// Returns the larger side of the interval of the ratio to the bare row, or nothing where there is none.
pub fn ratio_spread(cell: &Cell, figure: &Figure) -> String {
    let ratio = figure.ratio.filter(|_| !cell.config.environment.is_bare());
    let side = ratio.and_then(|ratio| Some(ratio.interval?.larger_side(ratio.estimate)));
    let side = side.filter(|side| *side <= UNUSABLE);
    side.map_or(String::new(), |side| format!("±{}", figures::percent(side)))
}

/// Returns the level of the intervals of `cells`, in words: it depends on the number of boots.
pub fn interval_words(cells: &[Cell], clock: Clock) -> String {
    let figures = cells
        .iter()
        .filter(|cell| cell.clock == clock)
        .filter_map(|cell| Some(cell.value.figure()?.interval?.level));
    let levels: Vec<f64> = figures.collect();
    let least = levels.iter().copied().reduce(f64::min);
    let most = levels.iter().copied().reduce(f64::max);
    match least.zip(most) {
        None => "needs more boots".to_owned(),
        Some((least, most)) if least == most => format!("{} interval", figures::level(least)),
        Some((least, most)) => format!(
            "{} to {} interval, by boots",
            figures::level(least),
            figures::level(most)
        ),
    }
}

/// Returns the smallest and the largest batch of an exact figure, where batches differ.
pub fn range(cell: &Cell, figure: &Figure) -> Option<String> {
    if cell.clock.is_exact() && figure.resolution().is_none() {
        figures::range(figure.min, figure.max)
    } else {
        None
    }
}

/// Returns the time and the rate of work between the batches: bytes per instruction, or thousand megabytes per second.
pub fn idle(cell: &Cell, figure: &Figure) -> Option<String> {
    let Idle { time, bytes } = figure.idle?;
    let unit = if cell.clock.is_exact() {
        "B/insn"
    } else {
        "GB/s"
    };
    let time_text = figures::time(time, cell.clock);
    let rate = figures::quantity(bytes / time);
    Some(format!("+{time_text} idle, {rate} {unit}"))
}

/// Returns the larger side of the interval, or nothing where the interval is shown, or there is none.
pub fn spread(figure: &Figure) -> String {
    let side = side(figure).filter(|side| *side <= UNUSABLE && figure.resolution().is_none());
    side.map_or(String::new(), |side| format!("±{}", figures::percent(side)))
}

/// Returns the interval of a ratio that is too uncertain to be of use.
pub fn unusable_ratio(figure: &Figure) -> Option<Interval> {
    let ratio = figure.ratio?;
    let interval = ratio.interval?;
    (interval.larger_side(ratio.estimate) > UNUSABLE).then_some(interval)
}

/// Returns the ratio to the bare row, or its interval; nothing for the bare row itself.
pub fn ratio(cell: &Cell, figure: &Figure) -> Span {
    let Some(ratio) = figure.ratio.filter(|_| !cell.config.environment.is_bare()) else {
        return Span::default();
    };
    if let Some(interval) = unusable_ratio(figure) {
        let (low, high) = (
            figures::quantity(interval.low),
            figures::times(interval.high),
        );
        return Span::new(format!("{low}..{high}"), Look::Faint);
    }
    let cost = match cell.op.direction() {
        Direction::Less => ratio.estimate,
        Direction::More => 1.0 / ratio.estimate,
    };
    let is_other = |flag: &Flag| matches!(flag, Flag::OtherMechanism(_));
    let look = match cost {
        // A function call is not a good system call.
        _ if figure.flags.iter().any(is_other) => Look::Plain,
        cost if cost <= AS_GOOD => Look::Good,
        cost if cost <= DEAR => Look::Middling,
        _ => Look::Bad,
    };
    Span::new(figures::times(ratio.estimate), look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{figure, measured};
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;

    #[test]
    fn a_ratio_of_two_mechanisms_is_neither_good_nor_bad() {
        let look = |flags: Vec<Flag>| {
            let figure = Figure {
                flags,
                ..crate::fixture::figure_with_ratio(1.0, 0.001)
            };
            let cell = measured(EnvironmentId::SIM_KVM, Op::Getpid, figure.clone());
            ratio(&cell, &figure).look
        };
        assert_eq!(look(vec![]), Look::Good);
        let call = Flag::OtherMechanism("a function call is not a system call");
        assert_eq!(look(vec![call]), Look::Plain);
    }

    #[test]
    fn idle_work_stands_below_a_figure_in_the_units_of_its_clock() {
        let below = |environment, time| {
            let figure = Figure {
                idle: Some(Idle {
                    time,
                    bytes: 1_048_576.0,
                }),
                ..figure(1_200.0)
            };
            let cell = measured(environment, Op::Calloc1m, figure);
            figure_cell(Some(&cell), &mut Notes::default()).below
        };
        let exact = below(EnvironmentId::SIM, 131_089.0);
        assert_eq!(exact, "(+131,089 idle, 8.00 B/insn)");
        let wall = below(EnvironmentId::KVM, 52_000.0);
        assert_eq!(wall, "(+52.0 µs idle, 20.2 GB/s)");
    }
}
