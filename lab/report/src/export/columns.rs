//! The columns of an export, described by docs/export.md.

use crate::export::rows::Row;
use trapline_stats::value;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The name.
    pub name: &'static str,
    /// Returns the value of a row.
    pub get: Get,
}

/// The type of a column, with the function that returns its value.
#[derive(Clone, Copy, Debug)]
pub enum Get {
    /// A text.
    Text(for<'a> fn(&Row<'a>) -> &'a str),
    /// A count that is always there.
    Count(fn(&Row<'_>) -> u64),
    /// A count that may be unknown.
    MaybeCount(fn(&Row<'_>) -> Option<u64>),
    /// A number that is always there.
    Number(fn(&Row<'_>) -> f64),
    /// A number that may be unknown.
    MaybeNumber(fn(&Row<'_>) -> Option<f64>),
}

/// Every column, in order.
pub const COLUMNS: [Column; 24] = [
    count("run", |row| row.part.run),
    text("environment", |row| row.part.seen.config.environment.name()),
    text("settings", |row| &row.part.settings),
    count("boot", |row| row.part.seen.replicate.into()),
    text("clock", |row| row.part.seen.clock.name()),
    text("workload", |row| row.part.op.workload_name()),
    text("operation", |row| &row.part.name),
    text("unit", |row| value::unit(row.part.op, row.part.seen.clock)),
    count("number", |row| row.number),
    count("start_tick", |row| row.sample.start),
    count("end_tick", |row| row.sample.end),
    count("count", |row| row.sample.count),
    count("excluded_ticks", |row| row.sample.excluded),
    maybe_count("host_ns", |row| row.sample.host_ns),
    Column {
        name: "value",
        get: Get::MaybeNumber(figure),
    },
    Column {
        name: "unit_per_tick",
        get: Get::Number(|row| row.part.seen.unit_per_tick),
    },
    count("clock_cost", |row| row.part.clock_cost),
    count("loop_cost", |row| row.part.calibration.loop_cost),
    text("checksum", |row| &row.part.checksum),
    maybe_count("exits", |row| row.part.exits),
    maybe_count("host_cpu_ns", |row| row.part.host_cpu_ns),
    maybe_count("idle_ticks", |row| Some(row.part.idle?.ticks)),
    maybe_count("idle_bytes", |row| Some(row.part.idle?.bytes)),
    text("host", |row| &row.part.seen.host),
];

const fn text(name: &'static str, of: for<'a> fn(&Row<'a>) -> &'a str) -> Column {
    Column {
        name,
        get: Get::Text(of),
    }
}

const fn count(name: &'static str, of: fn(&Row<'_>) -> u64) -> Column {
    Column {
        name,
        get: Get::Count(of),
    }
}

const fn maybe_count(name: &'static str, of: fn(&Row<'_>) -> Option<u64>) -> Column {
    Column {
        name,
        get: Get::MaybeCount(of),
    }
}

/// Returns the figure of the batch, in its unit.
fn figure(row: &Row<'_>) -> Option<f64> {
    let calibration = &row.part.calibration;
    calibration.value(row.part.op.unit(), &row.sample)
}
