//! `trapline populate` as people use it: what giving memory costs, exact where
//! instructions are counted, and a reason where nobody gives any.

use serde_json::Value;
use trapline_tests::run::{Ended, Place};
use trapline_tests::{has_kvm, has_qemu, skip};

fn populate(place: &Place, words: &str) -> Ended {
    place.run_storing("populate", words)
}

fn cells(told: &Value) -> &[Value] {
    told["cells"].as_array().expect("a list")
}

/// The cell of an operation.
fn cell<'a>(told: &'a Value, environment: &str, operation: &str) -> &'a Value {
    let its = |cell: &&Value| cell["environment"] == environment && cell["operation"] == operation;
    let found = cells(told).iter().find(its);
    found.unwrap_or_else(|| panic!("no {operation} in {environment}: {told:#}"))
}

#[test]
fn invalid_options_are_rejected_and_help_fits_80_columns() {
    let place = Place::new();
    for (words, told) in [
        ("--order 1", "unknown value '1' for '--order <N,M>'"),
        ("--order 0,huge", "unknown value 'huge'"),
        ("--co-tenant 2G", "MIB"),
        ("--co-tenant 1", "from 32 to 65536 MiB"),
        ("--env host --co-tenant 64", "add kvm or sim/kvm to --env"),
        ("--env sim/kmv", "did you mean 'sim/kvm'?"),
        ("--boots 0", "--boots"),
    ] {
        let ended = populate(&place, words);
        assert_eq!(ended.status, Some(2), "{words}: {ended:?}");
        assert!(ended.errors.contains(told), "{words}: {}", ended.errors);
    }
    let help = place.run(&["populate", "--help"]);
    assert_eq!(help.status, Some(0), "{}", help.errors);
    for line in help.output.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
}

#[test]
fn populating_a_process_is_measured_and_stored() {
    let place = Place::new();
    let words = "--env host --order 0,9 --boots 2 --format json";
    let ended = populate(&place, words);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told = ended.json();
    assert_eq!(cells(&told).len(), 12, "{told:#}");
    let given = told["populate"].as_array().expect("a list");
    for one in given {
        let of = |key: &str| one[key].as_f64().expect("a number");
        assert!((of("attach") + of("touch") - of("total")).abs() < 1e-6);
        assert!((of("per_page") * of("pages") - of("total")).abs() < 1e-3);
    }
    // What is there already is quickly touched; the kernel clears no page for it.
    let of = |operation| cell(&told, "host", operation)["min"].as_f64();
    assert!(of("touch-9-prefault") < of("touch-9"), "{told:#}");
    let shown = place.run(&[
        "show",
        "--store",
        place.store().to_str().expect("the path is text"),
    ]);
    assert!(
        shown.output.contains("Memory given, wall clock"),
        "{}",
        shown.output
    );
    for line in shown.output.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
}

#[test]
fn populating_a_guest_of_the_host_is_measured() {
    if !has_kvm("memory given to a guest on this host") {
        return;
    }
    let place = Place::new();
    let told = populate(&place, "--env kvm --order 3,9 --boots 1 --format json").json();
    for cell in cells(&told) {
        let huge = cell["operation"]
            .as_str()
            .is_some_and(|name| name.contains("-2m"));
        match (huge, &cell["skip"]) {
            (true, Value::String(reason)) => {
                assert!(reason.contains("transparent_hugepage"), "{reason}");
                skip("pages of 2 MiB", reason);
            }
            _ => assert!(cell["estimate"].as_f64() > Some(0.0), "{cell:#}"),
        }
    }
}

/// On exact clocks one fault is one exit, and figures are reproducible.
#[test]
fn each_page_on_the_simulated_machine_is_one_exit() {
    if !has_qemu("memory given on the simulated machine") {
        return;
    }
    let words = "--env sim/kvm --order 0,9 --format json";
    let runs = [Place::new(), Place::new()].map(|place| populate(&place, words).json());
    let told = &runs[0];
    if cells(told).iter().all(|cell| cell["skip"].is_string()) {
        skip("memory given in sim/kvm", "the machine cannot be made here");
        return;
    }
    // The machine's own timer may take the guest away once or twice in twelve regions.
    for (operation, pages) in [
        ("attach-0", 1.0),
        ("touch-0", 1.0),
        ("touch-9", 512.0),
        ("touch-9-prefault", 512.0),
        ("touch-9-2m", 1.0),
        ("touch-9-2m-prefault", 1.0),
    ] {
        let exits = &cell(told, "sim/kvm", operation)["exits"];
        let exits = exits.as_f64().expect("a number");
        assert!(
            (pages..pages + 1.0).contains(&exits),
            "{operation}: {exits}"
        );
    }
    let figures = |told: &Value| -> Vec<(Value, Value)> {
        let all = cells(told).iter();
        all.map(|cell| (cell["operation"].clone(), cell["estimate"].clone()))
            .collect()
    };
    assert_eq!(figures(told), figures(&runs[1]));
    assert!(figures(told)
        .iter()
        .all(|(_, estimate)| estimate.is_number()));
}

/// The profile lists functions of the VMM and the kernel, and adds up.
#[test]
fn profile_of_populating_adds_up() {
    if !has_qemu("the profile of giving memory") {
        return;
    }
    let place = Place::new();
    let ended = place.run(&[
        "explain",
        "sim/kvm",
        "populate/attach-9",
        "--format",
        "json",
    ]);
    if ended.status != Some(0) {
        skip("the profile of giving memory", ended.errors.trim());
        return;
    }
    let told = ended.json();
    let functions = told["functions"].as_array().expect("a list");
    let sum: f64 = functions
        .iter()
        .filter_map(|one| one["insn"].as_f64())
        .sum();
    let total = told["total"].as_f64().expect("a number");
    assert!((sum - total).abs() < 1.0, "{sum} of {total}");
    assert_eq!(told["residual"], 0, "{told:#}");
    for component in ["kernel", "kvm", "trapline-vmm", "guest"] {
        let its = |one: &&Value| one["component"] == component;
        assert!(functions.iter().any(|one| its(&one)), "{component}");
    }
}

#[test]
fn environments_without_hotplug_are_skipped_with_a_reason() {
    if !has_qemu("reasons not to give memory") {
        return;
    }
    let place = Place::new();
    let ended = populate(&place, "--env sim,qemu-tcg --order 0,18");
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let words: Vec<&str> = ended.output.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("sim: a bare machine has the memory"),
        "{words}"
    );
    assert!(
        words.contains("qemu-tcg: QEMU gives a running guest memory by ACPI"),
        "{words}"
    );
    assert!(!words.contains("Memory given"), "{words}");
}
