//! A comparison in all its forms.

use crate::snapshot;

use snapshot::assert_snapshot;
use std::collections::BTreeMap;
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_report::compare::{CompareReport, Counts};
use trapline_report::{render, Format, Style};
use trapline_stats::compare::{NotComparable, Row, RunNoise};
use trapline_stats::order::Interval;
use trapline_stats::verdict::{Assessment, Design, Method, RequiredBoots, Settings, Side, Verdict};
use trapline_stats::{value, Cell, Figure, Value};

fn rendered(compare: &CompareReport, format: Format) -> String {
    render(&compare.document(), format).unwrap()
}

fn cell(environment: EnvironmentId, op: Op, estimate: f64) -> Cell {
    Cell {
        config: environment.into(),
        op: op.into(),
        clock: environment.clock(),
        unit: value::unit(op, environment.clock()),
        value: Value::Measured(Box::new(Figure {
            estimate,
            raw: None,
            layouts: None,
            interval: Some(Interval {
                level: 0.95,
                low: estimate,
                high: estimate,
            }),
            min: estimate,
            max: estimate,
            p50: estimate,
            p90: None,
            p99: None,
            samples: 200,
            boots: 10,
            hosts: 1,
            medians: Vec::new(),
            ratio: None,
            exits: None,
            host_cpu_ns: None,
            idle: None,
            components: None,
            flags: Vec::new(),
        })),
    }
}

fn comparison(verdict: Verdict, effect: f64, required: Option<RequiredBoots>) -> Assessment {
    let interval = Interval {
        level: 0.95,
        low: effect - 0.01,
        high: effect + 0.01,
    };
    Assessment {
        verdict,
        effect,
        interval: Some(interval),
        decisive: Some(interval),
        p: Some(0.004),
        q: Some(0.008),
        p_equivalent: Some(0.5),
        q_equivalent: Some(0.5),
        tail: None,
        within_margin: false,
        method: Method::BlockBootstrap,
        design: Some(Design::Blocked),
        blocks: 10,
        boots: (10, 10),
        unmatched: (0, 0),
        spread: Some(1.01),
        required,
    }
}

fn one(op: Op, a: f64, b: f64, outcome: Result<Assessment, NotComparable>) -> Row {
    Row {
        op: op.into(),
        a: cell(EnvironmentId::KVM, op, a),
        b: cell(EnvironmentId::QEMU_KVM, op, b),
        outcome,
        noise: None,
    }
}

fn compare() -> CompareReport {
    let more = Some(RequiredBoots::MoreBoots(12));
    CompareReport {
        version: "0.1.0".to_owned(),
        facts: BTreeMap::from([("cpu".to_owned(), "a\u{1b}[31mfast one".to_owned())]),
        a: "kvm".to_owned(),
        b: "qemu-kvm".to_owned(),
        settings: Settings::default(),
        design: Design::Blocked,
        matches: vec![
            one(
                Op::Getpid,
                40.0,
                40.1,
                Ok(comparison(Verdict::Equivalent, 1.0025, None)),
            ),
            one(
                Op::PortOut,
                2_000.0,
                9_000.0,
                Ok(comparison(Verdict::Changed, 4.5, None)),
            ),
            one(
                Op::PortIn,
                2_000.0,
                2_030.0,
                Ok(comparison(Verdict::Unsure, 1.015, more)),
            ),
            one(
                Op::TimerWake,
                1.0,
                1.0,
                Err(NotComparable::Skipped(
                    Side::B,
                    "no halt instruction".to_owned(),
                )),
            ),
            one(
                Op::Triad,
                10_000.0,
                12_000.0,
                Ok(comparison(Verdict::Changed, 1.2, None)),
            ),
        ],
        remarks: vec!["A remark.".to_owned()],
    }
}

#[test]
fn text_fits_80_columns_and_has_no_escape_sequences() {
    let text = rendered(&compare(), Format::Text(Style::default()));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(
        !text.contains('\u{1b}'),
        "what the host is called commands a terminal"
    );
    let plain = Style {
        unicode: false,
        ..Style::default()
    };
    assert!(rendered(&compare(), Format::Text(plain)).is_ascii());
}

#[test]
fn counts_and_boots_are_of_the_whole_table() {
    let expected = Counts {
        better: 1,
        worse: 1,
        equivalent: 1,
        runs_differ: 0,
        runs_agree: 0,
        unsure: 1,
        undecided: 1,
    };
    assert_eq!(compare().counts(), expected);
    assert_eq!(compare().more_boots(), Some(12));
    let nothing = CompareReport {
        matches: Vec::new(),
        ..compare()
    };
    assert_eq!(nothing.headline(), "Nothing was measured of both.");
}

#[test]
fn formats_match_their_snapshots() {
    assert_snapshot("compare.json", &rendered(&compare(), Format::Json));
    assert_snapshot(
        "compare.txt",
        &rendered(&compare(), Format::Text(Style::default())),
    );
    assert_snapshot("compare.md", &rendered(&compare(), Format::Markdown));
    assert_snapshot("compare.csv", &rendered(&compare(), Format::Csv));
}

/// Boots of two runs, and the noise between runs where it is known.
#[test]
fn few_runs_differ_or_agree() {
    let mut compare = compare();
    (compare.design, compare.a, compare.b) =
        (Design::Boots, "run 1: kvm".into(), "run 2: kvm".into());
    for row in &mut compare.matches {
        if let Ok(found) = &mut row.outcome {
            found.design = Some(Design::Boots);
            found.required = None;
            found.verdict = match found.verdict {
                Verdict::Changed => Verdict::RunsDiffer,
                Verdict::Equivalent => Verdict::RunsAgree,
                other => other,
            };
        }
    }
    // Of another environment.
    let other = &mut compare.matches[4];
    for cell in [&mut other.a, &mut other.b] {
        cell.config = EnvironmentId::QEMU_TCG.into();
    }
    compare.matches[1].noise = Some(RunNoise {
        runs: 4,
        deviation: 0.0123,
    });
    let counts = compare.counts();
    assert_eq!(
        (counts.runs_differ, counts.runs_agree, counts.worse),
        (2, 1, 0)
    );
    assert_snapshot(
        "compare-runs.txt",
        &rendered(&compare, Format::Text(Style::default())),
    );
    let json: serde_json::Value = serde_json::from_str(&rendered(&compare, Format::Json)).unwrap();
    assert_eq!(json["replicate"], "boot");
    assert_eq!(json["operations"][1]["verdict"], "runs-differ");
    assert_eq!(json["operations"][1]["noise"]["runs"], 4);
    assert!(!rendered(&compare, Format::Junit).contains("<failure"));
}

#[test]
fn change_for_the_worse_is_a_junit_failure() {
    let mut compare = compare();
    compare.matches.push(one(
        Op::PortIn,
        1.0,
        1.0,
        Err(NotComparable::Skipped(
            Side::B,
            "<no> \u{1b}[1m&".to_owned(),
        )),
    ));
    let xml = rendered(&compare, Format::Junit);
    assert_snapshot("compare.xml", &xml);
}

#[test]
fn bencher_has_the_figures_of_both_sides() {
    let value: serde_json::Value =
        serde_json::from_str(&rendered(&compare(), Format::Bencher)).unwrap();
    assert_eq!(value["kvm/exits/port-out"]["latency"]["value"], 2_000.0);
    assert_eq!(
        value["qemu-kvm/exits/port-out"]["latency"]["value"],
        9_000.0
    );
    let throughput = &value["qemu-kvm/stream/triad"]["throughput"];
    assert_eq!(throughput["upper_value"], 12_000.0);
}
