//! Records of a report: one for each cell, figures unformatted, names as in the JSON format.

use trapline_stats::{Cell, Figure, Value};

/// Name of a column, and its value for a cell.
type Column = (&'static str, fn(&Cell) -> String);

/// All columns. Their order is a contract: new ones are added at the end.
const COLUMNS: &[Column] = &[
    ("environment", |cell| {
        cell.config.environment.name().to_owned()
    }),
    ("workload", |cell| cell.op.workload().name().to_owned()),
    ("operation", |cell| cell.op.name().to_owned()),
    ("clock", |cell| cell.clock.name().to_owned()),
    ("unit", |cell| cell.unit.to_owned()),
    ("estimate", |cell| of_figure(cell, |it| Some(it.estimate))),
    ("low", |cell| of_figure(cell, |it| Some(it.interval?.low))),
    ("high", |cell| of_figure(cell, |it| Some(it.interval?.high))),
    ("min", |cell| of_figure(cell, |it| Some(it.min))),
    ("max", |cell| of_figure(cell, |it| Some(it.max))),
    ("p50", |cell| of_figure(cell, |it| Some(it.p50))),
    ("p90", |cell| of_figure(cell, |it| Some(it.p90))),
    ("p99", |cell| of_figure(cell, |it| Some(it.p99))),
    ("samples", |cell| of_figure(cell, |it| Some(it.samples))),
    ("boots", |cell| of_figure(cell, |it| Some(it.boots))),
    ("ratio", |cell| {
        of_figure(cell, |it| Some(it.ratio?.estimate))
    }),
    ("ratio_low", |cell| {
        of_figure(cell, |it| Some(it.ratio?.interval?.low))
    }),
    ("ratio_high", |cell| {
        of_figure(cell, |it| Some(it.ratio?.interval?.high))
    }),
    ("exits", |cell| of_figure(cell, |it| it.exits)),
    ("host_cpu_ns", |cell| of_figure(cell, |it| it.host_cpu_ns)),
    ("flags", |cell| of_figure(cell, |it| Some(flags(it)))),
    ("skip", |cell| match &cell.value {
        Value::Skip(reason) => reason.to_string(),
        _ => String::new(),
    }),
    ("failure", |cell| match &cell.value {
        Value::Failed(failure) => failure.kind.name().to_owned(),
        _ => String::new(),
    }),
    ("failed", |cell| match &cell.value {
        Value::Failed(failure) => failure.reason.to_string(),
        _ => String::new(),
    }),
    ("settings", |cell| cell.config.overrides.to_string()),
    ("level", |cell| {
        of_figure(cell, |it| Some(it.interval?.level))
    }),
    ("ratio_level", |cell| {
        of_figure(cell, |it| Some(it.ratio?.interval?.level))
    }),
    ("idle_time", |cell| {
        of_figure(cell, |it| Some(it.idle?.time))
    }),
    ("idle_bytes", |cell| {
        of_figure(cell, |it| Some(it.idle?.bytes))
    }),
];

/// Names of the columns.
pub const HEADER: &[&str] = &{
    let mut names = [""; COLUMNS.len()];
    let mut column = 0;
    while column < names.len() {
        names[column] = COLUMNS[column].0;
        column += 1;
    }
    names
};

/// Returns a record for each cell.
pub fn records(cells: &[Cell]) -> Vec<Vec<String>> {
    let record = |cell| COLUMNS.iter().map(|(_, value)| value(cell)).collect();
    cells.iter().map(record).collect()
}

/// Returns a value of the figure of a cell; empty without one.
fn of_figure<T: ToString>(cell: &Cell, value: impl Fn(&Figure) -> Option<T>) -> String {
    let value = cell.value.figure().and_then(value);
    value.map_or_else(String::new, |value| value.to_string())
}

fn flags(figure: &Figure) -> String {
    let flags: Vec<_> = figure.flags.iter().map(|flag| flag.name()).collect();
    flags.join(" ")
}
