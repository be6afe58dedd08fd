//! `trapline populate`: memory hotplug on wall and instruction clocks, and environments without it.

use serde_json::Value;
use trapline_tests::measurements::{cell, cells, estimate, fastest, functions, total_insn};
use trapline_tests::run::{assert_fits_80_columns, CommandOutput, Place};
use trapline_tests::{has_kvm, has_qemu, skip};

fn populate(place: &Place, words: &str) -> CommandOutput {
    place.run_storing("populate", words)
}

#[test]
fn invalid_options_are_rejected_and_help_fits_80_columns() {
    let place = Place::new();
    for (words, message) in [
        ("--order 1", "unknown value '1' for '--order <N,M>'"),
        ("--order 0,huge", "unknown value 'huge'"),
        ("--co-tenant 2G", "MIB"),
        ("--co-tenant 1", "from 32 to 65536 MiB"),
        ("--env host --co-tenant 64", "add kvm or sim/kvm to --env"),
        ("--env sim/kmv", "did you mean 'sim/kvm'?"),
        ("--boots 0", "--boots"),
    ] {
        let result = populate(&place, words);
        assert_eq!(result.status, Some(2), "{words}: {result:?}");
        assert!(
            result.stderr.contains(message),
            "{words}: {}",
            result.stderr
        );
    }
    let help = place.run(&["populate", "--help"]);
    assert_eq!(help.status, Some(0), "{}", help.stderr);
    assert_fits_80_columns(&help.stdout);
}

#[test]
fn populating_a_process_is_measured_and_stored() {
    let place = Place::new();
    let words = "--env host --order 0,9 --boots 2 --format json";
    let result = populate(&place, words);
    assert_eq!(result.status, Some(0), "{result:?}");
    let json = result.json();
    assert_eq!(cells(&json).len(), 12, "{json:#}");
    let given = json["populate"].as_array().expect("list");
    for one in given {
        let of = |key: &str| one[key].as_f64().expect("number");
        assert!((of("attach") + of("touch") - of("total")).abs() < 1e-6);
        assert!((of("per_page") * of("pages") - of("total")).abs() < 1e-3);
    }
    // Touching populated memory does not clear pages.
    let of = |operation| fastest(&json, "host", operation);
    assert!(of("touch-9-prefault") < of("touch-9"), "{json:#}");
    let shown = place.run(&[
        "show",
        "--store",
        place.store().to_str().expect("path is UTF-8"),
    ]);
    assert!(
        shown.stdout.contains("Memory given, wall clock"),
        "{}",
        shown.stdout
    );
    assert_fits_80_columns(&shown.stdout);
}

#[test]
fn populating_a_guest_of_the_host_is_measured() {
    if !has_kvm("memory given to a guest on this host") {
        return;
    }
    let place = Place::new();
    let json = populate(&place, "--env kvm --order 3,9 --boots 1 --format json").json();
    for cell in cells(&json) {
        let huge = cell["operation"]
            .as_str()
            .is_some_and(|name| name.contains("-2m"));
        match (huge, &cell["skip"]) {
            (true, Value::String(reason)) => {
                assert!(reason.contains("transparent_hugepage"), "{reason}");
                skip("pages of 2 MiB", reason);
            }
            _ => assert!(cell["estimate"].is_number(), "{cell:#}"),
        }
    }
    let of = |operation| estimate(&json, "kvm", operation);
    assert!(of("touch-9") > of("touch-3"), "more pages are given");
}

/// On exact clocks one fault is one exit, and figures are reproducible.
#[test]
fn each_page_on_the_simulated_machine_is_one_exit() {
    if !has_qemu("memory given on the simulated machine") {
        return;
    }
    let words = "--env sim/kvm --order 0,9 --format json";
    let json = populate(&Place::new(), words).json();
    if cells(&json).iter().all(|cell| cell["skip"].is_string()) {
        return skip(
            "memory given in sim/kvm",
            &cells(&json)[0]["skip"].to_string(),
        );
    }
    // Timer interrupts of the machine may add one or two exits in twelve regions.
    for (operation, pages) in [
        ("attach-0", 1.0),
        ("touch-0", 1.0),
        ("touch-9", 512.0),
        ("touch-9-prefault", 512.0),
        ("touch-9-2m", 1.0),
        ("touch-9-2m-prefault", 1.0),
    ] {
        let exits = &cell(&json, "sim/kvm", operation)["exits"];
        let exits = exits.as_f64().expect("number");
        assert!(
            (pages..pages + 1.0).contains(&exits),
            "{operation}: {exits}"
        );
    }
    for cell in cells(&json) {
        assert!(cell["estimate"].is_number(), "{cell}");
        assert_eq!(cell["flags"], serde_json::json!(["unproved"]), "{cell}");
    }
}

/// The profile lists functions of the VMM and the kernel, and adds up.
#[test]
fn profile_of_populating_adds_up() {
    if !has_qemu("the profile of giving memory") {
        return;
    }
    let place = Place::new();
    let result = place.run(&[
        "explain",
        "sim/kvm",
        "populate/attach-9",
        "--format",
        "json",
    ]);
    if result.status != Some(0) {
        skip("the profile of giving memory", result.stderr.trim());
        return;
    }
    let json = result.json();
    let sum = total_insn(&json);
    let total = json["total"].as_f64().expect("number");
    assert!((sum - total).abs() < 1.0, "{sum} of {total}");
    assert_eq!(json["residual"], 0, "{json:#}");
    for component in ["kernel", "kvm", "trapline-vmm", "guest"] {
        assert!(functions(&json, component).count() > 0, "{component}");
    }
}

#[test]
fn environments_without_hotplug_are_skipped_with_a_reason() {
    if !has_qemu("reasons not to give memory") {
        return;
    }
    let place = Place::new();
    let result = populate(&place, "--env sim,qemu-tcg --order 0,18");
    assert_eq!(result.status, Some(4), "{result:?}");
    let words: Vec<&str> = result.stdout.split_whitespace().collect();
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
