//! An exact figure of each default operation is the same alone and with all others.
//!
//! Operations that, each alone, are measured by the same starts of a machine form a group: these starts are made once,
//! for the whole group. Only which figures are kept differs between a run of the group and one of a single operation.

use serde_json::Value;
use trapline_abi::{Op, OpSet};
use trapline_model::{expand, EnvironmentId, PlannedBoot, Request};
use trapline_tests::boots::request;
use trapline_tests::measurements::{cell, cells};
use trapline_tests::run::{has, Place};

/// Keys of a cell about the batches of its operation.
const FIGURES: [&str; 4] = ["estimate", "min", "max", "reason"];

fn figures(cell: &Value) -> [&Value; 4] {
    FIGURES.map(|key| &cell[key])
}

/// Returns the starts of a machine that measure one operation, without what is kept of them.
fn starts(environment: EnvironmentId, operation: Op) -> Vec<PlannedBoot> {
    let plan = expand(&Request {
        named: operation.into(),
        ..request(environment, operation)
    });
    let starts = plan.boots[0].starts().map(|start| PlannedBoot {
        kept: OpSet::EMPTY,
        left_out: Vec::new(),
        further: Vec::new(),
        ..start.clone()
    });
    starts.collect()
}

/// Returns the paths of the measured operations of a run, in groups.
fn groups(environment: EnvironmentId, run: &Value) -> Vec<Vec<String>> {
    let mut groups: Vec<(Vec<PlannedBoot>, Vec<String>)> = Vec::new();
    for cell in cells(run).iter().filter(|cell| !cell["estimate"].is_null()) {
        let [workload, name] =
            ["workload", "operation"].map(|key| cell[key].as_str().expect("text"));
        let path = format!("{workload}/{name}");
        let operation = Op::from_path(&path).expect("an operation");
        let starts = starts(environment, operation);
        match groups.iter_mut().find(|group| group.0 == starts) {
            Some((_, paths)) => paths.push(path),
            None => groups.push((starts, vec![path])),
        }
    }
    groups.into_iter().map(|(_, paths)| paths).collect()
}

fn each_figure_is_the_same_alone_and_among_others(environment: EnvironmentId) {
    let name = environment.name();
    let place = Place::new();
    if !has(name, "each figure alone") {
        return;
    }
    let all = place.measure(&["--env", name]);
    let (mut measured, mut different) = (0, Vec::new());
    let groups = groups(environment, &all);
    assert!(groups.len() > 1, "{groups:?}");
    for paths in groups {
        let alone = place.measure(&["--env", name, "--workload", &paths.join(",")]);
        for path in paths {
            let [all, alone] = [&all, &alone].map(|run| cell(run, name, &path));
            measured += 1;
            if figures(all) != figures(alone) {
                let (all, alone) = (&all["estimate"], &alone["estimate"]);
                different.push(format!("{path}: {all} with all others, {alone} alone"));
            }
        }
    }
    println!(
        "{name}: {measured} operations, {} different",
        different.len()
    );
    assert!(measured > 20, "{measured} operations were measured");
    assert!(different.is_empty(), "{name}: {different:#?}");
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_the_bare_machine_are_independent() {
    each_figure_is_the_same_alone_and_among_others(EnvironmentId::SIM);
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_linux_are_independent() {
    each_figure_is_the_same_alone_and_among_others(EnvironmentId::SIM_LINUX);
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_a_guest_of_kvm_are_independent() {
    each_figure_is_the_same_alone_and_among_others(EnvironmentId::SIM_KVM);
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_a_guest_process_are_independent() {
    each_figure_is_the_same_alone_and_among_others(EnvironmentId::SIM_PROCESS);
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_a_linux_guest_are_independent() {
    each_figure_is_the_same_alone_and_among_others(EnvironmentId::SIM_KVM_LINUX);
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_a_guest_of_qemu_are_independent() {
    each_figure_is_the_same_alone_and_among_others(EnvironmentId::SIM_QEMU_KVM);
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_of_a_xen_domain_are_independent() {
    each_figure_is_the_same_alone_and_among_others(EnvironmentId::SIM_XEN_PVH);
}
