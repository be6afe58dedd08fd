//! Test cases of a comparison, one for each operation: a change for the worse fails, unsure and
//! missing comparisons are skipped.

use super::table::factor;
use super::{pair_name, verdict, CompareReport, Direction};
use crate::formats::{Case, Outcome, Remark, Suite};
use crate::junit::figure_lines;
use trapline_stats::compare::{NotComparable, Row};
use trapline_stats::verdict::{Assessment, Verdict};

/// Returns a suite for each pair of sides.
pub fn suites(compare: &CompareReport) -> Vec<Suite> {
    let mut suites: Vec<Suite> = Vec::new();
    for one in &compare.matches {
        let name = pair_name(one);
        if suites.last().is_none_or(|last| last.name != name) {
            suites.push(Suite {
                facts: facts(compare),
                name,
                cases: Vec::new(),
            });
        }
        let last = suites.last_mut();
        last.into_iter()
            .for_each(|suite| suite.cases.push(case(one)));
    }
    suites
}

fn facts(compare: &CompareReport) -> Vec<(String, String)> {
    let settings = &compare.settings;
    let own = [
        ("a", compare.a.clone()),
        ("b", compare.b.clone()),
        ("margin", settings.margin.to_string()),
        ("alpha", settings.alpha.to_string()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let host = compare.facts.iter();
    let host = host.map(|(name, value)| (format!("host/{name}"), value.clone()));
    own.into_iter().chain(host).collect()
}

fn case(one: &Row) -> Case {
    Case {
        time: None,
        class: pair_name(one),
        name: one.op.path(),
        outcome: outcome(one),
        output: output(one),
    }
}

fn outcome(one: &Row) -> Outcome {
    let remark = |kind: &str, message: String| Remark {
        kind: kind.to_owned(),
        message,
        text: String::new(),
    };
    match &one.outcome {
        Err(why @ NotComparable::Failed(_, failure)) => {
            Outcome::Broken(remark(failure.kind.name(), why.to_string()))
        }
        Err(why) => Outcome::Skipped(remark("undecided", why.to_string())),
        Ok(comparison) => match (comparison.verdict, Direction::of(one.op, comparison.effect)) {
            (Verdict::Changed, Direction::Worse) => {
                Outcome::Failed(remark("changed", words(one, comparison)))
            }
            (verdict @ (Verdict::Unsure | Verdict::RunsDiffer), _) => {
                Outcome::Skipped(remark(verdict.name(), words(one, comparison)))
            }
            (Verdict::Changed | Verdict::Equivalent | Verdict::RunsAgree, _) => Outcome::Passed,
        },
    }
}

/// Returns the verdict with its interval.
fn words(one: &Row, comparison: &Assessment) -> String {
    let interval = comparison.decisive.map_or_else(String::new, |interval| {
        let (low, high) = (factor(interval.low), factor(interval.high));
        format!(", adjusted interval {low} to {high}")
    });
    let (verdict, effect) = (verdict(one.op, comparison), factor(comparison.effect));
    format!("{verdict}, B/A {effect}{interval}")
}

/// Returns the verdict and the figures of both sides.
fn output(one: &Row) -> String {
    let verdict = one
        .outcome
        .as_ref()
        .map(|comparison| words(one, comparison));
    let verdict = verdict.map_or_else(|_| String::new(), |words| format!("{words}\n"));
    let side = |name: &str, lines: String| {
        if lines.is_empty() {
            String::new()
        } else {
            format!("{name}\n{lines}")
        }
    };
    format!(
        "{verdict}{}{}",
        side("A", figure_lines(&one.a)),
        side("B", figure_lines(&one.b))
    )
}
