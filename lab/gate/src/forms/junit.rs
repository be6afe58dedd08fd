//! The form that services for continuous integration show: JUnit XML. A suite is
//! an environment, a case an operation, a failure a change.

use super::{both, causes, difference, functions, percent, signed};
use crate::compare::{Comparison, Row, Verdict};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use trapline_ledger::{Change, Function};
use trapline_plan::EnvironmentId;

/// The XML could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the comparison cannot be written as JUnit XML; choose another --format")]
pub struct JunitError(#[from] quick_junit::SerializeError);

/// Every row as a case.
///
/// # Errors
/// The XML cannot be written.
pub fn junit(comparison: &Comparison) -> Result<String, JunitError> {
    let mut report = Report::new("trapline check");
    let notes = comparison.notes.iter().cloned();
    let causes = causes(comparison);
    let causes = causes
        .into_iter()
        .chain(notes)
        .collect::<Vec<_>>()
        .join("\n");
    for id in EnvironmentId::ALL {
        let rows = comparison.rows.iter().filter(|row| row.environment == id);
        let cases: Vec<TestCase> = rows.map(|row| case(row, &causes)).collect();
        if !cases.is_empty() {
            let mut suite = TestSuite::new(id.name());
            suite.add_test_cases(cases);
            report.add_test_suite(suite);
        }
    }
    Ok(report.to_string()?)
}

fn case(row: &Row, causes: &str) -> TestCase {
    let mut case = TestCase::new(row.operation.as_str(), status(row, causes));
    case.set_classname(row.environment.name());
    case
}

/// A line a function.
fn of_functions(row: &Row) -> String {
    let Some(functions) = functions(row) else {
        return String::new();
    };
    let line = |change: &Change| {
        let Function { component, name } = &change.function;
        format!("{} {component} {name}", signed(change.difference()))
    };
    let told = functions.told.iter().map(line);
    let lines = told.chain(functions.rest).chain(functions.caveat);
    lines.map(|line| format!("\n{line}")).collect()
}

fn status(row: &Row, causes: &str) -> TestCaseStatus {
    let kind = match row.verdict {
        Verdict::Same | Verdict::Tolerated => return TestCaseStatus::success(),
        Verdict::Undetermined => NonSuccessKind::Error,
        Verdict::Changed | Verdict::Vanished | Verdict::Appeared => NonSuccessKind::Failure,
    };
    let (old, new) = both(row);
    let mut status = TestCaseStatus::non_success(kind);
    status
        .set_type(row.verdict.name())
        .set_message(format!(
            "{old} -> {new} {} ({} {})",
            row.unit,
            difference(row),
            percent(row)
        ))
        .set_description(format!(
            "{}{causes}{}",
            row.reason
                .as_ref()
                .map_or(String::new(), |reason| format!("{reason}\n")),
            of_functions(row)
        ));
    status
}
