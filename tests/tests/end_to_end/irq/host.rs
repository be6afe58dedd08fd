//! Interrupts of this host: counts, verdicts, loads and co-tenants.

use super::irq;
use std::process::Stdio;
use trapline_tests::measurements::facts;
use trapline_tests::processes::{all_children, is_running, wait_until, TO_BEGIN};
use trapline_tests::run::Place;

#[test]
fn co_tenant_on_the_host_reports_its_work() {
    let place = Place::new();
    let words = "--env host --timer own --samples 600 --period 1ms --vcpus-per-cpu 2";
    let result = irq(&place, &format!("{words} --format json"));
    assert_eq!(result.status, Some(0), "{result:?}");
    let json = result.json();
    let facts = facts(&json, "host");
    let did = facts["load-0-neighbour"]
        .as_str()
        .expect("fact of the load");
    assert!(did.contains(" bytes of samples, "), "{did}");
    for name in ["irq-steal-ms", "irq-clocks-apart-us"] {
        let json = facts[name]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok());
        assert!(json.is_some(), "{name}: {facts}");
    }
}

/// Noise affects latencies, but neither counts nor sums.
#[test]
fn host_expiries_and_stages_add_up() {
    let place = Place::new();
    let result = irq(
        &place,
        "--env host --samples 600 --period 1ms --format json",
    );
    assert_eq!(result.status, Some(0), "{result:?}");
    let json = result.json();
    let all = json["interrupts"].as_array().expect("list");
    assert!(!all.is_empty(), "{json:#}");
    for interrupts in all {
        let of = |key: &str| interrupts["summary"][key].as_u64().expect("number");
        assert_eq!(of("expiries"), 600);
        assert_eq!(of("count") + of("missed"), 600);
        assert_eq!(of("in_time") + of("above"), of("count"));
        assert!(of("count") > 0, "{interrupts:#}");
        let unexplained = interrupts["unexplained"].as_f64().expect("number");
        assert!(unexplained < 0.01, "{interrupts:#}");
        let histogram = interrupts["histogram"].as_array().expect("list");
        let counts = histogram.iter().filter_map(|bucket| bucket[2].as_u64());
        assert_eq!(counts.sum::<u64>(), of("count"));
        let period = interrupts["period"].as_f64().expect("number");
        assert!((period - 1e6).abs() < 1.0, "{period}");
    }
}

/// Bursts of late expiries may be longer than the run.
#[test]
fn short_run_on_the_wall_clock_proves_no_requirement() {
    let place = Place::new();
    let usual = "--env host --timer own --samples 600 --period 1ms --threshold 1s";
    let result = irq(&place, &format!("{usual} --require 10% --format json"));
    assert_eq!(result.status, Some(5), "{result:?}");
    let json = result.json();
    let own = &json["interrupts"][0];
    assert_eq!(own["verdict"], "not-proven", "{own:#}");
    assert_eq!(own["met"], false);
    assert!(own["windows_to_prove"].as_u64() > Some(1), "{own:#}");
    let store = place.store();
    let store = store.to_str().expect("path is UTF-8");
    let shown = place.run(&["show", "--store", store]).stdout;
    let words: Vec<_> = shown.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("host own: not proven, "), "{shown}");
    assert!(words.contains("prove it: --samples "), "{shown}");
}

#[test]
fn loads_report_their_work_and_are_stored() {
    let place = Place::new();
    let words = "--env host --timer own --samples 300 --period 1ms --load cpu,memory";
    let result = irq(&place, &format!("{words} --format json"));
    assert_eq!(result.status, Some(0), "{result:?}");
    let json = result.json();
    assert_eq!(json["facts"]["irq-load"], "cpu,memory");
    assert_eq!(json["facts"]["irq-pin"], "shared");
    assert_eq!(json["interrupts"][0]["load"], "cpu,memory");
    let facts = facts(&json, "host");
    for load in ["load-0-cpu", "load-1-memory"] {
        let did = facts[load].as_str().expect("fact");
        assert!(did.contains(" ms of CPU time"), "{did}");
    }
    let shown = place.run(&["show", "--store", place.store().to_str().expect("text")]);
    assert!(shown
        .stdout
        .contains("load cpu,memory, guest and loads on one CPU"));
    assert!(shown.stdout.contains("host: cpu "), "{}", shown.stdout);
}

#[test]
fn loads_end_with_trapline() {
    let place = Place::new();
    let store = place.store();
    let words = "irq --env host --timer own --samples 10000 --period 10ms --load cpu:2 --store";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.push(store.to_str().expect("path is UTF-8"));
    let mut run = place.trapline(&words);
    let run = run.stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = run.spawn().expect("trapline starts");
    // Two loads and a guest.
    let children = || all_children(run.id());
    let has_children = wait_until(TO_BEGIN, || children().len() >= 3);
    assert!(has_children, "{:?}", children());
    let orphans = children();
    run.kill().expect("child runs");
    run.wait().expect("file is owned by the test");
    let end = || !orphans.iter().any(|child| is_running(*child));
    assert!(wait_until(TO_BEGIN, end), "{orphans:?} still run");
}
