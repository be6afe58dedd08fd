//! The comparison as JUnit XML: a case an operation, and what changed for the worse a
//! failure. What is unsure or was not compared says nothing, and is skipped.

use super::table::factor;
use super::{verdict, Direction, Versus};
use crate::junit::told;
use trapline_ci::{Case, JunitError, Outcome, Remark, Suite};
use trapline_model::{names, Contender};
use trapline_stats::contest::{Match, Undecided};
use trapline_stats::judge::{Comparison, Verdict};

/// Every operation as a case, in a suite of those who are compared.
///
/// # Errors
/// The XML cannot be written.
pub fn junit(versus: &Versus) -> Result<String, JunitError> {
    let mut suites: Vec<Suite> = Vec::new();
    for one in &versus.matches {
        let name = class(&one.contenders);
        if suites.last().is_none_or(|last| last.name != name) {
            suites.push(Suite {
                facts: facts(versus),
                name,
                cases: Vec::new(),
            });
        }
        let last = suites.last_mut();
        last.into_iter()
            .for_each(|suite| suite.cases.push(case(one)));
    }
    trapline_ci::junit("trapline compare", suites)
}

/// Who is compared; once where both are the same in two runs.
fn class([a, b]: &[Contender; 2]) -> String {
    match a == b {
        true => b.to_string(),
        false => format!("{b} against {a}"),
    }
}

fn facts(versus: &Versus) -> Vec<(String, String)> {
    let settings = &versus.settings;
    let own = [
        ("a", versus.a.clone()),
        ("b", versus.b.clone()),
        ("margin", settings.margin.to_string()),
        ("alpha", settings.alpha.to_string()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let host = versus.facts.iter();
    let host = host.map(|(name, value)| (format!("host/{name}"), value.clone()));
    own.into_iter().chain(host).collect()
}

fn case(one: &Match) -> Case {
    Case {
        class: class(&one.contenders),
        name: names::path(one.op),
        outcome: outcome(one),
        told: output(one),
    }
}

fn outcome(one: &Match) -> Outcome {
    let remark = |kind: &str, message: String| Remark {
        kind: kind.to_owned(),
        message,
        text: String::new(),
    };
    match &one.outcome {
        Err(why @ Undecided::Failed(_, failure)) => {
            Outcome::Broken(remark(failure.kind.name(), why.to_string()))
        }
        Err(why) => Outcome::Skipped(remark("undecided", why.to_string())),
        Ok(told) => match (told.verdict, Direction::of(one.op, told.effect)) {
            (Verdict::Changed, Direction::Worse) => {
                Outcome::Failed(remark("changed", words(one, told)))
            }
            (Verdict::Unsure, _) => Outcome::Skipped(remark("unsure", words(one, told))),
            (Verdict::Changed | Verdict::Equivalent, _) => Outcome::Passed,
        },
    }
}

/// The verdict with what it rests on.
fn words(one: &Match, told: &Comparison) -> String {
    let interval = told.decisive.map_or_else(String::new, |interval| {
        let (low, high) = (factor(interval.low), factor(interval.high));
        format!(", adjusted interval {low} to {high}")
    });
    let (verdict, effect) = (verdict(one.op, told), factor(told.effect));
    format!("{verdict}, B/A {effect}{interval}")
}

/// The verdict, and the figures of both.
fn output(one: &Match) -> String {
    let verdict = one.outcome.as_ref().map(|told| words(one, told));
    let verdict = verdict.map_or_else(|_| String::new(), |words| format!("{words}\n"));
    let side = |name: &str, lines: String| match lines.is_empty() {
        true => String::new(),
        false => format!("{name}\n{lines}"),
    };
    format!(
        "{verdict}{}{}",
        side("A", told(&one.a)),
        side("B", told(&one.b))
    )
}
