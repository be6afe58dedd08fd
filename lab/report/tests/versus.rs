//! A comparison in all its forms.

use std::collections::BTreeMap;
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_report::versus::{bencher, csv, json, junit, markdown, terminal, Counts, Versus};
use trapline_report::Style;
use trapline_stats::contest::{Match, Undecided};
use trapline_stats::judge::{Comparison, Method, Outlook, Settings, Side, Verdict};
use trapline_stats::order::Interval;
use trapline_stats::{value, Cell, Figure, Value};

fn cell(environment: EnvironmentId, op: Op, estimate: f64) -> Cell {
    Cell {
        environment,
        op,
        clock: environment.clock(),
        unit: value::unit(op, environment.clock()),
        value: Value::Measured(Box::new(Figure {
            estimate,
            interval: Some(Interval {
                level: 0.95,
                low: estimate,
                high: estimate,
            }),
            min: estimate,
            max: estimate,
            p50: estimate,
            p90: estimate,
            p99: estimate,
            samples: 200,
            boots: 10,
            ratio: None,
            exits: None,
            host_cpu_ns: None,
            flags: Vec::new(),
        })),
    }
}

fn told(verdict: Verdict, effect: f64, outlook: Option<Outlook>) -> Comparison {
    let interval = Interval {
        level: 0.95,
        low: effect - 0.01,
        high: effect + 0.01,
    };
    Comparison {
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
        blocks: 10,
        boots: (10, 10),
        lone: (0, 0),
        spread: Some(1.01),
        outlook,
    }
}

fn one(op: Op, a: f64, b: f64, outcome: Result<Comparison, Undecided>) -> Match {
    Match {
        op,
        contenders: [EnvironmentId::Kvm.into(), EnvironmentId::QemuKvm.into()],
        a: cell(EnvironmentId::Kvm, op, a),
        b: cell(EnvironmentId::QemuKvm, op, b),
        outcome,
    }
}

fn versus() -> Versus {
    let more = Some(Outlook::MoreBoots(12));
    Versus {
        version: "0.1.0".to_owned(),
        facts: BTreeMap::from([("cpu".to_owned(), "a\u{1b}[31mfast one".to_owned())]),
        a: "kvm".to_owned(),
        b: "qemu-kvm".to_owned(),
        settings: Settings::default(),
        matches: vec![
            one(
                Op::Getpid,
                40.0,
                40.1,
                Ok(told(Verdict::Equivalent, 1.0025, None)),
            ),
            one(
                Op::PortOut,
                2_000.0,
                9_000.0,
                Ok(told(Verdict::Changed, 4.5, None)),
            ),
            one(
                Op::PortIn,
                2_000.0,
                2_030.0,
                Ok(told(Verdict::Unsure, 1.015, more)),
            ),
            one(
                Op::TimerWake,
                1.0,
                1.0,
                Err(Undecided::Skipped(Side::B, "nobody halts".to_owned())),
            ),
            one(
                Op::Triad,
                10_000.0,
                12_000.0,
                Ok(told(Verdict::Changed, 1.2, None)),
            ),
        ],
        remarks: vec!["A remark.".to_owned()],
    }
}

#[test]
fn people_see_verdicts_and_what_would_settle_the_rest() {
    let text = terminal(&versus(), &Style::default());
    for words in [
        " A  kvm",
        " B  qemu-kvm",
        "equivalent: within ±2%",
        "4.500",
        "1.005..1.025",
        "changed: more",
        "changed: faster",
        "unsure: +12 boots",
        "1 changed for the worse, 1 changed for the better, 1 equivalent, 1 unsure, 1 not",
        "A remark.",
        "exits/timer-wake: the second contender was not measured: nobody halts",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
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
    assert!(terminal(&versus(), &plain).is_ascii());
}

#[test]
fn counts_and_boots_are_of_the_whole_table() {
    let expected = Counts {
        better: 1,
        worse: 1,
        equivalent: 1,
        unsure: 1,
        undecided: 1,
    };
    assert_eq!(versus().counts(), expected);
    assert_eq!(versus().more_boots(), Some(12));
    let nothing = Versus {
        matches: Vec::new(),
        ..versus()
    };
    assert_eq!(nothing.headline(), "Nothing was measured of both.");
}

#[test]
fn programs_read_the_same() {
    let told: serde_json::Value = serde_json::from_str(&json(&versus())).unwrap();
    assert_eq!(told["counts"]["changed"], 2);
    let port_out = &told["operations"][1];
    assert_eq!(port_out["verdict"], "changed");
    assert_eq!(port_out["direction"], "worse");
    assert_eq!(port_out["effect"], 4.5);
    assert_eq!(port_out["a"]["estimate"], 2_000.0);
    assert_eq!(
        port_out["contenders"],
        serde_json::json!(["kvm", "qemu-kvm"])
    );
    assert_eq!(told["operations"][2]["more_boots"], 12);
    assert_eq!(told["operations"][3]["verdict"], "undecided");
    let lines = csv(&versus());
    assert_eq!(lines.lines().count(), 6, "{lines}");
    assert!(lines.contains(
        "exits,port-out,wall,ns,kvm,qemu-kvm,2000,9000,4.5,4.49,4.51,0.004,0.008,changed,10,"
    ));
    let page = markdown(&versus());
    assert!(
        page.contains("| exits/port-out (wall) | 2.00 µs | 9.00 µs | 4.500 |"),
        "{page}"
    );
}

#[test]
fn services_see_what_changed_for_the_worse_as_a_failure() {
    let mut versus = versus();
    versus.matches.push(one(
        Op::PortIn,
        1.0,
        1.0,
        Err(Undecided::Skipped(Side::B, "<no> \u{1b}[1m&".to_owned())),
    ));
    let xml = junit(&versus).unwrap();
    for words in [
        "tests=\"6\" failures=\"1\" errors=\"0\"",
        "<testcase name=\"basic/getpid\" classname=\"qemu-kvm against kvm\">",
        "<failure message=\"changed: more, B/A 4.500, adjusted interval 4.490 to 4.510\" type=\"changed\"/>",
        "<skipped message=\"unsure: +12 boots, B/A 1.015, adjusted interval 1.005 to 1.025\" type=\"unsure\"/>",
        "<skipped message=\"the second contender was not measured: nobody halts\" type=\"undecided\"/>",
        "not measured: &lt;no&gt; &amp;\" type=\"undecided\"/>",
        "changed: faster, B/A 1.200",
        "<property name=\"host/cpu\" value=\"afast one\"/>",
    ] {
        assert!(xml.contains(words), "{words} is not in\n{xml}");
    }
}

#[test]
fn bencher_has_the_figures_of_both_sides() {
    let told: serde_json::Value = serde_json::from_str(&bencher(&versus())).unwrap();
    assert_eq!(told["kvm/exits/port-out"]["latency"]["value"], 2_000.0);
    assert_eq!(told["qemu-kvm/exits/port-out"]["latency"]["value"], 9_000.0);
    let throughput = &told["qemu-kvm/stream/triad"]["throughput"];
    assert_eq!(throughput["upper_value"], 12_000.0);
}
