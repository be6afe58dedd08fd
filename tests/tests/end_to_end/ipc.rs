//! Workload `ipc`: semaphores between two CPUs of the image and of Linux, and machines without a second CPU.

use serde_json::Value;
use trapline_tests::measurements::{cell, fastest};
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, skip};

const OPERATIONS: [&str; 3] = ["item", "item-work", "wake"];

fn measure(place: &Place, environments: &str, words: &[&str]) -> Value {
    let all = ["--env", environments, "--workload", "ipc"];
    place.measure(&[&all[..], words].concat())
}

/// Checks that two boots gave the same figures, and that work is added to an item.
fn check_exact(json: &Value, environment: &str) {
    for operation in OPERATIONS {
        let measured = cell(json, environment, operation);
        assert_eq!(measured["boots"], 2, "{measured:#}");
    }
    let of = |operation| fastest(json, environment, operation);
    assert!(of("item-work") > of("item") + 2.0 * 2_000.0, "{json:#}");
}

#[test]
fn semaphores_between_cpus_of_the_bare_image_are_exact_and_polling_is_cheaper() {
    if !has_qemu("semaphores on the instruction clock") {
        return;
    }
    let place = Place::new();
    let halting = measure(&place, "sim", &["--cpus", "2"]);
    check_exact(&halting, "sim");
    let polling = measure(&place, "sim", &["--cpus", "2", "--wake", "poll:50"]);
    check_exact(&polling, "sim");
    let wake = |json| fastest(json, "sim", "wake");
    assert!(wake(&polling) < wake(&halting), "{polling:#}\n{halting:#}");
}

#[test]
fn semaphores_between_virtual_cpus_of_kvm_are_exact() {
    let feature = "semaphores between virtual CPUs on the instruction clock";
    if !has_qemu(feature) {
        return;
    }
    let json = measure(&Place::new(), "sim,sim/kvm", &["--cpus", "2"]);
    if let Some(reason) = cell(&json, "sim/kvm", "item")["skip"].as_str() {
        return skip(feature, reason);
    }
    check_exact(&json, "sim/kvm");
    // Each wake-up of a halted virtual CPU takes exits.
    let of = |environment| fastest(&json, environment, "wake");
    assert!(of("sim/kvm") > 10.0 * of("sim"), "{json:#}");
}

#[test]
fn semaphores_between_threads_are_measured_on_the_host() {
    let json = measure(&Place::new(), "host", &["--boots", "2"]);
    for operation in OPERATIONS {
        assert!(fastest(&json, "host", operation) > 0.0, "{json:#}");
    }
}

#[test]
fn a_missing_cpu_or_instruction_is_the_reason_of_a_skip() {
    if !has_qemu("semaphores on the instruction clock") {
        return;
    }
    let place = Place::new();
    let reason = |words: &[&str], environment: &str| {
        let json = measure(&place, environment, words);
        let measured = cell(&json, environment, "wake");
        measured["skip"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(reason(&[], "sim"), "the image has one CPU: choose --cpus 2");
    assert_eq!(
        reason(&["--wake", "mwait", "--boots", "1"], "host"),
        "a Linux process cannot execute mwait"
    );
}
