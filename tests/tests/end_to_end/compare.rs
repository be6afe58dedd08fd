//! `trapline compare`: of exact clocks to the digit, of the wall clock in form only, for
//! what this host does is its own.

use crate::report::{assert_accessible, open_page};
use rusqlite::Connection;
use serde_json::{json, Value};
use trapline_tests::browser::has_browser;
use trapline_tests::run::{assert_fits_80_columns, CommandOutput, Place};
use trapline_tests::{has_qemu, slow_image};

fn compare(place: &Place, words: &str) -> CommandOutput {
    place.run_storing("compare", words)
}

#[track_caller]
fn operation<'a>(json: &'a Value, name: &str) -> &'a Value {
    let all = json["operations"].as_array().expect("list of operations");
    let found = all.iter().find(|one| one["operation"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {json}"))
}

#[test]
fn slower_build_is_changed_and_identical_build_is_not() {
    if !has_qemu("comparisons on the instruction clock") {
        return;
    }
    let place = Place::reproducing();
    let json = compare(&place, "sim sim --workload exits,basic --format json").json();
    assert_eq!(json["b"], "sim:control");
    for one in json["operations"].as_array().expect("list of operations") {
        assert!(
            one["effect"] == 1.0 && one["verdict"] == "equivalent" || one["reason"].is_string(),
            "{one}"
        );
    }
    assert_eq!(json["counts"]["changed"], 0);
    let slow = slow_image().to_str().expect("text");
    let words = format!("sim:image={slow} sim --workload exits --format json");
    let json = compare(&place, &words).json();
    let cpuid = operation(&json, "cpuid");
    let (a, b) = (&cpuid["a"]["estimate"], &cpuid["b"]["estimate"]);
    let effect = b.as_f64().expect("figure") / a.as_f64().expect("figure");
    assert!(
        (cpuid["effect"].as_f64().expect("effect") - effect).abs() < 1e-12,
        "{cpuid}"
    );
    assert!(
        json["counts"]["changed"].as_u64().expect("count") > 0,
        "less optimisation costs nothing: {json}"
    );
    let sides = format!("1/sim 2/sim:image={slow}");
    let counts = &compare(&place, &format!("{sides} --format json")).json()["counts"];
    assert!(counts["worse"].as_u64() > Some(0), "{counts}");
    for (sides, status) in [("1/sim 1/sim", 0), (&sides, 1)] {
        for what in ["worse", "changed"] {
            let result = compare(&place, &format!("{sides} --fail-on {what}"));
            assert_eq!(result.status, Some(status), "{sides} {what}: {result:?}");
        }
    }
}

#[test]
fn every_block_measures_both_and_stored_runs_compare_alike() {
    let place = Place::new();
    let json = compare(
        &place,
        "host host:pin=free --workload basic/getpid --boots 8 --format json",
    );
    let json = json.json();
    let getpid = operation(&json, "getpid");
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
    assert_eq!(getpid["least_boots"], 8, "{getpid}");
    assert!(getpid["more_boots"].is_null(), "{getpid}");
    let apart = compare(&place, "1 2 --format json").json();
    let a = apart["a"].as_str().expect("text");
    assert!(a.starts_with("run 1: host (20"), "{a}");
    assert_eq!(apart["replicate"], "boot");
    assert_eq!(
        operation(&apart, "getpid")["boots"],
        serde_json::json!([8, 3])
    );
    assert!(
        !apart["remarks"].to_string().contains("Differs"),
        "{apart:#}"
    );
    let store = Connection::open(place.store()).expect("store exists");
    let other = "UPDATE runs SET facts = json_set(facts, '$.cpu', 'Another CPU') WHERE id = 2";
    store.execute(other, []).expect("a run of another host");
    assert_refused(&place, "1 2", "the host's cpu: ", ", Another CPU (run 2).");
    let other = "UPDATE runs SET request = json_set(request, '$.preset', 'full') WHERE id = 2";
    store.execute(other, []).expect("a run of another preset");
    assert_refused(
        &place,
        "1 2",
        "Differs: preset: quick (run 1)",
        "full (run 2).",
    );
}

/// Asserts that runs are compared only anyway, and that both texts then name a difference.
#[track_caller]
fn assert_refused(place: &Place, sides: &str, one: &str, other: &str) {
    let refused = compare(place, sides);
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(2), ""));
    let anyway = compare(place, &format!("{sides} --anyway --format json")).json();
    for text in [&refused.stderr, &anyway["remarks"].to_string()] {
        assert!(text.contains(one) && text.contains(other), "{text}");
    }
}

#[test]
fn runs_are_the_replicates_of_stored_comparisons() {
    let place = Place::new();
    for number in 0..6 {
        // A fact of the user's is no other condition.
        let words = "run --env host --workload basic/getpid,exits/cpuid --boots 3 --fact";
        let commit = format!("commit={number}");
        let words: Vec<&str> = words.split(' ').chain([commit.as_str()]).collect();
        let store = place.store();
        let store = ["--store", store.to_str().expect("text")];
        let result = place.run(&[&words[..], &store].concat());
        assert_eq!(result.status, Some(0), "{result:?}");
    }
    let two = compare(&place, "1 2 --format json").json();
    let getpid = operation(&two, "getpid");
    let of_runs = ["runs-differ", "runs-agree", "unsure"];
    let verdict = getpid["verdict"].as_str().expect("text");
    assert!(of_runs.contains(&verdict), "{getpid}");
    assert_eq!(getpid["noise"]["runs"], 6, "{getpid}");
    assert!(getpid["more_boots"].is_null(), "{getpid}");
    let remarks = two["remarks"].to_string();
    assert!(
        remarks.contains("name at least three runs of each"),
        "{remarks}"
    );
    // Runs that are not equivalent, on the quietest host either.
    let store = Connection::open(place.store()).expect("store exists");
    let slower = "UPDATE boots SET unit_per_tick = 1.5 * unit_per_tick WHERE run > 3";
    store.execute(slower, []).expect("three slower runs");
    let six = compare(&place, "1,2,3 4,5,6 --format json").json();
    assert_eq!(six["replicate"], "run");
    let getpid = operation(&six, "getpid");
    assert_eq!(
        (&getpid["blocks"], &getpid["verdict"]),
        (&json!(3), &json!("unsure"))
    );
    assert_eq!(getpid["least_boots"], 6, "{getpid}");
    let text = compare(&place, "1,2,3 4,5,6").stdout;
    assert!(text.contains("unsure: 6 runs at least"), "{text}");
    assert_fits_80_columns(&text);
    for sides in ["1,2 2,3", "1,2 1,2", "1,1 2"] {
        let refused = compare(&place, sides);
        assert_eq!(refused.status, Some(2), "{sides}");
        assert!(
            refused.stderr.contains("a run is named twice"),
            "{refused:?}"
        );
    }
}

#[test]
fn page_overlays_the_distributions_of_both_sides() {
    let place = Place::new();
    let changes = place.path().join("changes.json");
    let of = |environment| json!({"environment": environment, "operation": "basic/getpid"});
    let function = json!({"component": "kernel", "function": "f", "before": 1.5, "after": 3});
    let text = json!({"before": of("sim"), "after": of("sim"), "changes": [function]});
    std::fs::write(&changes, text.to_string()).expect("it is writable");
    let page = place.path().join("page.html");
    let (page_path, changes) = (page.display(), changes.display());
    let words = "host host:pin=free --workload basic/getpid,basic/yield --boots 4";
    let result = compare(
        &place,
        &format!("{words} --html {page_path} --profile {changes}"),
    );
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let html = std::fs::read_to_string(&page).expect("the page was written");
    for side in ["overlaid t1", "overlaid t2"] {
        assert_eq!(html.matches(side).count(), 2, "{html}");
    }
    assert!(
        html.contains("<td>1.5</td><td>3</td><td>+1.5</td>"),
        "{html}"
    );
    let missing = place.path().join("none/page.html");
    let result = compare(
        &place,
        &format!("1/host 1/host:pin=free --html {}", missing.display()),
    );
    assert_eq!(result.status, Some(2), "{}", result.stderr);
    assert!(
        result.stderr.contains("--html: cannot write"),
        "{}",
        result.stderr
    );
    if has_browser("the page of a comparison") {
        assert_accessible(&mut open_page(&page));
    }
}

#[test]
fn sequential_comparison_adds_blocks_within_its_budget() {
    let place = Place::new();
    let words = "host host --workload basic/getpid,basic/malloc-1m --sequential --format json";
    let json = compare(&place, &format!("{words} --boots 14")).json();
    let blocks = operation(&json, "getpid")["boots"][0]
        .as_u64()
        .expect("count");
    assert!(
        blocks == 10 || blocks == 14,
        "looks are after 10 and 14 blocks: {json}"
    );
    for operation in json["operations"].as_array().expect("list") {
        let is_settled = operation["verdict"] != "unsure";
        assert!(is_settled || operation["boots"][0] == 14, "{json}");
    }
    let place = Place::new();
    // Too short for the first look, after which nothing may be left to settle.
    let hurried = compare(&place, &format!("{words} --boots 5000 --budget 50ms")).json();
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
    let json = compare(&place, words).json();
    assert_eq!(
        operation(&json, "getpid")["boots"],
        serde_json::json!([8, 8]),
        "{json}"
    );
    let store = place.store();
    let store = store.to_str().expect("text");
    let shown = place.run(&["show", "--format", "json", "--store", store]);
    let facts = &shown.json()["environments"]["host"]["facts"];
    assert_eq!(facts["beside"], "host:control", "{facts}");
}

#[test]
fn incomparable_sides_are_rejected_with_a_remedy() {
    if !has_qemu("comparisons that are refused") {
        return;
    }
    let place = Place::new();
    assert_eq!(
        compare(&place, "host host --workload basic/getpid --boots 1").status,
        Some(0)
    );
    for (words, message) in [
        ("host sim", "figures of different clocks cannot be compared"),
        ("1 host", "one side is stored"),
        ("1 7", "no run 7"),
        ("1/kvm 1/host", "run 1 has no boot of kvm"),
        ("host:agent=/no/agent host", "agent=/no/agent: no such file"),
        (
            "sim/kvm:kernel=/bin/sh sim/kvm",
            "kernel=/bin/sh: there are no modules beside it",
        ),
        ("sim/kvm:modules=/ sim/kvm", "modules=DIR without a kernel"),
        ("custom host", "custom cannot be measured"),
        ("host host --concurrent", "not supported by stream"),
        ("sim sim --concurrent", "not supported by exact clocks"),
    ] {
        let result = compare(&place, words);
        assert!(result.stderr.contains(message), "{words}: {result:?}");
        assert!(result.stderr.contains("\n  help: "), "{words}: {result:?}");
        assert_ne!(result.status, Some(0), "{words}");
        assert_eq!(result.stdout, "", "{words}");
    }
}

#[test]
fn comparison_fits_80_columns() {
    let place = Place::new();
    let result = compare(&place, "host host --workload basic --boots 2");
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    assert!(
        result.stdout.contains(" A: host\n B: host:control\n"),
        "{}",
        result.stdout
    );
    assert!(result.stdout.contains("a false alarm"), "{}", result.stdout);
    assert_fits_80_columns(&result.stdout);
}

#[test]
fn only_long_comparisons_report_false_discoveries() {
    let place = Place::new();
    let words = "--env host,qemu-tcg --workload basic/getpid,basic/first-touch-4k --boots 8";
    let words: Vec<&str> = words.split(' ').collect();
    let json = place.measure(&words);
    let control = &json["aa_control"];
    assert_eq!(
        (&control["contender"], &control["blocks"]),
        (&"host".into(), &8.into())
    );
    assert_eq!(control["tests"], 2);
    // The same changes in the words of the table.
    let smallest = control["smallest"].as_object().expect("changes");
    assert_eq!(smallest.len(), 2, "{control}");
    let shown = place.run_storing("show", "--format markdown").stdout;
    for (operation, share) in smallest {
        let (_, name) = operation.split_once('/').expect("a path");
        let percent = 100.0 * share.as_f64().expect("share");
        let digits = usize::from(percent < 9.95);
        let words = format!(" {name} {percent:.digits$}%");
        assert!(shown.contains(&words), "{words}: {shown}");
    }
    let cells = json["cells"].as_array().expect("run has cells");
    assert!(
        cells
            .iter()
            .all(|cell| cell["boots"].as_u64().unwrap_or(8) == 8),
        "{json}"
    );
    let short = place.measure(&[
        "--env",
        "host",
        "--workload",
        "basic/getpid",
        "--boots",
        "7",
    ]);
    assert!(short.get("aa_control").is_none());
}
