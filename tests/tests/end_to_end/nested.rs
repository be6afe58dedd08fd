//! Nested virtualization on the simulated machine, end to end.

use serde_json::Value;
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, skip};

const WHAT: &str = "nested virtualization";

/// Returns whether an environment is ready; otherwise records a skip.
fn is_ready(place: &Place, environment: &str) -> bool {
    let ended = place.run(&["list", "--format", "json"]);
    let json: Value = serde_json::from_str(&ended.output).expect("one JSON object");
    let all = json["environments"].as_array().expect("a list");
    let entry = all.iter().find(|entry| entry["name"] == environment);
    let reason = entry.expect("the environment exists")["reason"].as_str();
    if let Some(reason) = reason {
        skip(WHAT, reason);
    }
    reason.is_none()
}

fn cell<'a>(run: &'a Value, environment: &str, operation: &str) -> &'a Value {
    let cells = run["cells"].as_array().expect("a list");
    let is_cell =
        |cell: &&Value| cell["environment"] == environment && cell["operation"] == operation;
    cells.iter().find(is_cell).expect("it was measured")
}

/// An exit of a nested guest costs about ten exits, and two boots measure the same.
#[test]
#[ignore = "slow: make test-all"]
fn nested_exits_are_measured_exactly() {
    let place = Place::new();
    if !has_qemu(WHAT) || !is_ready(&place, "sim/kvm/kvm") {
        return;
    }
    let words = "-q --env sim/kvm,sim/kvm/kvm --workload exits/port-out,exits/cpuid,boot/main";
    let run = place.measure(&words.split(' ').collect::<Vec<_>>());
    for (operation, expected) in [("port-out", 8.0..13.0), ("cpuid", 8.0..13.0)] {
        let min = |environment| {
            let cell = cell(&run, environment, operation);
            cell["min"].as_f64().expect("a number")
        };
        let factor = min("sim/kvm/kvm") / min("sim/kvm");
        assert!(expected.contains(&factor), "{operation}: {factor}");
    }
    let boot = cell(&run, "sim/kvm/kvm", "main");
    assert!(boot["estimate"].as_f64() > Some(1e6), "{boot:#}");
    let facts = &run["environments"]["sim/kvm/kvm"]["facts"];
    assert_eq!(facts["guest-without"], "kvm-pv-eoi", "{facts:#}");
    assert!(facts["l2-memory-mib"].is_string(), "{facts:#}");
}

/// The instructions of a nested exit are assigned to levels. An interrupt after an instruction that
/// is intercepted only in part may leave a residual.
#[test]
#[ignore = "slow: make test-all"]
fn nested_exits_are_explained_by_level() {
    let place = Place::new();
    if !has_qemu(WHAT) || !is_ready(&place, "sim/kvm/kvm") {
        return;
    }
    let words = [
        "explain",
        "sim/kvm/kvm",
        "exits/port-out",
        "--format",
        "json",
    ];
    let ended = place.run(&words);
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    let profile: Value = serde_json::from_str(&ended.output).expect("one JSON object");
    let residual = profile["residual"].as_i64().expect("a number");
    assert!(residual.abs() <= 10, "{residual}");
    let functions = profile["functions"].as_array().expect("a list");
    let insn = |component: &str| -> f64 {
        let own = functions
            .iter()
            .filter(|item| item["component"] == component);
        own.filter_map(|item| item["insn"].as_f64()).sum()
    };
    for (component, expected) in [
        ("kvm", 10_000.0..30_000.0),
        ("L2/kvm", 800.0..2_000.0),
        ("L2/kvm_amd", 500.0..1_500.0),
        ("L2/trapline-vmm", 30.0..60.0),
        ("guest", 3.0..7.0),
    ] {
        let insn = insn(component);
        assert!(expected.contains(&insn), "{component}: {insn}");
    }
}
