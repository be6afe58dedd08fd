//! Workload `system`: process operations on the host and on the instruction clock, and their profiles.

use crate::shared::default_run;
use serde_json::Value;
use trapline_tests::measurements::{assert_measured, cell, facts, fastest, functions, total_insn};
use trapline_tests::run::{has, Place};
use trapline_tests::{has_qemu, skip};

const OPERATIONS: [&str; 10] = [
    "fork",
    "exec",
    "page-fault",
    "page-fault-cow",
    "context-switch",
    "pipe",
    "mmap",
    "syscall",
    "page-table-update",
    "make",
];

/// Checks that an operation costs more than a small part of it, by the fastest batches. Other
/// programs of the host do not change that on the wall clock.
fn check_parts(json: &Value, environment: &str) {
    let of = |operation| fastest(json, environment, operation);
    assert_measured(json, environment, &OPERATIONS);
    assert!(of("make") > of("fork"), "a script has eight steps");
    assert!(of("fork") > of("pipe"), "{json:#}");
    assert!(of("pipe") > of("syscall"), "a pipe takes two calls");
}

/// Checks relations between operations that hold on every Linux, in instructions.
fn check_order(json: &Value, environment: &str) {
    let of = |operation| fastest(json, environment, operation);
    assert_measured(json, environment, &OPERATIONS);
    assert!(of("exec") > of("fork"), "exec includes a fork");
    assert!(of("make") > 8.0 * of("exec"), "a script has eight steps");
    assert!(of("fork") > 10.0 * of("pipe"), "{json:#}");
    // A copy costs more than a present page.
    assert!(of("page-fault-cow") > of("page-fault"), "{json:#}");
    // A context switch adds to a write and a read.
    assert!(of("context-switch") > of("pipe"), "{json:#}");
}

#[test]
fn process_operations_are_measured_on_the_host() {
    let json = &default_run().json;
    check_parts(json, "host");
    assert_eq!(cell(json, "host", "fork")["ratio"], 1.0);
}

/// At ring 3, where KVM emulates ring 0: the VMM has the address spaces.
#[test]
fn process_operations_of_the_image_are_measured_in_kvm() {
    if has("kvm", "processes of the image on this host") {
        check_parts(&default_run().json, "kvm");
    }
}

#[test]
fn process_operations_of_linux_are_exact() {
    let feature = "processes on the instruction clock";
    if !has_qemu(feature) {
        return;
    }
    let json =
        Place::reproducing().measure(&["--env", "sim/linux", "--workload", "system,basic/getpid"]);
    if let Some(reason) = cell(&json, "sim/linux", "fork")["skip"].as_str() {
        return skip(feature, reason);
    }
    check_order(&json, "sim/linux");
    check_exact(&json, "sim/linux");
}

/// Checks that two boots gave the same figures.
fn check_exact(json: &Value, environment: &str) {
    for operation in OPERATIONS {
        let measured = cell(json, environment, operation);
        assert_eq!(measured["flags"], serde_json::json!([]), "{measured:#}");
        assert_eq!(measured["boots"], 2, "two boots are identical");
    }
}

#[test]
fn process_operations_of_the_image_are_exact() {
    let feature = "processes of the image on the instruction clock";
    if !has_qemu(feature) {
        return;
    }
    let words = ["--env", "sim,sim/kvm", "--workload", "system,basic/getpid"];
    let json = Place::reproducing().measure(&words);
    check_order(&json, "sim");
    check_exact(&json, "sim");
    if let Some(reason) = cell(&json, "sim/kvm", "fork")["skip"].as_str() {
        return skip(feature, reason);
    }
    check_order(&json, "sim/kvm");
    check_exact(&json, "sim/kvm");
    for operation in ["fork", "exec", "page-fault", "context-switch", "syscall"] {
        let ratio = cell(&json, "sim/kvm", operation)["ratio"].as_f64().unwrap();
        assert!((ratio - 1.0).abs() < 0.05, "no exits: {operation} {ratio}");
    }
}

/// Each entry and exit loads CR3.
#[test]
fn isolated_kernels_execute_more_at_each_entry_and_exit() {
    let feature = "page-table isolation on the instruction clock";
    if !has_qemu(feature) {
        return;
    }
    let place = Place::new();
    let [without, with] = ["none", "kpti"].map(|isolation| {
        let words = ["--env", "sim,sim/kvm,sim/linux", "--workload", "system"];
        place.measure(&[&words[..], &["--isolation", isolation]].concat())
    });
    for environment in ["sim", "sim/kvm", "sim/linux"] {
        if let Some(reason) = cell(&with, environment, "fork")["skip"].as_str() {
            skip(feature, reason);
            continue;
        }
        check_order(&with, environment);
        for operation in ["syscall", "null-io", "page-fault", "fork", "exec"] {
            let [before, after] =
                [&without, &with].map(|json| fastest(json, environment, operation));
            assert!(after > before, "{environment} {operation} {before} {after}");
        }
        assert_eq!(facts(&with, environment)["isolation-pcid"], "no");
    }
    let words = ["explain", "sim", "system/page-fault", "--isolation", "kpti"];
    let result = place.run(&[&words[..], &["--format", "json"]].concat());
    assert_eq!(result.status, Some(0), "{result:?}");
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON");
    assert_eq!(json["residual"], 0, "residual");
}

/// System calls of an image at ring 3 do not leave its process.
#[test]
fn process_operations_of_the_image_at_ring_3_are_measured() {
    let feature = "processes of the image at ring 3";
    if !has("sim/process", feature) {
        return;
    }
    let json = &default_run().json;
    let of = |operation| fastest(json, "sim/process", operation);
    assert!(of("exec") > of("fork"), "exec includes a fork");
    assert!(of("make") > 8.0 * of("exec"), "a script has eight steps");
    assert!(of("context-switch") > of("pipe"), "{json:#}");
    assert!(of("syscall") <= 353.0, "{json:#}");
    assert!(of("pipe") <= 2_000.0, "{json:#}");
    assert!(
        of("context-switch") <= 7_162.0,
        "1.1 times that of Linux: {json:#}"
    );
}

#[test]
fn profiles_of_process_operations_at_ring_3_add_up() {
    if !has("sim/process", "profiles of the image at ring 3") {
        return;
    }
    let operations = ["system/fork", "system/context-switch", "system/make"];
    let words = ["explain", "sim/process", &operations.join(",")];
    let json = Place::new()
        .run(&[&words[..], &["--format", "json"]].concat())
        .json();
    let ledgers = json["ledgers"].as_array().expect("several profiles");
    let residual = |ledger: &Value| (ledger["operation"].clone(), ledger["residual"].clone());
    let expected = operations.map(|operation| (operation.into(), 0.into()));
    assert_eq!(ledgers.iter().map(residual).collect::<Vec<_>>(), expected);
}

/// A load of CR3 costs least if the processes of a guest hand over to each other, and most if there is one.
#[test]
fn processes_of_a_guest_make_its_context_switches_cheaper() {
    let place = Place::new();
    if !has("sim/process", "processes of the image at ring 3") {
        return;
    }
    let switch = |settings: &[&str]| {
        let words = [
            "--env",
            "sim/process",
            "--workload",
            "system/context-switch",
        ];
        let json = place.measure(&[&words[..], settings].concat());
        fastest(&json, "sim/process", "context-switch")
    };
    let guest = fastest(&default_run().json, "sim/process", "context-switch");
    let vmm = switch(&["--switch", "vmm"]);
    let single = switch(&["--spaces", "1"]);
    assert!(
        2.0 * guest < vmm && 2.0 * vmm < single,
        "{guest} {vmm} {single}"
    );
}

#[test]
fn profile_of_a_page_fault_of_the_image_adds_up() {
    if !has_qemu("a page fault's profile") {
        return;
    }
    let words = ["explain", "sim", "system/page-fault", "--format", "json"];
    let result = Place::new().run(&words);
    assert_eq!(result.status, Some(0), "{result:?}");
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON");
    assert_eq!(json["residual"], 0, "residual");
    let handler = "trapline_page_fault_entry";
    let mut named = functions(&json, "guest").filter(|item| item["function"] == handler);
    assert!(named.next().is_some(), "{json:#}");
}

#[test]
fn profile_of_a_fork_includes_the_child() {
    let feature = "a fork's profile";
    if !has_qemu(feature) {
        return;
    }
    let place = Place::new();
    let result = place.run(&["explain", "sim/linux", "system/fork", "--format", "json"]);
    if result.status != Some(0) && result.stderr.contains("sim/linux:") {
        return skip(feature, &result.stderr);
    }
    assert_eq!(result.status, Some(0), "{result:?}");
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON");
    assert_eq!(json["residual"], 0, "residual");
    let insn = |name: &str| -> f64 {
        let named = functions(&json, "kernel").filter(|item| item["function"] == name);
        named.filter_map(|item| item["insn"].as_f64()).sum()
    };
    assert!((total_insn(&json) - json["total"].as_f64().unwrap()).abs() < 0.01);
    // Parent and child.
    assert!(insn("copy_page_range") > 0.0 && insn("do_exit") > 0.0);
}
