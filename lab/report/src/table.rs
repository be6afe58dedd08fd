//! The table of one clock: operations down, environments across.

use crate::figures;
use crate::notes::Notes;
use crate::sheet::{Align, Group, Label, Look, Sheet, Span};
use trapline_abi::{Direction, Op, Unit, Workload};
use trapline_model::{names, Clock, EnvironmentId};
use trapline_stats::{value, Cell, Figure, Value};

/// Ratios up to this are as good as bare.
const AS_GOOD: f64 = 1.1;

/// Ratios above this stand out.
const DEAR: f64 = 10.0;

/// The cells of one clock that have anything to show, with the rows and columns
/// that they fill. A row or a column of nothing but skips is left out: below the
/// table it is said why.
pub struct Shown<'a> {
    cells: Vec<&'a Cell>,
    /// The rows.
    pub operations: Vec<Op>,
    /// The columns.
    pub environments: Vec<EnvironmentId>,
}

impl<'a> Shown<'a> {
    /// Everything but skips.
    pub fn measured(cells: &'a [Cell], clock: Clock) -> Option<Self> {
        Self::new(cells, clock, |cell| !matches!(cell.value, Value::Skip(_)))
    }

    /// `None` if no cell of `clock` is `wanted`.
    fn new(cells: &'a [Cell], clock: Clock, wanted: impl Fn(&Cell) -> bool) -> Option<Self> {
        let cells: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.clock == clock && wanted(cell))
            .collect();
        let has_op = |op: &Op| cells.iter().any(|cell| cell.op == *op);
        let has_environment = |id: &EnvironmentId| cells.iter().any(|cell| cell.environment == *id);
        let shown = Self {
            operations: Op::ALL.into_iter().filter(has_op).collect(),
            environments: EnvironmentId::ALL
                .into_iter()
                .filter(has_environment)
                .collect(),
            cells,
        };
        (!shown.cells.is_empty()).then_some(shown)
    }

    /// The cell in a column and a row, if it has anything to show.
    pub fn cell(&self, environment: EnvironmentId, op: Op) -> Option<&'a Cell> {
        let mut of_op = self.cells.iter().filter(|cell| cell.op == op);
        of_op.find(|cell| cell.environment == environment).copied()
    }

    /// The cells of a column, row by row.
    fn column(&self, environment: EnvironmentId) -> impl Iterator<Item = Option<&'a Cell>> + '_ {
        self.operations
            .iter()
            .map(move |op| self.cell(environment, *op))
    }
}

/// The sheet of `clock` with the notes on it; `None` if no cell has anything to
/// show.
pub fn table(cells: &[Cell], clock: Clock, unicode: bool) -> Option<(Sheet, Notes)> {
    let shown = Shown::measured(cells, clock)?;
    let mut notes = Notes::default();
    number_in_reading_order(&shown.cells, &mut notes);
    let mut groups = Vec::new();
    for environment in &shown.environments {
        let cells = shown.column(*environment);
        groups.push(Group {
            title: Span::new(environment.name(), Look::Strong),
            columns: vec![
                Align::Right,
                Align::Left,
                Align::Right,
                Align::Right,
                Align::Right,
            ],
            rows: cells.map(|cell| row(cell, &mut notes, unicode)).collect(),
        });
    }
    let sheet = Sheet {
        labels: labels(&shown.operations, clock),
        groups,
    };
    Some((sheet, notes))
}

/// What stands beside the figures of `clock`: exits and the host's CPU time;
/// `None` if neither is known of any.
pub fn costs(cells: &[Cell], clock: Clock, unicode: bool) -> Option<Sheet> {
    let shown = Shown::new(cells, clock, |cell| {
        let figure = cell.value.figure();
        figure.is_some_and(|figure| figure.exits.is_some() || figure.host_cpu_ns.is_some())
    })?;
    let row = |op: &Op| Label::Row(Span::new(names::path(*op), Look::Plain));
    let group = |environment: &EnvironmentId| Group {
        title: Span::new(environment.name(), Look::Strong),
        columns: vec![Align::Right, Align::Right],
        rows: shown
            .column(*environment)
            .map(|cell| cost(cell.and_then(|cell| cell.value.figure()), unicode))
            .collect(),
    };
    Some(Sheet {
        labels: shown.operations.iter().map(row).collect(),
        groups: shown.environments.iter().map(group).collect(),
    })
}

fn cost(figure: Option<&Figure>, unicode: bool) -> Vec<Span> {
    let exits = figure.and_then(|figure| figure.exits);
    let cpu = figure.and_then(|figure| figure.host_cpu_ns);
    let absent = if unicode { "–" } else { "-" };
    let exits = exits.map_or(absent.to_owned(), figures::quantity);
    let cpu = cpu.map_or(absent.to_owned(), |ns| figures::nanoseconds(ns, unicode));
    vec![Span::new(exits, Look::Plain), Span::new(cpu, Look::Faint)]
}

/// Gives the notes their numbers row by row, as they will be read.
fn number_in_reading_order(shown: &[&Cell], notes: &mut Notes) {
    for cell in shown {
        notes.on(cell);
    }
}

/// Operations below the names of their workloads.
pub fn labels(operations: &[Op], clock: Clock) -> Vec<Label> {
    let mut labels = Vec::new();
    for workload in Workload::ALL {
        let of_workload = operations.iter().filter(|op| op.workload() == workload);
        let rows: Vec<&Op> = of_workload.collect();
        if let Some(first) = rows.first() {
            labels.push(heading(workload, **first, clock));
        }
        labels.extend(
            rows.iter()
                .map(|op| Label::Row(Span::new(op.name(), Look::Plain))),
        );
    }
    labels
}

fn heading(workload: Workload, op: Op, clock: Clock) -> Label {
    let question = workload.question();
    let remark = match op.unit() {
        Unit::Time => question.to_owned(),
        Unit::Rate => format!("{question} In {}, more is better.", value::unit(op, clock)),
    };
    Label::Heading(
        Span::new(workload.name(), Look::Heading),
        Span::new(remark, Look::Faint),
    )
}

/// Value, marks, spread, ratio and the spread of the ratio; below them the range of an exact figure.
fn row(cell: Option<&Cell>, notes: &mut Notes, unicode: bool) -> Vec<Span> {
    let alone = |span| [vec![span], vec![Span::default(); 4]].concat();
    let absent = if unicode { "–" } else { "-" };
    let Some(cell) = cell else {
        return alone(Span::new(absent, Look::Faint));
    };
    match &cell.value {
        Value::Skip(_) => alone(Span::new(absent, Look::Faint)),
        Value::Failed(_) => alone(Span::new("failed", Look::Bad)),
        Value::Measured(figure) => vec![
            estimate(cell, figure, unicode),
            Span::new(marks(&notes.on(cell), unicode), Look::Faint),
            Span::new(spread(figure, unicode), Look::Faint),
            ratio(cell, figure, unicode),
            Span::new(ratio_spread(cell, figure, unicode), Look::Faint),
            Span::new(
                range(cell, figure).map_or(String::new(), |range| format!("({range})")),
                Look::Faint,
            ),
        ],
    }
}

fn estimate(cell: &Cell, figure: &Figure, unicode: bool) -> Span {
    match figure.resolution() {
        Some(limit) => {
            let limit = figures::value(limit, cell.op, cell.clock, unicode);
            Span::new(format!("<{limit}"), Look::Faint)
        }
        None => {
            let value = figures::value(figure.estimate, cell.op, cell.clock, unicode);
            Span::new(value, Look::Strong)
        }
    }
}

/// Returns the larger side of the interval of the ratio to the bare row, or nothing where there is none.
pub fn ratio_spread(cell: &Cell, figure: &Figure, unicode: bool) -> String {
    let sign = if unicode { "±" } else { "+-" };
    let ratio = figure.ratio.filter(|_| !cell.environment.is_bare());
    let side = ratio.and_then(|ratio| Some(ratio.interval?.larger_side(ratio.estimate)));
    side.map_or(String::new(), |side| {
        format!("{sign}{}", figures::percent(side))
    })
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

/// The smallest and the largest batch of an exact figure, where batches differ.
pub fn range(cell: &Cell, figure: &Figure) -> Option<String> {
    match cell.clock.is_exact() && figure.resolution().is_none() {
        true => figures::range(figure.min, figure.max),
        false => None,
    }
}

/// Returns the larger side of the interval, or nothing on an exact clock, whose figures are reproduced
/// and have no interval.
pub fn spread(figure: &Figure, unicode: bool) -> String {
    let sign = if unicode { "±" } else { "+-" };
    if figure.resolution().is_some() || figure.estimate <= 0.0 {
        return String::new();
    }
    let side = figure
        .interval
        .map(|interval| interval.larger_side(figure.estimate));
    side.map_or(String::new(), |side| {
        format!("{sign}{}", figures::percent(side))
    })
}

/// Returns the ratio to the bare row; nothing for the bare row itself.
pub fn ratio(cell: &Cell, figure: &Figure, unicode: bool) -> Span {
    let Some(ratio) = figure.ratio.filter(|_| !cell.environment.is_bare()) else {
        return Span::default();
    };
    let cost = match cell.op.direction() {
        Direction::Less => ratio.estimate,
        Direction::More => 1.0 / ratio.estimate,
    };
    let look = match cost {
        cost if cost <= AS_GOOD => Look::Good,
        cost if cost <= DEAR => Look::Middling,
        _ => Look::Bad,
    };
    Span::new(figures::times(ratio.estimate, unicode), look)
}

/// The numbers of notes as a mark: superscript, or in brackets.
pub fn marks(numbers: &[usize], unicode: bool) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    let text = numbers.join(",");
    match text.as_str() {
        "" => text,
        _ if !unicode => format!("[{text}]"),
        _ => {
            let raised = |c: char| c.to_digit(10).map_or('⋅', |digit| DIGITS[digit as usize]);
            text.chars().map(raised).collect()
        }
    }
}
