//! The change of a run since the latest earlier one of the same configuration.

use super::stored::{common, match_runs};
use crate::args::StoreOptions;
use crate::outcome::store_words;
use crate::{show, terminal};
use trapline_report::figures;
use trapline_runner::run::earlier_of_same;
use trapline_runner::Failure;
use trapline_stats::compare::Row;
use trapline_stats::verdict::{Assessment, Design, Settings, Verdict};
use trapline_store::{Run, RunInfo, Store};

/// Most changed operations that are named.
const MOST_NAMED: usize = 3;

/// Returns what changed since the latest earlier run of the same configuration: on an exact clock every other digit, on the
/// wall clock what the tests of `trapline compare` say. `None` if there is no such run, or nothing is certain.
///
/// # Errors
/// The store cannot be read.
pub fn since(
    store: &mut Store,
    run: &Run,
    options: &StoreOptions,
) -> Result<Option<String>, Failure> {
    let runs = store.runs()?;
    let Some(earlier) = latest_of_same(&runs, &run.info) else {
        return Ok(None);
    };
    let before = store.load(earlier.id)?;
    let settings = Settings {
        seed: run.info.seed,
        ..Settings::default()
    };
    let pairs = common(&before, run);
    let (rows, remarks) = match_runs(&before, run, &pairs, Design::Independent, &settings);
    let Some(sentence) = sentence(&rows, earlier) else {
        return Ok(None);
    };
    let command = format!(
        "trapline compare {} {}{}",
        earlier.id,
        run.info.id,
        store_words(options)
    );
    Ok(Some(match sentence {
        Change::None(text) => text,
        Change::Some(text) => {
            let remark = remarks.first().map(|it| format!("\n{it}"));
            let text = text + &remark.unwrap_or_default();
            // A command is not wrapped, so that it can be pasted.
            let text = textwrap::fill(&text, terminal::width());
            format!("{text}\nDetails: {command}")
        }
    }))
}

/// A sentence about a change, or that there is none.
#[derive(Debug, PartialEq)]
enum Change {
    None(String),
    Some(String),
}

fn latest_of_same<'a>(runs: &'a [RunInfo], run: &'a RunInfo) -> Option<&'a RunInfo> {
    earlier_of_same(runs, run).find(|other| other.boots > 0)
}

/// Returns whether a figure changed: on an exact clock, where the effect is 1 only for equal digits, by any digit.
fn is_changed(row: &Row, assessment: &Assessment) -> bool {
    if row.clock().is_exact() {
        assessment.effect != 1.0
    } else {
        assessment.verdict == Verdict::Changed
    }
}

/// Returns the ratio, or a percentage of two digits if it is below a tenth.
fn change(effect: f64) -> String {
    let percent = (effect - 1.0) * 100.0;
    if percent.abs() >= 10.0 {
        return figures::times(effect);
    }
    let decimals = (1.0 - percent.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{percent:+.decimals$}%")
}

fn sentence(rows: &[Row], earlier: &RunInfo) -> Option<Change> {
    let certain = rows.iter().filter_map(|row| {
        let assessment = row.outcome.as_ref().ok()?;
        (assessment.verdict != Verdict::Unsure).then_some((row, assessment))
    });
    let certain: Vec<_> = certain.collect();
    let changed = certain.iter().filter(|(row, it)| is_changed(row, it));
    let changed: Vec<_> = changed.collect();
    let since = format!(
        "since run {}, {}",
        earlier.id,
        show::date(earlier.started_at)
    );
    match (certain.len(), changed.len()) {
        (0, _) => None,
        (1, 0) => Some(Change::None(format!("Unchanged {since}: 1 figure"))),
        (all, 0) => Some(Change::None(format!("Unchanged {since}: {all} figures"))),
        (all, count) => {
            let named = changed.iter().take(MOST_NAMED).map(|(row, it)| {
                let (config, op) = (&row.b.config, row.op.path());
                format!("{config} {op} {}", change(it.effect))
            });
            let mut named: Vec<String> = named.collect();
            if count > MOST_NAMED {
                named.push(format!("{} more", count - MOST_NAMED));
            }
            let named = named.join(", ");
            Some(Change::Some(format!(
                "Changed {since}: {count} of {all} figures: {named}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;
    use trapline_model::RecordedRequest;
    use trapline_stats::{Cell, Value};
    use trapline_store::RunId;

    fn run(id: i64, boots_asked: Option<u32>, boots: u64) -> RunInfo {
        RunInfo {
            id: RunId(id),
            started_at: 951_782_400_000,
            finished_at: Some(951_782_401_000),
            seed: 1,
            request: RecordedRequest {
                boots: boots_asked,
                ..RecordedRequest::default()
            },
            version: String::new(),
            facts: BTreeMap::new(),
            boots,
            owner: None,
            plan: None,
        }
    }

    #[test]
    fn the_latest_complete_run_of_the_same_request_is_the_earlier_one() {
        let mut runs = [
            run(1, None, 4),
            run(2, Some(2), 4),
            run(3, None, 0),
            run(4, None, 2),
            run(5, None, 4),
        ];
        runs[3].finished_at = None;
        let found = latest_of_same(&runs, &runs[4]).map(|run| run.id);
        assert_eq!(found, Some(RunId(1)));
        assert_eq!(latest_of_same(&runs, &runs[1]), None);
    }

    fn row(op: Op, effect: f64, verdict: Verdict) -> Row {
        let id = EnvironmentId::SIM_KVM;
        let cell = Cell {
            config: id.into(),
            op: op.into(),
            clock: id.clock(),
            unit: "insn",
            value: Value::Skip(String::new()),
        };
        let assessment = Assessment {
            verdict,
            ..Assessment::of_digits(effect, verdict == Verdict::Equivalent, (1, 1))
        };
        Row {
            op: op.into(),
            a: cell.clone(),
            b: cell,
            outcome: Ok(assessment),
        }
    }

    #[test]
    fn only_certain_figures_are_counted() {
        let sentence = |rows: &[Row]| sentence(rows, &run(7, None, 4));
        let equal = row(Op::Cpuid, 1.0, Verdict::Equivalent);
        let unsure = row(Op::PortIn, 1.1, Verdict::Unsure);
        let changed = row(Op::PortOut, 1.25, Verdict::Changed);
        assert_eq!(sentence(&[]), None);
        assert_eq!(sentence(std::slice::from_ref(&unsure)), None);
        let same = Change::None("Unchanged since run 7, 2000-02-29T00:00:00Z: 1 figure".to_owned());
        assert_eq!(sentence(&[unsure.clone(), equal.clone()]), Some(same));
        let some = "Changed since run 7, 2000-02-29T00:00:00Z: 1 of 2 figures: sim/kvm exits/port-out 1.25×";
        let some = Change::Some(some.to_owned());
        assert_eq!(sentence(&[unsure, equal, changed.clone()]), Some(some));
        for (effect, expected) in [
            (1.0028, "+0.28%"),
            (0.999_961, "-0.0039%"),
            (1.061, "+6.1%"),
        ] {
            let digits = row(Op::PortOut, effect, Verdict::Equivalent);
            let Some(Change::Some(text)) = sentence(&[digits]) else {
                panic!("{effect} is a change on an exact clock");
            };
            assert!(text.ends_with(expected), "{text}");
        }
        let many = [&changed; 5].map(Clone::clone);
        let Some(Change::Some(many)) = sentence(&many) else {
            panic!("five figures changed");
        };
        assert!(many.ends_with(", 2 more"), "{many}");
    }
}
