//! JUnit XML: a suite per environment, a case per operation, a failure per change.

use super::{both, causes, difference, functions, percent, signed};
use crate::formats::{Case, JunitError, Outcome, Remark, Suite};
use trapline_gate::{Comparison, Row, Verdict};
use trapline_model::line::one_line;
use trapline_profile::{Change, Function};

/// Formats every row as a case.
///
/// # Errors
/// The XML cannot be written.
pub fn junit(comparison: &Comparison) -> Result<String, JunitError> {
    let notes = comparison.notes.iter().map(one_line);
    let causes = causes(comparison);
    let causes = causes
        .into_iter()
        .chain(notes)
        .collect::<Vec<_>>()
        .join("\n");
    let suite = |rows: &[Row]| Suite {
        name: rows[0].config.to_string(),
        facts: Vec::new(),
        cases: rows.iter().map(|row| case(row, &causes)).collect(),
    };
    let of_config = |one: &Row, other: &Row| one.config == other.config;
    let suites = comparison.rows.chunk_by(of_config).map(suite).collect();
    crate::formats::junit("trapline check", suites)
}

fn case(row: &Row, causes: &str) -> Case {
    Case {
        time: None,
        class: row.config.to_string(),
        name: one_line(&row.operation),
        outcome: outcome(row, causes),
        output: String::new(),
    }
}

/// Formats a line per function.
fn of_functions(row: &Row) -> String {
    let Some(functions) = functions(row) else {
        return String::new();
    };
    let line = |change: &Change| {
        let Function { component, name } = &change.function;
        one_line(format!(
            "{} {component} {name}",
            signed(change.difference())
        ))
    };
    let listed = functions.listed.iter().map(line);
    let lines = listed.chain(functions.rest).chain(functions.caveat);
    lines.map(|line| format!("\n{line}")).collect()
}

fn outcome(row: &Row, causes: &str) -> Outcome {
    let outcome = match row.verdict {
        Verdict::Same | Verdict::Tolerated => return Outcome::Passed,
        Verdict::Skipped => {
            return Outcome::Skipped(Remark {
                kind: row.verdict.name().to_owned(),
                message: row.reason.as_deref().map(one_line).unwrap_or_default(),
                text: String::new(),
            })
        }
        Verdict::Undetermined => Outcome::Broken,
        Verdict::Changed | Verdict::Vanished | Verdict::Appeared => Outcome::Failed,
    };
    let (old, new) = both(row);
    let change = format!("{} {}", difference(row), percent(row));
    let reason = row.reason.as_ref();
    let reason = reason.map_or(String::new(), |reason| format!("{}\n", one_line(reason)));
    outcome(Remark {
        kind: row.verdict.name().to_owned(),
        message: format!("{old} -> {new} {} ({})", row.unit, change.trim_end()),
        text: format!("{reason}{causes}{}", of_functions(row)),
    })
}
