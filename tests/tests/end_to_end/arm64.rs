//! The simulated machine with a processor of Arm.

use crate::shared::assert_reproducible;
use trapline_tests::measurements::{assert_measured, cells, estimate, facts};
use trapline_tests::run::{has, Place};

const LINUX: &str = "sim-arm64/linux";
const FEATURE: &str = "the agent for Arm";

#[test]
fn two_boots_of_arm_have_the_same_figures() {
    if !has(LINUX, FEATURE) {
        return;
    }
    let place = Place::reproducing();
    let json = place.measure(&["--env", LINUX, "--workload", "basic,exits,system"]);
    let operations = "getpid null-io page-fault id-register timer-wake fork exec make";
    let operations: Vec<_> = operations.split(' ').collect();
    assert_measured(&json, LINUX, &operations);
    // A system call of Linux 6.1 and 6.12 on a Cortex-A57.
    let getpid = estimate(&json, LINUX, "getpid");
    assert!((200.0..600.0).contains(&getpid), "{getpid}");
    // The kernel emulates the register for its programs.
    let register = estimate(&json, LINUX, "id-register");
    assert!(register > getpid, "{register}");
    let machine = facts(&json, LINUX)["machine"].as_str().expect("a machine");
    assert!(machine.contains("cntfrq=1000000000"), "{machine}");
    assert_reproducible(&place, LINUX);
}

#[test]
fn instructions_of_another_processor_are_refused_if_they_are_named() {
    let place = Place::new();
    for (environment, operation, better) in [
        (LINUX, "exits/cpuid", "measure host or sim/linux"),
        ("host", "exits/id-register", "measure sim-arm64/linux"),
    ] {
        if environment == LINUX && !has(LINUX, FEATURE) {
            continue;
        }
        let run = place.run(&["run", "--env", environment, "--workload", operation]);
        assert_eq!(run.status, Some(4), "{}{}", run.stdout, run.stderr);
        let words: Vec<_> = run.stdout.split_whitespace().collect();
        assert!(words.join(" ").contains(better), "{}", run.stdout);
    }
    let json = place.measure(&["--env", "host", "--workload", "exits"]);
    let mut all = cells(&json).iter();
    let is_known = all.any(|cell| cell["operation"] == "id-register");
    assert!(!is_known, "nobody asked for it: {json:#}");
}
