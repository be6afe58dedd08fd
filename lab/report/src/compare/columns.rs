//! The columns of a comparison.

use super::{least_boots, more_boots};
use crate::columns::{Column, Get, Role};
use trapline_stats::compare::Row;
use trapline_stats::verdict::Assessment;

const fn column(name: &'static str, role: Role, get: Get<Row>) -> Column<Row> {
    Column {
        name,
        role,
        help: "",
        get,
    }
}

/// All columns. Their order is a contract: new ones are added at the end.
pub const COLUMNS: &[Column<Row>] = &[
    column(
        "workload",
        Role::Key,
        Get::Name(|row| Some(row.op.workload_name().to_owned())),
    ),
    column("operation", Role::Key, Get::Name(|row| Some(row.op.name()))),
    column(
        "clock",
        Role::Key,
        Get::Name(|row| Some(row.clock().to_string())),
    ),
    column(
        "unit",
        Role::Key,
        Get::Name(|row| Some(row.a.unit.to_owned())),
    ),
    column(
        "contender_a",
        Role::Key,
        Get::Name(|row| Some(row.a.config.to_string())),
    ),
    column(
        "contender_b",
        Role::Key,
        Get::Name(|row| Some(row.b.config.to_string())),
    ),
    column(
        "a",
        Role::Optional,
        Get::Number(|row| Some(row.a.value.figure()?.estimate)),
    ),
    column(
        "b",
        Role::Optional,
        Get::Number(|row| Some(row.b.value.figure()?.estimate)),
    ),
    column(
        "effect",
        Role::Optional,
        Get::Number(|row| Some(assessed(row)?.effect)),
    ),
    column(
        "low",
        Role::Optional,
        Get::Number(|row| Some(assessed(row)?.interval?.low)),
    ),
    column(
        "high",
        Role::Optional,
        Get::Number(|row| Some(assessed(row)?.interval?.high)),
    ),
    column("p", Role::Optional, Get::Number(|row| assessed(row)?.p)),
    column("q", Role::Optional, Get::Number(|row| assessed(row)?.q)),
    column(
        "verdict",
        Role::Measured,
        Get::Name(|row| {
            Some(
                assessed(row)
                    .map_or("undecided", |it| it.verdict.name())
                    .to_owned(),
            )
        }),
    ),
    column(
        "blocks",
        Role::Optional,
        Get::Count(|row| Some(assessed(row)?.blocks)),
    ),
    column(
        "method",
        Role::Optional,
        Get::Name(|row| Some(assessed(row)?.method.name().to_owned())),
    ),
    column(
        "more_boots",
        Role::Optional,
        Get::Count(|row| more_boots(assessed(row)?)),
    ),
    column(
        "reason",
        Role::Missing,
        Get::Sentence(|row| Some(row.outcome.as_ref().err()?.to_string())),
    ),
    column(
        "decisive_level",
        Role::Optional,
        Get::Number(|row| Some(assessed(row)?.decisive?.level)),
    ),
    column(
        "decisive_low",
        Role::Optional,
        Get::Number(|row| Some(assessed(row)?.decisive?.low)),
    ),
    column(
        "decisive_high",
        Role::Optional,
        Get::Number(|row| Some(assessed(row)?.decisive?.high)),
    ),
    column(
        "least_boots",
        Role::Optional,
        Get::Count(|row| least_boots(assessed(row)?)),
    ),
    column(
        "noise",
        Role::Optional,
        Get::Number(|row| Some(row.noise?.deviation)),
    ),
    column(
        "noise_runs",
        Role::Optional,
        Get::Count(|row| Some(row.noise?.runs)),
    ),
];

fn assessed(row: &Row) -> Option<&Assessment> {
    row.outcome.as_ref().ok()
}
