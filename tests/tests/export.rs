//! Figures and samples taken elsewhere: forms for other programs, and files of raw samples.

use quick_xml::events::Event;
use quick_xml::Reader;
use std::collections::BTreeMap;
use trapline_tests::run::Place;

const MEASURED: &str = "--env host --workload basic/getpid,exits/port-out --boots 2 --quiet";

/// How often each element is there; everything that is opened is closed.
fn elements(xml: &str) -> BTreeMap<String, usize> {
    let mut reader = Reader::from_str(xml);
    let mut counts = BTreeMap::new();
    loop {
        match reader.read_event().expect("it is XML") {
            Event::Eof => return counts,
            Event::Start(tag) | Event::Empty(tag) => {
                let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
                *counts.entry(name).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// A place with a run of two boots in its store.
fn measured() -> Place {
    let place = Place::new();
    let ended = place.run_storing("run", MEASURED);
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    place
}

#[test]
fn junit_of_a_run_and_of_a_comparison_is_xml() {
    let place = Place::new();
    let hostile = "--fact why=</property><evil\u{1b}[31m>";
    let ended = place.run_storing("run", &format!("{MEASURED} {hostile} --format junit"));
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    let counts = elements(&ended.output);
    assert_eq!(counts["testcase"], 2, "{}", ended.output);
    assert_eq!(counts["skipped"], 1, "a process has no ports");
    assert_eq!(counts["system-out"], 1, "{}", ended.output);
    assert!(!counts.contains_key("evil") && !ended.output.contains('\u{1b}'));
    assert!(ended
        .output
        .contains("name=\"host/why\" value=\"&lt;/property&gt;"));
    let shown = place.run_storing("show", "--format junit");
    assert_eq!(shown.output, ended.output, "the store has all of it");
    let compared = place.run_storing("compare", "1/host 1/host --format junit");
    assert_eq!(compared.status, Some(0), "{}", compared.errors);
    let counts = elements(&compared.output);
    assert!(counts["testcase"] >= 1 && !counts.contains_key("failure"));
    assert!(
        compared.output.contains("<testsuite name=\"host\""),
        "{}",
        compared.output
    );
}

#[test]
fn bencher_has_the_figures_with_their_intervals() {
    let place = measured();
    let told = place.run_storing("show", "--format bencher").json();
    assert_eq!(told.as_object().expect("an object").len(), 1, "{told}");
    let figures = place.run_storing("show", "--format json").json();
    let cells = figures["cells"].as_array().expect("there are cells");
    let cell = cells.iter().find(|cell| cell["operation"] == "getpid");
    let cell = cell.expect("it was measured");
    let metric = &told["host/basic/getpid"]["latency"];
    assert_eq!(metric["value"], cell["estimate"]);
    assert_eq!(metric["lower_value"], cell["low"]);
    assert_eq!(metric["upper_value"], cell["high"]);
    let compared = place.run_storing("compare", "1 1 --format bencher").json();
    assert_eq!(compared["host/basic/getpid"]["latency"], *metric);
}
