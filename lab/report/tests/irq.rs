//! Snapshots of the output formats of a report of interrupts. `TRAPLINE_BLESS=1 cargo test` updates
//! them.

use crate::{formats, made_up, snapshot};

use expect_test::expect;
use formats::{json, junit, markdown, terminal};
use snapshot::assert_snapshot;
use trapline_model::{Conditions, EnvironmentId, Halt, PerCpu, Scheduling};
use trapline_report::{page, verdicts, Report, Style};
use trapline_stats::irq::{Point, Proof};

#[test]
fn the_terminal_form_of_interrupts() {
    let text = terminal(&made_up::report("99.8%"), &Style::default());
    assert_snapshot("irq-80.txt", &text);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 80), "{text}");
    let plain = Style {
        unicode: false,
        ..Style::default()
    };
    let text = terminal(&made_up::report("99.8%"), &plain);
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn colour_changes_nothing_but_colour() {
    let report = made_up::report("99.8%");
    let coloured = terminal(
        &report,
        &Style {
            colour: true,
            ..Style::default()
        },
    );
    let plain: String = coloured
        .split('\x1b')
        .enumerate()
        .map(|(index, piece)| match index {
            0 => piece,
            _ => piece.split_once('m').map_or("", |(_, text)| text),
        })
        .collect();
    assert_eq!(plain, terminal(&report, &Style::default()));
}

/// Six of 3,000 are late by more than 30 us; of the guest's own timer two are missing, one of
/// them late. The first four are by the wall clock, own and host in turn.
#[test]
fn a_verdict_counts_missed_expiries_as_late() {
    let of = |require| -> Vec<Proof> {
        let verdicts = verdicts(&made_up::report(require));
        verdicts.iter().map(|verdict| verdict.proof).collect()
    };
    use Proof::{Met, NotMet, NotProven};
    assert_eq!(of("99.8%")[4..], [NotMet, Met]);
    assert_eq!(of("99.7%")[4..], [Met; 2]);
    assert_eq!(of("99.8%")[..4], [NotProven; 4]);
    assert_eq!(of("10%"), [Met; 6]);
    assert_eq!(of("100%"), [NotMet; 6]);
    assert_eq!(of("nothing"), []);
}

#[test]
fn a_verdict_on_the_wall_clock_has_its_interval_and_what_would_prove_it() {
    let of = |require| {
        let first = &verdicts(&made_up::report(require))[0];
        format!("{}\n  help: {}\n", first.words(), first.help().unwrap())
    };
    expect![[r#"
        host own: not proven, 2,993 of 3,000 in time (99.77%, interval 22.7-99.966%); 5 late, 2 missed
          help: 1,610 windows like these prove it: --samples 1648640 (takes 4.58 h)
        host own: not proven, 2,993 of 3,000 in time (99.77%, interval 22.7-99.966%); 5 late, 2 missed
          help: no number of such windows proves it; more may disprove it
    "#]].assert_eq(&["99.5%", "99.9%"].map(of).concat());
}

#[test]
fn a_verdict_on_an_exact_clock_has_neither() {
    let all = verdicts(&made_up::report("99.8%"));
    assert_eq!(
        all[4].words(),
        "sim/kvm own: not met, 2,993 of 3,000 in time (99.77%); 5 late, 2 missed"
    );
    assert_eq!(all[4].help(), None);
}

#[test]
fn the_page_has_the_intervals_and_verdicts_of_the_tables() {
    let report = made_up::report("99.8%");
    let text = page::page(&page::Source {
        report: &report,
        observations: &[],
        profiles: &[],
        run: &page::Run::default(),
    });
    let table = terminal(&report, &Style::default());
    let row = table
        .lines()
        .find(|line| line.starts_with(" host own        3,000"));
    let bursts = row.and_then(|row| row.split_whitespace().nth(6)).unwrap();
    assert!(text.contains(&format!(">{bursts}</td>")), "{bursts}");
    for verdict in verdicts(&report) {
        assert!(text.contains(&verdict.words()), "{}", verdict.words());
    }
}

#[test]
fn junit_skips_what_is_not_proven_and_fails_what_is_not_met() {
    let text = junit(&made_up::report("99.8%"));
    let count = |what: &str| text.matches(what).count();
    assert_eq!(count("not-proven"), 4, "{text}");
    assert_eq!(count("too-late"), 1, "{text}");
}

#[test]
fn the_json_form_has_all_of_it() {
    let text = json(&made_up::report("99.8%"));
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = document["interrupts"].as_array().unwrap();
    assert_eq!(all.len(), 6);
    let own = &all[2];
    assert_eq!(own["environment"], "kvm");
    assert_eq!(own["operation"], "own-timer");
    assert_eq!(own["unit"], "ns");
    assert_eq!(own["between"], "halt");
    assert_eq!(
        (&own["met"], &own["verdict"]),
        (&false.into(), &"not-proven".into())
    );
    assert_eq!(own["windows_to_prove"], serde_json::Value::Null);
    let interval = own["in_time_interval"].as_array().unwrap();
    let [low, high] = [0, 1].map(|end| interval[end].as_f64().unwrap());
    assert!(low < 0.5 && high < 1.0, "{own:#}");
    assert!(own["windows_per_block"].as_f64() >= Some(1.0));
    // 2,998 interrupts are too few for 99.9%.
    assert_eq!(own["summary"]["p999"], serde_json::Value::Null);
    assert_eq!(own["require"], "99.8%");
    assert_eq!(own["period"], 10_000_000.0);
    assert_eq!(own["threshold"], 30_000.0);
    assert_eq!(own["summary"]["missed"], 2);
    assert_eq!(own["summary"]["above"], 5);
    assert_eq!(own["summary"]["in_time"], 2_993);
    assert_eq!(own["windows"].as_array().unwrap().len(), 3);
    assert_eq!(own["windows"][2]["window"], 2);
    assert_eq!(own["unstamped"], serde_json::json!(["woke", "marked"]));
    assert_eq!(own["stages"].as_array().unwrap().len(), 3);
    assert_eq!(own["latest"][0]["expiry"], 2_499);
    assert_eq!(own["latest"][0]["woke"], serde_json::Value::Null);
    assert_eq!(own["due_uncertainty"]["max"], 156.0);
    let histogram = own["histogram"].as_array().unwrap();
    let counts = histogram.iter().map(|bucket| bucket[2].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 2_998);
    let host = &all[3];
    assert_eq!(host["stages"][0]["from"], "due");
    assert_eq!(host["stages"][0]["to"], "woke");
    assert_eq!(host["stages"][0]["mean"], 9_000.0);
    assert_eq!(host["latest"][0]["woke"], 9_000.0);
    let cells = document["cells"].as_array().unwrap();
    let of_host = cells
        .iter()
        .find(|cell| cell["environment"] == "kvm" && cell["operation"] == "host-timer");
    assert_eq!(of_host.unwrap()["p99"], host["summary"]["p99"]);
}

#[test]
fn handler_longer_than_the_period_is_reported() {
    let mut report = made_up::report("nothing");
    let value = |report: &Report| {
        let text = terminal(report, &Style::default());
        let words: Vec<_> = text.split_whitespace().collect();
        words.join(" ").contains("longer than the period of")
    };
    assert!(!value(&report));
    let spans = &mut report.interrupts[0].stages.spans;
    let of_handler = spans.iter_mut().find(|span| span.to == Point::Done);
    of_handler.expect("always present").p50 = 1e8;
    assert!(value(&report));
}

#[test]
fn no_requirement_gives_no_verdict() {
    let report = made_up::report("nothing");
    let document: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(document["interrupts"][0].get("met"), None);
    assert!(!terminal(&report, &Style::default()).contains("Verdict"));
    assert!(markdown(&report).contains("irq/own-timer"));
}

#[test]
fn reason_of_a_missing_stage_is_reported() {
    let mut report = made_up::report("nothing");
    let mut fact = |environment: EnvironmentId, name: &str, value: &str| {
        let facts = report.summary.facts.entry(environment.into()).or_default();
        facts.insert(name.into(), value.into());
    };
    fact(
        EnvironmentId::SIM_KVM,
        "irq-stages",
        "the host has no tracer",
    );
    fact(EnvironmentId::KVM, "irq-guest-entered", "5");
    let text = terminal(&report, &Style::default());
    let value: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "woke and marked not stamped: host own, kvm own",
        "woke and marked not stamped: sim/kvm own (the host has no tracer)",
        "entered 5 insn before its handler read the clock: kvm own",
    ] {
        assert!(value.contains(words), "{words}: {text}");
    }
    let facts = report
        .summary
        .facts
        .entry(EnvironmentId::SIM_KVM.into())
        .or_default();
    facts.insert("irq-stages".into(), "counted".into());
    assert!(!terminal(&report, &Style::default()).contains("(counted)"));
}

#[test]
fn conditions_loads_and_deadline_bound_are_reported() {
    let mut report = made_up::report("nothing");
    report.irq.conditions = Conditions {
        loads: "cpu:2,console-buffered".parse().unwrap(),
        per_cpu: PerCpu::Two,
    };
    report.irq.scheduling = Scheduling {
        sched: "deadline:3ms/10ms".parse().unwrap(),
        halt: Halt::InGuest,
        ..Scheduling::DEFAULT
    };
    let facts = report
        .summary
        .facts
        .entry(EnvironmentId::KVM.into())
        .or_default();
    let did = "1200 turns, 34 ms of CPU time";
    facts.insert("load-0-cpu".into(), did.into());
    let text = terminal(&report, &Style::default());
    let value: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "load console-buffered,cpu:2, scheduled deadline:3ms/10ms, halted without leaving the \
         guest, two virtual CPUs on one CPU",
        "kvm own: deadline:3ms/10ms promises at most 2P-2B = 14,000 µs until it runs",
        "sim/kvm own: deadline:3ms/10ms promises at most 2P-2B = 14,000,000 insn",
        "kvm: cpu 1200 turns, 34 ms of CPU time",
    ] {
        assert!(value.contains(words), "{words}: {text}");
    }
    let document: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
    let own = &document["interrupts"][0];
    assert_eq!(own["load"], "console-buffered,cpu:2");
    assert_eq!(own["sched"], "deadline:3ms/10ms");
    assert_eq!(
        (&own["between"], &own["vcpus_per_cpu"]),
        (&"halt-in-guest".into(), &2.into())
    );
    assert_eq!((&own["pin"], &own["bound"]), (&"free".into(), &14e6.into()));
    let plain = terminal(&made_up::report("nothing"), &Style::default());
    assert!(!plain.contains("load "), "{plain}");
}
