//! An exact figure of each default operation is the same alone and with all others.

use serde_json::Value;
use trapline_tests::measurements::cells;
use trapline_tests::run::Place;

/// Keys of a cell about the batches of its operation.
const FIGURES: [&str; 4] = ["estimate", "min", "max", "reason"];

fn figures(cell: &Value) -> [&Value; 4] {
    FIGURES.map(|key| &cell[key])
}

fn each_figure_is_the_same_alone_and_among_others(environment: &str) {
    let place = Place::new();
    if !place.has(environment, "each figure alone") {
        return;
    }
    let all = place.measure(&["--env", environment]);
    let (mut measured, mut different) = (0, Vec::new());
    for cell in cells(&all) {
        let path = [&cell["workload"], &cell["operation"]].map(|it| it.as_str().expect("text"));
        let path = path.join("/");
        if cell["estimate"].is_null() {
            continue;
        }
        let alone = place.measure(&["--env", environment, "--workload", &path]);
        let alone = &cells(&alone)[0];
        measured += 1;
        if figures(cell) != figures(alone) {
            let (all, alone) = (&cell["estimate"], &alone["estimate"]);
            different.push(format!("{path}: {all} with all others, {alone} alone"));
        }
    }
    assert!(measured > 20, "{measured} operations were measured");
    assert!(different.is_empty(), "{environment}: {different:#?}");
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_the_bare_machine_are_independent() {
    each_figure_is_the_same_alone_and_among_others("sim");
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_linux_are_independent() {
    each_figure_is_the_same_alone_and_among_others("sim/linux");
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_a_guest_of_kvm_are_independent() {
    each_figure_is_the_same_alone_and_among_others("sim/kvm");
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_a_guest_process_are_independent() {
    each_figure_is_the_same_alone_and_among_others("sim/process");
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_a_linux_guest_are_independent() {
    each_figure_is_the_same_alone_and_among_others("sim/kvm/linux");
}
