//! The forms that services for continuous integration read, of a report with one of
//! everything.

use crate::{common, formats};

use expect_test::expect;
use formats::{bencher, junit, openmetrics};
use serde_json::Value;
use trapline_model::EnvironmentId;
use trapline_report::Report;

const HOSTILE: &str = "</testcase><!-- \u{1b}[31m & \"";

fn hostile() -> Report {
    let mut report = common::report();
    report
        .skips
        .push((EnvironmentId::SIM_XEN_PVH.into(), HOSTILE.to_owned()));
    report.facts.insert("cpu".to_owned(), HOSTILE.to_owned());
    report
}

/// The lines of the case of an operation in an environment.
fn case<'a>(xml: &'a str, class: &str, name: &str) -> &'a str {
    let start = format!("<testcase name=\"{name}\" classname=\"{class}\" time=\"");
    let from = xml
        .find(&start)
        .unwrap_or_else(|| panic!("no {class} {name} in {xml}"));
    let to = xml[from..].find("</testcase>").expect("it is closed");
    &xml[from..from + to]
}

#[test]
fn junit_has_a_case_for_each_cell_with_what_came_of_it() {
    let report = hostile();
    let cells = report.cells().len();
    let xml = junit(&report);
    assert_eq!(xml.matches("<testcase ").count(), cells);
    let cases = [
        ("kvm", "exits/port-out"),
        ("qemu-tcg", "basic/getpid"),
        ("host", "exits/port-out"),
        ("qemu-tcg", "basic/yield"),
        ("sim/qemu-kvm", "exits/timer-wake"),
    ];
    let cases = cases.map(|(class, name)| case(&xml, class, name).trim_end());
    expect![[r#"
        <testcase name="exits/port-out" classname="kvm" time="0.000">
                    <system-out>estimate: 24061 ns
        interval (93.75%): 23339.17 to 24782.83
        range: 24061 to 24782.83
        batches: 150, boots: 5
        </system-out>
        <testcase name="basic/getpid" classname="qemu-tcg" time="0.000">
                    <system-out>estimate: 12.2 ns
        interval (93.75%): 10.491999999999999 to 13.908
        range: 12.2 to 13.908
        batches: 150, boots: 5
        note: by the host&apos;s clock the guest&apos;s is up to 3% fast
        </system-out>
        <testcase name="exits/port-out" classname="host" time="0.000">
                    <skipped message="a process has no ports: the kernel would end it" type="skip"/>
        <testcase name="basic/yield" classname="qemu-tcg" time="0.000">
                    <failure message="a yield did not switch" type="broken"/>
        <testcase name="exits/timer-wake" classname="sim/qemu-kvm" time="0.000">
                    <failure message="not deterministic: boots 0 and 1 differ in 1 of 12 batches, first in batch 3: 30 insn for 1 and 31 insn for 1" type="not-deterministic"/>"#]].assert_eq(&cases.join("\n"));
}

#[test]
fn untrusted_texts_are_escaped() {
    let xml = junit(&hostile());
    assert!(!xml.contains('\u{1b}') && !xml.contains("<!--"), "{xml}");
    let escaped = "&lt;/testcase&gt;&lt;!-- ";
    assert!(xml.contains(&format!("<property name=\"host/cpu\" value=\"{escaped}")));
    assert!(xml.contains(&format!("<skipped message=\"{escaped}")));
}

#[test]
fn bencher_has_every_figure_that_can_be_resolved() {
    let report = common::report();
    let resolved = report.summary.cells.iter().filter(|cell| {
        let figure = cell.value.figure();
        figure.is_some_and(|figure| figure.resolution().is_none())
    });
    let resolved = resolved.count();
    let value: Value = serde_json::from_str(&bencher(&report)).unwrap();
    assert_eq!(value.as_object().unwrap().len(), resolved);
    let latency = &value["kvm/exits/port-out"]["latency"];
    assert_eq!(latency["value"], 24_061.0);
    assert!(latency["lower_value"].as_f64() < latency["upper_value"].as_f64());
    assert_eq!(value["sim/exits/port-out"]["instructions"]["value"], 3.0);
    assert_eq!(value["kvm/stream/triad"]["throughput"]["value"], 12_201.0);
    assert!(
        value.get("kvm/basic/getpid").is_none(),
        "it is below resolution"
    );
}

#[test]
fn openmetrics_has_a_gauge_for_each_figure() {
    let report = common::report();
    let text = openmetrics(&report);
    let line = "trapline_estimate{environment=\"kvm\",workload=\"exits\",operation=\"port-out\",\
                clock=\"wall\",unit=\"ns\"} 24061\n";
    assert!(text.contains(line), "{text}");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let figures = report.summary.cells.iter();
    let figures = figures.filter(|cell| cell.value.figure().is_some());
    assert_eq!(
        text.matches("\ntrapline_estimate{").count(),
        figures.count()
    );
}
