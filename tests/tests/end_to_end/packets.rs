//! `trapline net`: rates of packets through forwarders.

use super::report::{assert_accessible, create_page, open_page};
use serde_json::Value;
use std::path::Path;
use trapline_tests::browser::has_browser;
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::skip;

const FEATURE: &str = "rates of packets";

fn net(place: &Place, words: &str, forwarders: &[&str]) -> CommandOutput {
    let store = place.store();
    let mut all = vec!["net", "--store", store.to_str().expect("path is UTF-8")];
    all.extend(words.split(' '));
    for forwarder in forwarders {
        all.extend(["--forwarder", forwarder]);
    }
    place.run(&all)
}

fn has_two_cpus() -> bool {
    let enough = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    if !enough {
        skip(FEATURE, "one CPU");
    }
    enough
}

#[test]
fn invalid_options_are_rejected() {
    let place = Place::new();
    for (words, forwarders, message) in [
        (
            "--path swich",
            vec![],
            "choose from switch, testpmd, ovs, tap, veth",
        ),
        ("--size 59", vec![], "59"),
        ("--load 0", vec![], "1 to 1e9 frames a second, or 'search'"),
        ("--cpus 0,0", vec![], "--cpus: expected two of the CPUs"),
        ("--queues 9", vec![], "9"),
        ("--rounds 1", vec!["mine"], "'=' is missing"),
        ("--rounds 1", vec!["my one=x {a} {b}"], "a name has letters"),
        ("--rounds 1", vec!["mine=x {a}"], "{b} is missing"),
        (
            "--rounds 1",
            vec!["mine='x {a} {b}"],
            "a quote is not closed",
        ),
    ] {
        let result = net(&place, words, &forwarders);
        assert_eq!(result.status, Some(2), "{words}: {result:?}");
        let error = &result.stderr;
        assert!(error.contains(message), "{words}: {error}");
        assert!(error.contains("help: "), "{words}: {error}");
    }
}

/// Measures the switch against itself and a forwarder that is missing. Returns the JSON.
fn measure(place: &Place) -> Value {
    let program = place.parts().join("trapline-switch");
    let same = format!(
        "same={} --poll --cpu {{cpu}} --listen {{a}} --listen {{b}}",
        program.display()
    );
    let words =
        "--path switch,missing,same --size 60,1500 --duration 40 --rounds 1 --seed 7 --format json";
    net(place, words, &[&same, "missing=./no-such-switch {a} {b}"]).json()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().expect("list")
}

fn assert_measured(json: &Value) {
    let packets = list(json, "packets");
    for path in ["switch", "same"] {
        let of_path: Vec<_> = packets.iter().filter(|it| it["path"] == path).collect();
        assert!(of_path.len() >= 2, "{json:#}");
        for cell in of_path {
            // Of one round it is the rate of the only trial with that load.
            let mut trials = list(cell, "trials").iter();
            let at_maximum = trials.find(|trial| trial["purpose"] == "rate");
            let rate = at_maximum.map_or(&Value::Null, |trial| &trial["rate"]);
            assert_eq!(&cell["rate"], rate, "{cell:#}");
            list(cell, "trials").iter().for_each(assert_trial);
        }
        let environment = format!("net/{path}");
        let cells = list(json, "cells").iter();
        let mut rates = cells.filter(|it| it["environment"] == environment.as_str());
        let is_rate = |it: &&Value| {
            let operation = it["operation"].as_str().expect("text");
            operation.starts_with("rate:size=60,direction=one,distance=")
        };
        let rate = rates.find(is_rate);
        let rate = rate.unwrap_or_else(|| panic!("no rate of {environment}: {json:#}"));
        assert_eq!(rate["unit"], "Mpps", "{rate:#}");
    }
    let mut trials = packets.iter().flat_map(|cell| list(cell, "trials"));
    let has_latency = trials.any(|trial| trial["p50_ns"].as_u64() > Some(0));
    assert!(has_latency, "{json:#}");
    let reason = skipped(json, "net/missing").expect("it is skipped");
    assert!(
        reason.contains("no-such-switch is not installed"),
        "{reason}"
    );
}

/// Checks that the rate of a trial is that of its frames, none of which was damaged or arrived without being sent.
fn assert_trial(trial: &Value) {
    let of = |key: &str| trial[key].as_f64().expect("number");
    let [sent, received] = ["sent", "received"].map(of);
    assert!(received <= sent, "{trial:#}");
    let difference = of("rate") * of("duration_ns") / 1e9 - received;
    assert!(difference.abs() < 1e-3, "{trial:#}");
    assert_eq!(trial["damaged"], 0, "{trial:#}");
    assert!(of("round_trip_ns") > 1.0, "{trial:#}");
}

/// Returns why an environment was skipped, if it was.
fn skipped(json: &Value, config: &str) -> Option<String> {
    let reason = json["environments"][config]["skip"].as_str();
    reason.map(str::to_owned)
}

#[test]
fn forwarders_are_compared_and_shown_again() {
    if !has_two_cpus() {
        return;
    }
    let place = Place::new();
    let json = measure(&place);
    assert_measured(&json);
    let shown = place.run_storing("show", "--format json");
    assert_eq!(shown.json(), json);
    let samples = place.path().join("packets.csv");
    let samples = samples.to_str().expect("path is UTF-8");
    // On a virtual machine the distance of the CPUs may differ between paths, so that no figure is of both.
    for (command, words, expected) in [
        ("show", "--format markdown", "net/missing"),
        (
            "show",
            "--list",
            "trapline net --path switch,missing,same --size 60,1500",
        ),
        (
            "show",
            "--list",
            "--forwarder 'missing=./no-such-switch {a} {b}'",
        ),
        ("export", samples, " samples of run 1"),
        ("show", "--format openmetrics", "net/switch"),
        ("compare", "1/net/switch 1/net/same", "B: run 1: net/same"),
        (
            "history",
            "--workload packets/rate --env net/switch",
            "series",
        ),
    ] {
        let result = place.run_storing(command, words);
        let printed = format!("{}{}", result.stdout, result.stderr);
        assert!(printed.contains(expected), "{printed}");
    }
    assert_page(&create_page(&place, "packets.html"));
}

fn assert_page(file: &Path) {
    let text = std::fs::read_to_string(file).expect("file exists");
    for expected in ["median latency by load, 60 bytes", "\"packets\":["] {
        assert!(text.contains(expected), "no {expected}");
    }
    if !has_browser("the page of packets") {
        return;
    }
    assert_accessible(&mut open_page(file));
}

#[test]
fn several_queues_are_measured_where_a_forwarder_has_queues() {
    if !has_two_cpus() {
        return;
    }
    let place = Place::new();
    let words = "--path switch,testpmd,ovs,veth,fixed --queues 1,3 --size 60 --duration 50 --rounds 1 --format json";
    let program = place.parts().join("trapline-switch");
    let fixed = format!(
        "fixed={} --poll --listen {{a}} --listen {{b}}",
        program.display()
    );
    let json = net(&place, words, &[&fixed]).json();
    let mut cells = list(&json, "cells").iter();
    assert!(cells.all(|cell| cell["failure"].is_null()), "{json:#}");
    for (path, expected) in [
        ("switch", &[1, 3][..]),
        ("testpmd", &[1, 3]),
        ("ovs", &[1, 3]),
        ("veth", &[1]),
        ("fixed", &[1]),
    ] {
        if let Some(reason) = skipped(&json, &format!("net/{path}")) {
            skip(FEATURE, &reason);
            continue;
        }
        let of_path = list(&json, "packets")
            .iter()
            .filter(|it| it["path"] == path);
        let mut queues: Vec<_> = of_path.filter_map(|it| it["queues"].as_u64()).collect();
        queues.sort_unstable();
        queues.dedup();
        assert_eq!(queues, expected, "{path}: {json:#}");
        let of_three = skipped(&json, &format!("net/{path}:queues=3"));
        assert_eq!(of_three.is_some(), expected.len() == 1, "{path}: {json:#}");
    }
}

/// Trials with which a load that a search has found is confirmed, at most.
const TRIALS_OF_A_LOAD: u64 = 48;

/// Returns the number of trials of a search that do not count.
fn incomparable(run: &Value) -> u64 {
    let problems = run["problems"].as_array().expect("list").iter();
    let texts = problems.filter_map(|it| it["problem"].as_str());
    let counts = texts.filter_map(|text| {
        let (count, rest) = text.split_once(' ')?;
        rest.contains("do not count")
            .then(|| count.parse::<u64>().ok())?
    });
    counts.sum()
}

#[test]
#[ignore = "slow: make test-all"]
fn rates_without_loss_are_searched() {
    if !has_two_cpus() {
        return;
    }
    let words = "--path switch --size 60 --duration 20 --rounds 1 --load search --format json";
    let json = net(&Place::new(), words, &[]).json();
    let cells = json["packets"].as_array().expect("list");
    let trials = cells
        .iter()
        .flat_map(|cell| cell["trials"].as_array().expect("list"));
    let of = |purpose: &str| {
        trials
            .clone()
            .filter(|trial| trial["purpose"] == purpose)
            .count()
    };
    assert!(of("search") >= 5, "{json:#}");
    let bounds = cells
        .iter()
        .flat_map(|cell| cell["searched"].as_array().expect("list"));
    let incomparable = incomparable(&json);
    let mut found = 0;
    for bounds in bounds {
        let [lower, upper] = ["lower", "upper"].map(|end| bounds[end].as_f64());
        let is_in_order = lower.zip(upper).is_none_or(|(lower, upper)| lower < upper);
        assert!(is_in_order, "{bounds}");
        let [kept, further] = ["kept", "further_trials"].map(|key| bounds[key].as_u64());
        assert!(kept.is_some() && kept <= further, "{bounds}");
        // On a busy host every load may lose frames, and CPUs may be at another distance than in the search.
        let is_confirmed = further > Some(0) || incomparable >= TRIALS_OF_A_LOAD;
        assert!(further == Some(0) || lower.is_some(), "{bounds}");
        assert!(lower.is_none() || is_confirmed, "{bounds}");
        found += further.unwrap_or(0);
        if further > Some(0) {
            let share = kept
                .zip(further)
                .map(|(kept, further)| kept as f64 / further as f64);
            let [low, high] = ["kept_low", "kept_high"].map(|end| bounds[end].as_f64());
            assert!(low <= share && share <= high, "{bounds}");
        }
    }
    assert!(found == 0 || of("confirm") >= 12, "{json:#}");
}

#[test]
fn plan_of_packets_is_checked_and_run() {
    if !has_two_cpus() {
        return;
    }
    let place = Place::new();
    let file = place.path().join("packets.toml");
    let text = "about = 'a test'\nseed = 3\n[packets]\npath = ['switch']\nsize = [60]\n\
                direction = ['half']\nduration = 20\nrounds = 2";
    std::fs::write(&file, text).expect("file can be written");
    let file = file.to_str().expect("path is UTF-8");
    let checked = place
        .run(&["plan", "check", file, "--format", "json"])
        .json();
    let operation = "packets/rate:size=60,direction=half";
    assert_eq!(checked["operations"], operation, "{checked:#}");
    let row = &checked["contenders"][0];
    assert_eq!((&row["boots"], &row["skip"]), (&2.into(), &Value::Null));
    let json = place
        .run_storing("run", &format!("{file} --format json"))
        .json();
    let rounds = list(&json, "packets").iter();
    let trials = rounds.map(|cell| list(cell, "trials").len());
    assert_eq!(trials.sum::<usize>(), 2, "{json:#}");
    let shown = place.run_storing("show", "--format json");
    assert_eq!(shown.json(), json);
}

#[test]
fn forwarder_that_opens_no_sockets_is_skipped_with_its_command() {
    if !has_two_cpus() {
        return;
    }
    let place = Place::new();
    let json = net(
        &place,
        "--path nothing --rounds 1 --format json",
        &["nothing=true {a} {b}"],
    )
    .json();
    let reason = skipped(&json, "net/nothing").expect("it is skipped");
    assert!(
        reason.contains("the forwarder opens no sockets"),
        "{json:#}"
    );
    assert!(reason.contains("try it: true "), "{json:#}");
}
