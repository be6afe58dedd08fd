//! `trapline compare`: of exact clocks to the digit, of the wall clock in form only, for
//! what this host does is its own.

use serde_json::Value;
use trapline_tests::run::{Ended, Place};
use trapline_tests::{has_qemu, slow_image};

fn compare(place: &Place, words: &str) -> Ended {
    place.run_storing("compare", words)
}

#[track_caller]
fn operation<'a>(told: &'a Value, name: &str) -> &'a Value {
    let all = told["operations"].as_array().expect("there are operations");
    let found = all.iter().find(|one| one["operation"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {told}"))
}

#[test]
fn slower_build_is_changed_and_identical_build_is_not() {
    if !has_qemu("comparisons on the instruction clock") {
        return;
    }
    let place = Place::new();
    let told = compare(&place, "sim sim --workload exits,basic --format json").json();
    assert_eq!(told["b"], "sim:again");
    for one in told["operations"].as_array().expect("there are operations") {
        assert!(
            one["effect"] == 1.0 && one["verdict"] == "equivalent" || one["reason"].is_string(),
            "{one}"
        );
    }
    assert_eq!(told["counts"]["changed"], 0);
    let slow = slow_image().to_str().expect("text");
    let words = format!("sim:image={slow} sim --workload exits --format json");
    let told = compare(&place, &words).json();
    let cpuid = operation(&told, "cpuid");
    let (a, b) = (&cpuid["a"]["estimate"], &cpuid["b"]["estimate"]);
    let effect = b.as_f64().expect("a figure") / a.as_f64().expect("a figure");
    assert!(
        (cpuid["effect"].as_f64().expect("it is told") - effect).abs() < 1e-12,
        "{cpuid}"
    );
    assert!(
        told["counts"]["changed"].as_u64().expect("a count") > 0,
        "less optimisation costs nothing: {told}"
    );
}

#[test]
fn every_block_measures_both_and_stored_runs_compare_alike() {
    let place = Place::new();
    let told = compare(
        &place,
        "host host:pin=free --workload basic/getpid --boots 8 --format json",
    );
    let told = told.json();
    let getpid = operation(&told, "getpid");
    assert_eq!(getpid["blocks"], 8);
    assert_eq!(getpid["boots"], serde_json::json!([8, 8]));
    assert_eq!(getpid["method"], "block-bootstrap");
    let (low, effect, high) = (&getpid["low"], &getpid["effect"], &getpid["high"]);
    assert!(
        low.as_f64() <= effect.as_f64() && effect.as_f64() <= high.as_f64(),
        "{getpid}"
    );
    let again = compare(&place, "1/host 1/host:pin=free --format json").json();
    assert_eq!(operation(&again, "getpid")["effect"], *effect);
    let few = compare(
        &place,
        "host host --workload basic/getpid --boots 3 --format json",
    )
    .json();
    let getpid = operation(&few, "getpid");
    assert_eq!(getpid["verdict"], "unsure", "three blocks cannot tell");
    assert!(getpid["more_boots"].as_u64() >= Some(4), "{getpid}");
    let apart = compare(&place, "1 2 --format json").json();
    assert_eq!(apart["a"], "run 1: host");
    assert_eq!(
        operation(&apart, "getpid")["boots"],
        serde_json::json!([8, 3])
    );
}

#[test]
fn sequential_comparison_adds_blocks_within_its_budget() {
    let place = Place::new();
    let words = "host host --workload basic/getpid,basic/malloc-1m --sequential --format json";
    let told = compare(&place, &format!("{words} --boots 14")).json();
    let blocks = operation(&told, "getpid")["boots"][0]
        .as_u64()
        .expect("a count");
    assert!(
        blocks == 10 || blocks == 14,
        "looks are after 10 and 14 blocks: {told}"
    );
    let settled = told["counts"]["unsure"] == 0;
    assert!(
        settled || operation(&told, "malloc-1m")["boots"][0] == 14,
        "{told}"
    );
    let place = Place::new();
    let hurried = compare(&place, &format!("{words} --boots 5000 --budget 1s")).json();
    let remarks = hurried["remarks"].to_string();
    assert!(remarks.contains("The time was over after"), "{remarks}");
}

#[test]
fn concurrent_boots_have_one_cpu_each() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        return trapline_tests::skip(
            "concurrent boots",
            "this process may use one processor only",
        );
    }
    let place = Place::new();
    let words = "host host --workload basic/getpid --boots 8 --concurrent --format json";
    let told = compare(&place, words).json();
    assert_eq!(
        operation(&told, "getpid")["boots"],
        serde_json::json!([8, 8]),
        "{told}"
    );
    let store = place.store();
    let store = store.to_str().expect("text");
    let shown = place.run(&["show", "--format", "json", "--store", store]);
    let facts = &shown.json()["environments"]["host"]["facts"];
    assert_eq!(facts["beside"], "host:again", "{facts}");
}

#[test]
fn incomparable_sides_are_rejected_with_a_remedy() {
    let place = Place::new();
    assert_eq!(
        compare(&place, "host host --workload basic/getpid --boots 1").status,
        Some(0)
    );
    for (words, told) in [
        ("host sim", "figures of different clocks cannot be compared"),
        ("1 host", "one side is stored"),
        ("1 7", "no run 7"),
        ("1/kvm 1/host", "run 1 has no boot of kvm"),
        ("host:agent=/no/agent host", "agent=/no/agent: no such file"),
        (
            "sim/kvm:kernel=/bin/sh sim/kvm",
            "kernel=FILE and modules=DIR go together",
        ),
        ("custom host", "custom cannot be measured"),
        ("host host --concurrent", "not supported by stream"),
        ("sim sim --concurrent", "not supported by exact clocks"),
    ] {
        let ended = compare(&place, words);
        assert!(ended.errors.contains(told), "{words}: {ended:?}");
        assert!(ended.errors.contains("\n  help: "), "{words}: {ended:?}");
        assert_ne!(ended.status, Some(0), "{words}");
        assert_eq!(ended.output, "", "{words}");
    }
}

#[test]
fn comparison_fits_80_columns() {
    let place = Place::new();
    let ended = compare(&place, "host host --workload basic --boots 2");
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    assert!(
        ended.output.contains(" A: host\n B: host:again\n"),
        "{}",
        ended.output
    );
    assert!(ended.output.contains("a false alarm"), "{}", ended.output);
    for line in ended.output.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn only_long_comparisons_report_false_discoveries() {
    let place = Place::new();
    let words = "--env host,qemu-tcg --workload basic/getpid,basic/first-touch-4k --boots 8";
    let words: Vec<&str> = words.split(' ').collect();
    let told = place.measure(&words);
    let chance = &told["chance"];
    assert_eq!(
        (&chance["contender"], &chance["blocks"]),
        (&"host".into(), &8.into())
    );
    assert_eq!(chance["tests"], 2);
    assert!(
        chance["smallest"]["basic/getpid"].as_f64() > Some(0.0),
        "{chance}"
    );
    let cells = told["cells"].as_array().expect("there are cells");
    assert!(
        cells
            .iter()
            .all(|cell| cell["boots"].as_u64().unwrap_or(8) == 8),
        "{told}"
    );
    let short = place.measure(&[
        "--env",
        "host",
        "--workload",
        "basic/getpid",
        "--boots",
        "7",
    ]);
    assert!(short.get("chance").is_none());
}
