use super::*;
use crate::fixture::{figure_between, measured};
use std::collections::BTreeSet;

fn cell(row: EnvironmentId, estimate: f64, flags: Vec<Flag>) -> Cell {
    let figure = figure_between(estimate * 0.99, estimate, estimate * 1.01);
    measured(row, Op::PortOut, Figure { flags, ..figure })
}

fn titles(cells: &[Cell]) -> Vec<String> {
    let found = all(&Report::default(), cells).into_iter();
    found.map(|finding| finding.title).collect()
}

#[test]
fn most_expensive_hypervisor_is_compared_with_the_cheapest() {
    let dear = cell(EnvironmentId::QEMU_KVM, 28_000.0, vec![]);
    let cheap = cell(EnvironmentId::KVM, 5_000.0, vec![]);
    let expected = "On this host a port write costs 5.60 times as much in QEMU as in trapline-vmm.";
    assert_eq!(titles(&[dear, cheap]), [expected]);
}

#[test]
fn small_exact_differences_are_percentages() {
    let cells = |dear| {
        let dear = cell(EnvironmentId::SIM_QEMU_KVM, dear, vec![]);
        [dear, cell(EnvironmentId::SIM_KVM, 3_118.0, vec![])]
    };
    let start = "In instructions (AMD) a port write costs";
    let expected = format!("{start} 4.7% more in QEMU than in trapline-vmm.");
    assert_eq!(titles(&cells(3_264.0)), [expected]);
    let expected = format!("{start} the same in QEMU and in trapline-vmm.");
    assert_eq!(titles(&cells(3_118.0)), [expected]);
}

#[test]
fn hypervisors_of_one_clock_have_different_names() {
    for clock in Clock::ALL {
        let rows = EnvironmentId::all();
        let names: Vec<_> = rows
            .filter(|row| row.clock() == clock)
            .filter_map(hypervisor)
            .collect();
        let distinct: BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}

#[test]
fn flagged_figures_are_not_compared() {
    let doubt = Flag::ClocksDisagree {
        share: 0.6,
        boots: 2,
    };
    let dear = cell(EnvironmentId::QEMU_KVM, 28_000.0, vec![doubt]);
    let cheap = cell(EnvironmentId::KVM, 5_000.0, vec![]);
    let expected = ["An exit costs 5.00 µs in trapline-vmm."];
    assert_eq!(titles(&[dear, cheap]), expected);
}

#[test]
fn overlapping_intervals_are_no_clear_difference() {
    let cells = |boots| {
        [
            (EnvironmentId::QEMU_KVM, 18_000.0, 23_700.0, 29_000.0),
            (EnvironmentId::KVM, 18_300.0, 23_300.0, 24_000.0),
        ]
        .map(|(row, low, estimate, high)| {
            let mut figure = figure_between(low, estimate, high);
            figure.medians.truncate(boots);
            measured(row, Op::PortOut, Figure { boots, ..figure })
        })
    };
    let sentence = |boots| {
        let found = all(&Report::default(), &cells(boots)).remove(0);
        format!("{} {}", found.title, found.text)
    };
    expect_test::expect![[r#"
        No clear difference: a port write takes 23.7 µs in QEMU, 23.3 µs in trapline-vmm (0.75 to 1.58 times). by the 99% interval, which is narrower with more boots.
        No clear difference: a port write takes 23.7 µs in QEMU, 23.3 µs in trapline-vmm. a comparison in words needs 5 boots of each, this run has 3.
    "#]]
    .assert_eq(&format!("{}\n{}\n", sentence(5), sentence(3)));
}
