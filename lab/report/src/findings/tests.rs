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
    let expected =
        "On this host a guest's write to a port costs 5.60 times as much in QEMU as in trapline-vmm.";
    assert_eq!(titles(&[dear, cheap]), [expected]);
}

#[test]
fn small_exact_differences_are_percentages() {
    let cells = |dear| {
        let dear = cell(EnvironmentId::SIM_QEMU_KVM, dear, vec![]);
        [dear, cell(EnvironmentId::SIM_KVM, 3_118.0, vec![])]
    };
    let start = "In instructions (AMD) a guest's write to a port costs";
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
fn flagged_figures_give_no_finding() {
    let doubt = Flag::ClocksDisagree {
        share: 0.6,
        boots: 2,
    };
    let dear = cell(EnvironmentId::QEMU_KVM, 28_000.0, vec![doubt]);
    let cheap = cell(EnvironmentId::KVM, 5_000.0, vec![]);
    assert_eq!(titles(&[dear, cheap]), [] as [&str; 0]);
}
