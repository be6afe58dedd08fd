//! The run of a default plan: every environment that this host offers.

use crate::shared::default_run;
use serde_json::Value;
use trapline_model::request::usual_operations;
use trapline_model::{EnvironmentId, Feature};
use trapline_tests::measurements::{
    assert_figure, assert_measured, cell, cells, estimate, facts, fastest,
};
use trapline_tests::run::{assert_fits_80_columns, has, Place};
use trapline_tests::{has_qemu, skip};

/// Operations of the workloads of a default plan, of each of its environments those of its processor.
fn cell_count() -> usize {
    let environments = EnvironmentId::all().filter(|id| id.has(Feature::Default));
    let count = |id: EnvironmentId| {
        let set = id.stack().machine.instruction_set();
        let usual = usual_operations();
        usual.iter().filter(|op| op.exists_on(set)).count()
    };
    environments.map(count).sum()
}

fn show(format: &str) -> String {
    let place = &default_run().place;
    let store = place.store();
    let shown = place.run(&[
        "show",
        "--format",
        format,
        "--store",
        store.to_str().expect("text"),
    ]);
    assert_eq!(shown.status, Some(0), "{}", shown.stderr);
    shown.stdout
}

fn text<'a>(cell: &'a Value, key: &str) -> &'a str {
    cell[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key} in {cell}"))
}

#[test]
fn every_cell_has_a_figure_or_a_reason() {
    let run = default_run();
    assert_eq!(run.result.status, Some(0), "{}", run.result.stderr);
    assert_eq!(
        cells(&run.json).len(),
        cell_count(),
        "environments by operations"
    );
    for cell in cells(&run.json) {
        assert!(cell.get("failed").is_none(), "{cell}");
        match cell.get("skip") {
            Some(reason) => assert!(reason.as_str().is_some_and(|text| text.len() > 8), "{cell}"),
            None => {
                assert_figure(cell);
                assert_ne!(cell["boots"], 1, "{cell}");
            }
        }
    }
}

#[test]
fn exact_figures_are_verified_by_a_second_boot() {
    let run = default_run();
    let exact = cells(&run.json)
        .iter()
        .filter(|cell| cell["clock"] == "insn" && cell.get("skip").is_none());
    let exact: Vec<_> = exact.collect();
    assert!(
        !exact.is_empty() || !has_qemu("figures of an exact clock"),
        "{:#}",
        run.json
    );
    for cell in exact {
        assert_eq!(cell["boots"], 2, "{cell}");
        assert!(
            cell["low"].is_null() && cell["ratio_low"].is_null(),
            "{cell}"
        );
        let flags = cell["flags"].as_array().expect("list");
        assert!(!flags.contains(&"unproved".into()), "{cell}");
    }
}

#[test]
fn host_is_always_measured() {
    let json = &default_run().json;
    let operations = [
        "basic/getpid",
        "basic/yield",
        "basic/malloc-1m",
        "basic/first-touch-4k",
        "stream/triad",
        "boot/main",
    ];
    assert_measured(json, "host", &operations);
}

/// A port write is one instruction on the bare machine, and an exit under a hypervisor.
#[test]
fn exits_leave_the_guest() {
    if !has_qemu("exits on the simulated machine") {
        return;
    }
    let json = &default_run().json;
    let bare = estimate(json, "sim", "exits/port-out");
    assert!(bare < 100.0, "{bare} insn on the bare machine");
    for environment in ["sim/kvm", "sim/qemu-kvm"] {
        let skipped = cell(json, environment, "exits/port-out").get("skip");
        if let Some(reason) = skipped.and_then(Value::as_str) {
            skip("exits of the simulated machine", reason);
            continue;
        }
        let there = estimate(json, environment, "exits/port-out");
        assert!(there > 1000.0, "{there} insn in {environment}");
        let ratio = cell(json, environment, "exits/port-out")["ratio"]
            .as_f64()
            .expect("ratio");
        assert!(
            (ratio - there / bare).abs() < 0.01 * ratio,
            "{ratio} is not {there} / {bare}"
        );
    }
}

#[test]
fn another_run_gives_the_same_figures() {
    if !has_qemu("the same digits in two runs") {
        return;
    }
    let first = default_run();
    // Each boot of the first run is verified by its second.
    let words = ["--env", "sim,sim/kvm", "--exact-boots", "1"];
    let second = first.place.measure(&words);
    let exact: Vec<_> = cells(&second)
        .iter()
        .filter(|cell| cell["estimate"].is_number())
        .collect();
    assert!(!exact.is_empty());
    for again in exact {
        let path = format!("{}/{}", text(again, "workload"), text(again, "operation"));
        let before = cell(&first.json, text(again, "environment"), &path);
        for key in ["estimate", "min", "max", "samples"] {
            assert_eq!(
                before[key], again[key],
                "{path} differs in {key}: {before} {again}"
            );
        }
    }
}

#[test]
fn show_prints_what_run_printed() {
    let run = default_run();
    assert_eq!(first_run("json"), run.result.stdout);
}

/// Returns the first run of the shared store in a format; other tests add runs.
fn first_run(format: &str) -> String {
    let place = &default_run().place;
    let store = place.store();
    let words = [
        "show",
        "--run",
        "1",
        "--format",
        format,
        "--store",
        store.to_str().expect("text"),
    ];
    place.run(&words).stdout
}

#[test]
fn tables_fit_80_columns_and_name_every_operation() {
    let table = first_run("table");
    assert_fits_80_columns(&table);
    for name in [
        "getpid",
        "triad",
        "port-out",
        "timer-wake",
        "first-instruction",
        "host",
    ] {
        assert!(table.contains(name), "{name} is not in\n{table}");
    }
    assert!(!table.contains('\x1b'), "colour in a pipe");
}

#[test]
fn all_formats_have_the_same_cells() {
    let csv = first_run("csv");
    assert_eq!(csv.lines().count(), 1 + cell_count(), "{csv}");
    let markdown = first_run("markdown");
    assert!(
        markdown
            .lines()
            .any(|line| line.starts_with('|') && line.contains("port-out")),
        "{markdown}"
    );
    assert!(show("csv").starts_with(csv.lines().next().expect("header line")));
}

#[test]
fn run_prints_the_result_and_lines_of_progress() {
    let run = default_run();
    assert!(run.result.stdout.starts_with('{') && run.result.stdout.ends_with("}\n"));
    let mut lines = run.result.stderr.lines();
    assert_eq!(lines.next(), Some("0s: checking environments"));
    // A loaded host gives a warning with its remedy.
    let is_warning = |line: &&str| line.starts_with("warning: ") || line.starts_with("help: ");
    // What takes long is named when it begins, anything else every ten seconds.
    let is_beginning = |line: &str| {
        let beginnings = ["boots this machine once", "downloading ", "preparing "];
        beginnings.iter().any(|text| line.contains(text))
    };
    // A sentence is shown when it is known.
    let is_sentence = |line: &&str| line.contains("s: so far: ");
    if has_qemu("a sentence before the run is over") {
        let cost = estimate(&run.json, "sim/kvm", "exits/port-out").round() as u64;
        let (thousands, rest) = (cost / 1000, cost % 1000);
        let exit = format!(
            ": so far: An exit costs {thousands},{rest:03} instructions in trapline-vmm.\n"
        );
        assert!(run.result.stderr.contains(&exit), "{}", run.result.stderr);
    }
    let mut last = 0;
    for line in lines.filter(|line| !is_warning(line) && !is_sentence(line)) {
        let (seconds, _) = line.split_once('s').expect(line);
        let seconds: u64 = seconds.parse().expect(line);
        let interval = if is_beginning(line) { 0 } else { 10 };
        assert!(seconds >= last + interval, "{last}: {line}");
        last = seconds;
    }
}

#[test]
fn loads_take_longer_from_memory_than_from_a_cache() {
    if !has_qemu("loads of memory") {
        return;
    }
    let words = [
        "--env",
        "host,sim",
        "--workload",
        "memory/random-16k,memory/random-64m",
        "--boots",
        "2",
    ];
    let json = Place::new().measure(&words);
    let operations = ["random-16k", "random-64m"];
    assert_measured(&json, "host", &operations);
    let [cache, memory] = operations.map(|operation| fastest(&json, "host", operation));
    assert!(memory > 2.0 * cache, "{cache} {memory}");
    let skip = &cell(&json, "sim", "random-16k")["skip"];
    let reason = skip.as_str().unwrap();
    assert!(reason.contains("a load is one instruction"), "{reason}");
}

#[test]
fn memory_of_a_vmm_in_a_control_group_is_charged() {
    let place = Place::new();
    if !has("sim/kvm", "control groups") {
        return;
    }
    let measured = |group| {
        let words = ["--env", "sim/kvm", "--cgroup", group, "--workload"];
        place.measure(&[&words[..], &["basic/first-touch-4k,exits/port-out"]].concat())
    };
    let (root, own) = (measured("root"), measured("own"));
    let [free, charged] = [&root, &own].map(|json| estimate(json, "sim/kvm", "first-touch-4k"));
    assert!(
        charged > free + 50.0,
        "{charged} in a control group, {free} without"
    );
    let [outside, inside] = [&root, &own].map(|json| estimate(json, "sim/kvm", "port-out"));
    assert_eq!(outside, inside, "an exit");
    let fact = |json| facts(json, "sim/kvm")["l1-control-group"].clone();
    assert!(fact(&root).is_null() && fact(&own).is_string());
}
