//! Nested virtualization on the simulated machine, end to end.

use trapline_tests::measurements::{cell, component_insn, estimate, facts, fastest};
use trapline_tests::run::{has, Place};

const FEATURE: &str = "nested virtualization";

/// An exit of a nested guest costs seven exits to the VMM, or fifteen that KVM answers: those of its hypervisor to the
/// outer one.
#[test]
#[ignore = "slow: make test-all"]
fn nested_exits_are_measured_exactly() {
    let place = Place::reproducing();
    if !has("sim/kvm/kvm", FEATURE) {
        return;
    }
    let words = "-q --env sim/kvm,sim/kvm/kvm --workload exits/port-out,exits/cpuid,boot/main";
    let run = place.measure(&words.split(' ').collect::<Vec<_>>());
    for (operation, expected) in [("port-out", 5.5..9.0), ("cpuid", 12.0..19.0)] {
        let factor = fastest(&run, "sim/kvm/kvm", operation) / fastest(&run, "sim/kvm", operation);
        assert!(expected.contains(&factor), "{operation}: {factor}");
    }
    let boot = cell(&run, "sim/kvm/kvm", "main");
    assert!(boot["estimate"].as_f64() > Some(1e6), "{boot:#}");
    let facts = facts(&run, "sim/kvm/kvm");
    assert_eq!(facts["guest-without"], "kvm-pv-eoi", "{facts:#}");
    assert!(facts["l2-memory-mib"].is_string(), "{facts:#}");
}

/// The instructions of a nested exit are assigned to levels. An interrupt after an instruction that
/// is intercepted only in part may leave a residual.
#[test]
#[ignore = "slow: make test-all"]
fn nested_exits_are_explained_by_level() {
    let place = Place::new();
    if !has("sim/kvm/kvm", FEATURE) {
        return;
    }
    let words = [
        "explain",
        "sim/kvm/kvm",
        "exits/port-out",
        "--format",
        "json",
    ];
    let result = place.run(&words);
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let profile = result.json();
    let residual = profile["residual"].as_i64().expect("number");
    assert!(residual.abs() <= 10, "{residual}");
    for (component, expected) in [
        ("kvm", 6_000.0..15_000.0),
        ("L2/kvm", 800.0..2_000.0),
        ("L2/kvm_amd", 500.0..1_500.0),
        ("L2/trapline-vmm", 30.0..60.0),
        ("guest", 3.0..7.0),
    ] {
        let insn = component_insn(&profile, component);
        assert!(expected.contains(&insn), "{component}: {insn}");
    }
}

/// Both kinds of domain touch their memory at the same cost: one fault of the outer hypervisor for several pages, which
/// Xen does not see.
#[test]
#[ignore = "slow: make test-all"]
fn first_touch_in_nested_xen_does_not_depend_on_the_kind_of_domain() {
    let place = Place::new();
    if !has("sim/kvm/xen-hvm", FEATURE) {
        return;
    }
    let words =
        "-q --env sim/kvm/xen-pvh,sim/kvm/xen-hvm --workload basic/first-touch-4k,exits/cpuid";
    let run = place.measure(&words.split(' ').collect::<Vec<_>>());
    let [pvh, hvm] = ["sim/kvm/xen-pvh", "sim/kvm/xen-hvm"]
        .map(|environment| estimate(&run, environment, "first-touch-4k"));
    assert!((500.0..5_000.0).contains(&pvh), "{pvh}");
    assert!((pvh - hvm).abs() < pvh / 100.0, "{pvh}, {hvm}");
    // An exit is one of Xen's guest and some of Xen.
    let exit = estimate(&run, "sim/kvm/xen-pvh", "cpuid");
    assert!((7_000.0..16_000.0).contains(&exit), "{exit}");
    for cell in run["cells"].as_array().expect("cells") {
        assert!(cell["failed"].is_null(), "{cell:#}");
    }
    let facts = facts(&run, "sim/kvm/xen-pvh");
    for fact in [
        "xen-sha256",
        "l1-kernel-sha256",
        "l2-kernel-sha256",
        "l2-command-line",
    ] {
        assert!(facts[fact].is_string(), "{fact}: {facts:#}");
    }
}
