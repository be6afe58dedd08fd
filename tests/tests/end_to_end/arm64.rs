//! The simulated machine with a processor of Arm.

use crate::shared::assert_reproducible;
use trapline_tests::measurements::{assert_measured, cell, estimate, facts};
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
    for operation in [
        "getpid",
        "null-io",
        "page-fault",
        "id-register",
        "fork",
        "exec",
        "make",
    ] {
        assert_measured(cell(&json, LINUX, operation));
    }
    // A system call of Linux 6.1 and 6.12 on a Cortex-A57.
    let getpid = estimate(&json, LINUX, "getpid");
    assert!((200.0..600.0).contains(&getpid), "{getpid}");
    // The kernel emulates the register for its programs.
    let register = estimate(&json, LINUX, "id-register");
    assert!(register > getpid, "{register}");
    assert_eq!(facts(&json, LINUX)["clock"], "insn-arm64");
    assert_reproducible(&place, LINUX);
}

#[test]
fn instructions_of_another_processor_are_refused_by_name_only() {
    let place = Place::new();
    let refused = |environment: &str, operation: &str| {
        let plan = place.run(&[
            "run",
            "--dry-run",
            "--env",
            environment,
            "--workload",
            operation,
        ]);
        plan.errors
    };
    let on_arm = refused(LINUX, "exits/cpuid");
    assert!(on_arm.contains("measure host or sim/linux"), "{on_arm}");
    let on_x86 = refused("sim/linux", "exits/id-register");
    assert!(on_x86.contains("measure sim-arm64/linux"), "{on_x86}");
    let both = place.run(&[
        "run",
        "--dry-run",
        "--env",
        "sim/linux",
        "--workload",
        "exits",
    ]);
    assert!(!both.errors.contains("id-register"), "{}", both.errors);
}
