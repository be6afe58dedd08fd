//! The change of a run since the latest earlier one of the same configuration.

use super::remarks::differing_conditions;
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
/// wall clock in what the boots of both runs differ. `None` if there is no such run, or nothing is certain.
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
    let before = [store.load(earlier.id)?];
    let settings = Settings {
        seed: run.info.seed,
        ..Settings::default()
    };
    let after = std::slice::from_ref(run);
    let pairs = common(before.iter().chain(after));
    let (rows, mut remarks) = match_runs([&before, after], &pairs, (Design::Boots, &[]), &settings);
    let [exact, wall] = [true, false].map(|is_exact| {
        let rows = rows.iter().filter(|row| row.clock().is_exact() == is_exact);
        sentence(&rows.collect::<Vec<_>>(), earlier, is_exact)
    });
    if wall.is_some() {
        remarks.extend(differing_conditions(&before[0].info, &run.info));
    }
    let sentences: Vec<Change> = exact.into_iter().chain(wall).collect();
    if sentences.is_empty() {
        return Ok(None);
    }
    let has_changed = sentences.iter().any(|one| one.is_change);
    let mut lines: Vec<String> = sentences.into_iter().map(|one| one.text).collect();
    if has_changed {
        lines.extend(remarks.into_iter().next());
        // A command is not wrapped, so that it can be pasted.
        let mut lines: Vec<String> = lines
            .iter()
            .map(|line| textwrap::fill(line, terminal::width()))
            .collect();
        let anyway = if differing_conditions(&before[0].info, &run.info).is_empty() {
            ""
        } else {
            " --anyway"
        };
        lines.push(format!(
            "Details: trapline compare {} {}{anyway}{}",
            earlier.id,
            run.info.id,
            store_words(options)
        ));
        return Ok(Some(lines.join("\n")));
    }
    Ok(Some(lines.join("\n")))
}

/// A sentence about a change, or that there is none.
#[derive(Debug, PartialEq)]
struct Change {
    is_change: bool,
    text: String,
}

fn latest_of_same<'a>(runs: &'a [RunInfo], run: &'a RunInfo) -> Option<&'a RunInfo> {
    earlier_of_same(runs, run).find(|other| other.boots > 0)
}

/// Returns whether a figure changed: on an exact clock, where the effect is 1 only for equal digits, by any digit.
fn is_changed(row: &Row, assessment: &Assessment) -> bool {
    if row.clock().is_exact() {
        assessment.effect != 1.0
    } else {
        assessment.verdict == Verdict::RunsDiffer
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

/// Returns the sentence about the figures of exact clocks, or of the wall clock.
fn sentence(rows: &[&Row], earlier: &RunInfo, is_exact: bool) -> Option<Change> {
    let certain = rows.iter().filter_map(|row| {
        let assessment = row.outcome.as_ref().ok()?;
        (assessment.verdict != Verdict::Unsure).then_some((*row, assessment))
    });
    let certain: Vec<_> = certain.collect();
    let changed = certain.iter().filter(|(row, it)| is_changed(row, it));
    let changed: Vec<_> = changed.collect();
    let run = format!("run {}, {}", earlier.id, show::date(earlier.started_at));
    let figures = |count: usize| match (count, is_exact) {
        (1, true) => "1 figure".to_owned(),
        (1, false) => "1 figure on the wall clock".to_owned(),
        (all, true) => format!("{all} figures"),
        (all, false) => format!("{all} figures on the wall clock"),
    };
    let all = figures(certain.len());
    let text = match (certain.len(), changed.len()) {
        (0, _) => return None,
        (_, 0) if is_exact => format!("Unchanged since {run}: {all}"),
        (_, 0) => format!("Agrees with {run}: {all}"),
        (_, count) => {
            let named = changed.iter().take(MOST_NAMED).map(|(row, it)| {
                let (config, op) = (&row.b.config, row.op.path());
                format!("{config} {op} {}", change(it.effect))
            });
            let mut named: Vec<String> = named.collect();
            if count > MOST_NAMED {
                named.push(format!("{} more", count - MOST_NAMED));
            }
            let words = if is_exact {
                "Changed since"
            } else {
                "Differs from"
            };
            format!("{words} {run}: {count} of {all}: {}", named.join(", "))
        }
    };
    Some(Change {
        is_change: !changed.is_empty(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;
    use trapline_model::{Clock, EnvironmentId, RecordedRequest};
    use trapline_stats::{Cell, Value};
    use trapline_store::RunId;

    fn run(id: i64, boots_asked: Option<u32>, boots: u64) -> RunInfo {
        RunInfo {
            id: RunId(id),
            started_at: 951_782_400_000,
            finished_at: Some(951_782_401_000),
            request: RecordedRequest {
                boots: boots_asked,
                ..RecordedRequest::default()
            },
            boots,
            ..RunInfo::default()
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
            noise: None,
        }
    }

    #[test]
    fn only_certain_figures_are_counted() {
        let sentence = |rows: &[Row], is_exact| {
            let rows: Vec<&Row> = rows.iter().collect();
            sentence(&rows, &run(7, None, 4), is_exact)
        };
        let text =
            |rows: &[Row], is_exact| sentence(rows, is_exact).map(|it| (it.is_change, it.text));
        let equal = row(Op::Cpuid, 1.0, Verdict::Equivalent);
        let unsure = row(Op::PortIn, 1.1, Verdict::Unsure);
        let changed = row(Op::PortOut, 1.25, Verdict::Changed);
        assert_eq!(text(&[], true), None);
        assert_eq!(text(std::slice::from_ref(&unsure), true), None);
        let same = "Unchanged since run 7, 2000-02-29T00:00:00Z: 1 figure";
        let rows = [unsure.clone(), equal.clone()];
        assert_eq!(text(&rows, true), Some((false, same.to_owned())));
        let some = "Changed since run 7, 2000-02-29T00:00:00Z: 1 of 2 figures: sim/kvm exits/port-out 1.25×";
        let rows = [unsure.clone(), equal, changed.clone()];
        assert_eq!(text(&rows, true), Some((true, some.to_owned())));
        for (effect, expected) in [
            (1.0028, "+0.28%"),
            (0.999_961, "-0.0039%"),
            (1.061, "+6.1%"),
        ] {
            let digits = row(Op::PortOut, effect, Verdict::Equivalent);
            let (is_change, text) = text(&[digits], true).unwrap();
            assert!(is_change && text.ends_with(expected), "{text}");
        }
        let many = [&changed; 5].map(Clone::clone);
        let (_, many) = text(&many, true).unwrap();
        assert!(many.ends_with(", 2 more"), "{many}");
        let host = |verdict| {
            let mut row = row(Op::Getpid, 1.061, verdict);
            for cell in [&mut row.a, &mut row.b] {
                (cell.config, cell.clock) = (EnvironmentId::HOST.into(), Clock::Wall);
            }
            [row, unsure.clone()]
        };
        let differs = "Differs from run 7, 2000-02-29T00:00:00Z: 1 of 1 figure on the wall clock: host basic/getpid +6.1%";
        let found = text(&host(Verdict::RunsDiffer), false);
        assert_eq!(found, Some((true, differs.to_owned())));
        let agrees = "Agrees with run 7, 2000-02-29T00:00:00Z: 1 figure on the wall clock";
        let found = text(&host(Verdict::RunsAgree), false);
        assert_eq!(found, Some((false, agrees.to_owned())));
    }
}
