//! Export formats of `trapline explain`, and QEMUs of other versions.

use super::flame_graph::assert_stands_alone;
use super::{assert_adds_up, assert_near, explain, number, profile, profile_with};
use crate::replay::errors_by_schema;
use serde_json::Value;
use trapline_tests::has_qemu;
use trapline_tests::measurements::component_insn;
use trapline_tests::run::Place;

/// Uses the QEMU that $TRAPLINE_TEST_QEMU names, such as one of another version than the installed one.
#[test]
fn profile_with_another_qemu_adds_up() {
    let feature = "a profile with another QEMU than the installed one";
    let Ok(qemu) = std::env::var("TRAPLINE_TEST_QEMU") else {
        return trapline_tests::skip(feature, "$TRAPLINE_TEST_QEMU does not name one");
    };
    let place = Place::new();
    place.use_qemu("", qemu.as_ref());
    let Some((_, json)) = profile(&place, "sim/kvm", "exits/port-out") else {
        return;
    };
    assert_adds_up(&json);
    assert_eq!(json["exits"], json["operations"], "one exit for each");
    assert_eq!(
        number(&json["total"]),
        place.figure("sim/kvm", "exits/port-out")
    );
}

#[test]
fn call_stacks_are_exported_completely() {
    let place = Place::new();
    let Some((_, json)) = profile(&place, "sim", "exits/port-out") else {
        return;
    };
    let counted = json["counted"].as_u64().expect("number");
    let export = |format| {
        let words = ["sim", "exits/port-out", "--format", format];
        let result = explain(&place, &words);
        assert_eq!(result.status, Some(0), "{}", result.stderr);
        result.stdout
    };
    let folded = export("folded");
    let count = |line: &str| -> u64 {
        let (_, count) = line.rsplit_once(' ').expect("stack and count");
        count.parse().expect("number")
    };
    assert_eq!(folded.lines().map(count).sum::<u64>(), counted);
    let perf = export("perf-script");
    let events = perf.lines().filter_map(|line| {
        let (_, event) = line.strip_suffix(" instructions:")?.rsplit_once(' ')?;
        event.parse::<u64>().ok()
    });
    assert_eq!(events.sum::<u64>(), counted);
    let file: Value = serde_json::from_str(&export("speedscope")).expect("one JSON object");
    let profile = &file["profiles"][0];
    let frames = file["shared"]["frames"].as_array().expect("list").len();
    let samples = profile["samples"].as_array().expect("list");
    assert_eq!(samples.len(), folded.lines().count());
    let indices = samples
        .iter()
        .flat_map(|sample| sample.as_array().expect("list"));
    assert!(indices
        .clone()
        .all(|index| index.as_u64().is_some_and(|index| index < frames as u64)));
    let weights = profile["weights"].as_array().expect("list");
    let sum: f64 = weights.iter().map(number).sum();
    let per_operation = counted as f64 / number(&json["operations"]);
    assert_near(sum, per_operation, &file);
}

/// The debug files of libc, which QEMU uses, are installed on many hosts.
#[test]
fn source_lines_come_from_debug_files() {
    let place = Place::new();
    let words = ["--lines"];
    let Some((_, json)) = profile_with(&place, "sim/qemu-kvm", "exits/port-out", &words) else {
        return;
    };
    assert_eq!(errors_by_schema("explain.json", &json), [] as [String; 0]);
    let of_libc = |key: &str| {
        let all = json[key].as_array().expect("list").iter();
        all.filter(|item| item["component"] == "libc")
            .cloned()
            .collect::<Vec<_>>()
    };
    if !std::path::Path::new("/usr/lib/debug/.build-id").is_dir() {
        return trapline_tests::skip("source lines", "libc6-dbg is not installed");
    }
    let is_source = |item: &Value| {
        item["file"]
            .as_str()
            .is_some_and(|file| file.contains(".c"))
    };
    assert!(of_libc("functions").iter().any(is_source), "{json:#}");
    let lines = of_libc("lines");
    assert!(lines.iter().any(is_source), "{json:#}");
    let sum: f64 = lines.iter().map(|line| number(&line["insn"])).sum();
    let of_functions = component_insn(&json, "libc");
    assert!(
        sum > 0.0 && sum <= of_functions + 1e-6,
        "{sum} of {of_functions}"
    );
}

#[test]
fn source_lines_have_a_place_in_the_format() {
    let words = ["sim", "exits/port-out", "--lines", "--format", "folded"];
    let result = explain(&Place::new(), &words);
    assert_eq!(result.status, Some(2), "{}", result.stderr);
    assert!(
        result
            .stderr
            .contains("use --format table, json or speedscope"),
        "{}",
        result.stderr
    );
}

#[test]
fn differential_flame_graph_shows_two_environments() {
    let place = Place::new();
    let file = place.path().join("difference.svg");
    let words = ["sim", "sim/kvm", "exits/port-out", "--flamegraph"];
    let words = [&words[..], &[file.to_str().expect("path is UTF-8")]].concat();
    if !has_qemu("a differential flame graph") {
        return;
    }
    let result = explain(&place, &words);
    if result.status == Some(1) {
        return trapline_tests::skip("a differential flame graph", result.stderr.trim());
    }
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let svg = std::fs::read_to_string(file).expect("readable file");
    assert_stands_alone(&svg);
    let alone = explain(&place, &["sim/kvm", "exits/port-out"]).stdout;
    let (figure, _) = alone
        .split_once(" insn")
        .expect("it begins with the figure");
    let (_, figure) = figure.split_once("in sim/kvm: ").expect("figure");
    let title = format!("in sim → sim/kvm: {figure}");
    for label in [title.as_str(), "kvm_amd`__svm_vcpu_run"] {
        assert!(svg.contains(label), "{label} is missing");
    }
}
