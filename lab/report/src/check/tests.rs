//! All formats of a comparison with every kind of row.

use super::*;
use expect_test::expect;
use trapline_gate::facts::RELEVANT_FACTS;
use trapline_gate::{FunctionChanges, Outcome};
use trapline_model::EnvironmentId;
use trapline_profile::Function;

fn row(environment: EnvironmentId, operation: &str, old: Option<f64>, new: Option<f64>) -> Row {
    let verdict = match (old, new) {
        (Some(old), Some(new)) if old == new => Verdict::Same,
        (Some(_), Some(_)) => Verdict::Changed,
        (Some(_), None) => Verdict::Vanished,
        (None, _) => Verdict::Appeared,
    };
    Row {
        config: environment.into(),
        operation: operation.to_owned(),
        unit: "insn".to_owned(),
        old,
        new,
        verdict,
        reason: new
            .is_none()
            .then(|| "the guest said \x1b[31m| *no*".to_owned()),
        explained: None,
    }
}

/// Adds functions: the first gained 20, the others lost one each.
fn explained(others: usize) -> Comparison {
    let change = |name: String, difference: f64| Change {
        function: Function {
            component: "trapline-vmm".to_owned(),
            name,
        },
        insn: (30.0, 30.0 + difference),
    };
    let long = "trapline_vmm::machine::Machine<trapline_kvm::vcpu::KvmVcpu>::run_loop";
    let small = (0..others).map(|number| change(format!("other_{number}"), -1.0));
    let mut comparison = some();
    let (old, new) = (3182.25, 3183.25);
    comparison.rows[2].explained = Some(FunctionChanges {
        changes: std::iter::once(change(long.to_owned(), 20.0))
            .chain(small)
            .collect(),
        totals: (old, new),
    });
    comparison
}

fn some() -> Comparison {
    let qemu = RELEVANT_FACTS
        .into_iter()
        .find(|fact| fact.name == "qemu")
        .unwrap();
    Comparison {
        causes: vec![Cause {
            fact: qemu,
            old: Some("7.2.22".to_owned()),
            new: Some("9.0.0".to_owned()),
            configs: vec![EnvironmentId::SIM.into(), EnvironmentId::SIM_KVM.into()],
        }],
        notes: vec!["it rains".to_owned()],
        rows: vec![
            row(EnvironmentId::SIM, "basic/getpid", Some(9.0), Some(9.0)),
            row(EnvironmentId::SIM_KVM, "basic/getpid", None, Some(9.0)),
            row(
                EnvironmentId::SIM_KVM,
                "exits/port-out",
                Some(3182.25),
                Some(3183.25),
            ),
            row(
                EnvironmentId::SIM_KVM,
                "exits/cpuid",
                Some(2835.0),
                Some(2835.0001),
            ),
            row(
                EnvironmentId::SIM_KVM,
                "exits/mmio-read",
                Some(5640.0),
                None,
            ),
        ],
    }
}

#[test]
fn a_table_has_causes_and_changes() {
    let text = table(&some());
    let expected = "\
likely cause: QEMU, 7.2.22 -> 9.0.0 (sim, sim/kvm)

sim/kvm                               old              new   difference
basic/getpid                            -            9.000     appeared
exits/port-out                   3182.250         3183.250       +1.000   +0.03%
exits/cpuid                          2835        2835.0001      +1.0e-4 +3.5e-6%
exits/mmio-read                  5640.000                -     vanished
    the guest said  [31m| *no*

note: it rains
changed: 4 of 5 figures
";
    assert_eq!(text, expected);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn without_changes_a_table_has_the_result_and_differences_of_the_environment() {
    let mut same = some();
    same.rows.truncate(1);
    same.notes.clear();
    let text = table(&same);
    assert_eq!(
        text,
        "differs, but moved nothing: QEMU, 7.2.22 -> 9.0.0 (sim, sim/kvm)\n\
         same: 1 figure as in the baseline\n"
    );
    same.causes[0].fact.around = false;
    assert_eq!(table(&same), "same: 1 figure as in the baseline\n");
    assert_eq!(same.outcome(), Outcome::Same);
}

#[test]
fn functions_are_listed_below_their_figure() {
    let mut some = explained(8);
    let text = table(&some);
    expect![[r#"
        exits/port-out                   3182.250         3183.250       +1.000   +0.03%
                +20.000  trapline-vmm       …hine<trapline_kvm::vcpu::KvmVcpu>::run_loop
                 -1.000  trapline-vmm       other_0
                 -1.000  trapline-vmm       other_1
                 -1.000  trapline-vmm       other_2
                 -1.000  trapline-vmm       other_3
                 -1.000  trapline-vmm       other_4
                 -1.000  trapline-vmm       other_5
                 -1.000  trapline-vmm       other_6
            -1.000 in 1 more
        exits/cpuid                          2835        2835.0001      +1.0e-4 +3.5e-6%
        exits/mmio-read                  5640.000                -     vanished
            the guest said  [31m| *no*

        note: it rains
        changed: 4 of 5 figures
    "#]]
    .assert_eq(&text[text.find("exits/port-out").unwrap()..]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    some.rows[2].new = Some(3184.0);
    let text = table(&some);
    let caveat = text.lines().find(|line| line.contains("other totals"));
    expect!["    profiles of other totals: 3182.250 and 3183.250 insn"].assert_eq(caveat.unwrap());
}

#[test]
fn all_formats_but_bencher_have_functions_and_notes() {
    let some = explained(1);
    let markdown = markdown(&some);
    for words in [
        "<details><summary>sim/kvm exits/port-out: +1.000 by function</summary>\n\n| difference",
        "| +20.000 | 30.000 | 50.000 | trapline-vmm | trapline\\_vmm::machine::Machine\\<",
        "\n</details>\n",
        "\nit rains\n",
    ] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
    let junit = junit(&some).unwrap();
    let words = "\nit rains\n+20.000 trapline-vmm trapline_vmm::machine";
    assert!(junit.contains(words), "{junit}");
    let value: serde_json::Value = serde_json::from_str(&json(&some)).unwrap();
    assert_eq!(value["notes"][0], "it rains");
    let row = &value["figures"][2];
    assert_eq!(row["functions"][1]["function"], "other_0");
    assert_eq!(row["functions"][1]["difference"], -1.0);
    assert_eq!(row["ledgers"]["new"], 3183.25);
    assert!(value["figures"][1].get("functions").is_none());
}

#[test]
fn markdown_escapes_foreign_text() {
    expect![[r#"
        **Trapline** changed: 4 of 5 figures

        - likely cause: QEMU, 7.2.22 -\> 9.0.0 (sim, sim/kvm)

        | environment | operation | old | new | difference | % | unit |
        |:-|:-|-:|-:|-:|-:|:-|
        | sim/kvm | basic/getpid | - | 9.000 | appeared |  | insn |
        | sim/kvm | exits/port-out | 3182.250 | 3183.250 | +1.000 | +0.03% | insn |
        | sim/kvm | exits/cpuid | 2835 | 2835.0001 | +1.0e-4 | +3.5e-6% | insn |
        | sim/kvm | exits/mmio-read | 5640.000 | - | vanished |  | insn |

        - sim/kvm exits/mmio-read: the guest said  \[31m\| \*no\*

        it rains
    "#]]
    .assert_eq(&markdown(&some()));
}

#[test]
fn junit_has_a_suite_per_environment_and_a_case_per_operation() {
    let text = junit(&some()).unwrap();
    let cases = text
        .lines()
        .filter(|line| line.contains("<test") || line.contains("<failure"));
    expect![[r#"
        <testsuites name="trapline check" tests="5" failures="4" errors="0" time="0.000">
            <testsuite name="sim" tests="1" disabled="0" errors="0" failures="0" time="0.000" skipped="0">
                <testcase name="basic/getpid" classname="sim" time="0.000">
            <testsuite name="sim/kvm" tests="4" disabled="0" errors="0" failures="4" time="0.000" skipped="0">
                <testcase name="basic/getpid" classname="sim/kvm" time="0.000">
                    <failure message="- -&gt; 9.000 insn (appeared)" type="appeared">likely cause: QEMU, 7.2.22 -&gt; 9.0.0 (sim, sim/kvm)
                <testcase name="exits/port-out" classname="sim/kvm" time="0.000">
                    <failure message="3182.250 -&gt; 3183.250 insn (+1.000 +0.03%)" type="changed">likely cause: QEMU, 7.2.22 -&gt; 9.0.0 (sim, sim/kvm)
                <testcase name="exits/cpuid" classname="sim/kvm" time="0.000">
                    <failure message="2835 -&gt; 2835.0001 insn (+1.0e-4 +3.5e-6%)" type="changed">likely cause: QEMU, 7.2.22 -&gt; 9.0.0 (sim, sim/kvm)
                <testcase name="exits/mmio-read" classname="sim/kvm" time="0.000">
                    <failure message="5640.000 -&gt; - insn (vanished)" type="vanished">the guest said  [31m| *no*"#]].assert_eq(&cases.collect::<Vec<_>>().join("\n"));
}

#[test]
fn texts_of_others_forge_no_line() {
    let forged = "a\nsame: 100 figures\r::error::x\u{2028}::error::y\u{85}::error::z";
    let mut comparison = explained(1);
    comparison.causes[0].old = Some(forged.to_owned());
    comparison.notes = vec![forged.to_owned()];
    for row in &mut comparison.rows {
        row.operation = forged.to_owned();
        row.reason = row.new.is_none().then(|| forged.to_owned());
    }
    let changes = comparison.rows[2].explained.as_mut().unwrap();
    changes.changes[0].function = Function {
        component: forged.to_owned(),
        name: forged.to_owned(),
    };
    let junit = junit(&comparison).unwrap();
    for text in [table(&comparison), markdown(&comparison), junit] {
        let is_end = |c: char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}');
        let mut lines = text.split(is_end).map(str::trim_start);
        let found = lines.find(|line| line.starts_with("same") || line.starts_with("::"));
        assert_eq!(found, None);
        assert!(text.contains("::error::x"));
    }
}

#[test]
fn bencher_has_all_new_figures() {
    let value: serde_json::Value = serde_json::from_str(&bencher(&some())).unwrap();
    assert_eq!(
        value["sim/kvm exits/port-out"]["instructions"]["value"],
        3183.25
    );
    assert_eq!(value.as_object().unwrap().len(), 4, "one has none");
}

#[test]
fn json_has_all_rows_and_causes() {
    let value: serde_json::Value = serde_json::from_str(&json(&some())).unwrap();
    assert_eq!(value["outcome"], "changed");
    assert_eq!(value["causes"][0]["around"], true);
    assert_eq!(value["figures"].as_array().unwrap().len(), 5);
    assert_eq!(value["figures"][2]["difference"], 1.0);
    assert_eq!(value["figures"][4]["verdict"], "vanished");
}

#[test]
fn a_change_without_a_cause_is_unexplained() {
    let mut unexplained = some();
    unexplained.causes.clear();
    let text = table(&unexplained);
    expect!["no fact differs from those of the baseline"].assert_eq(text.lines().next().unwrap());
}
