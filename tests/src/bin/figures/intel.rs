//! Figures of the simulated machine with VMX: identical in every run with and without load, and the
//! duration of a run.

use crate::judge::{Figures, Verdict};
use crate::Load;
use std::time::Instant;
use trapline_tests::run::Place;

const ENVIRONMENTS: &str = "sim-vmx,sim-vmx/linux,sim-vmx/kvm,sim-vmx/qemu-kvm,sim-vmx/xen-pvh";

/// Runs, of which every second is with all cores busy.
const RUNS: usize = 5;

/// Every figure of all its environments, but those of memory's speed, five times (11).
pub fn same_digits(place: &Place) {
    println!("11. The machine with Intel's virtualization, {RUNS} times");
    let mut first: Option<Figures> = None;
    for run in 0..RUNS {
        let load = (run % 2 == 1).then(Load::on_every_core);
        let around = if load.is_some() { "busy" } else { "idle" };
        let start = Instant::now();
        let words = ["-q", "--env", ENVIRONMENTS, "--workload", "basic,exits"];
        let figures = Figures::new(place.measure(&words));
        let seconds = start.elapsed().as_secs_f64();
        drop(load);
        let Some(first) = &first else {
            println!("   {around}, {seconds:.0} s");
            first = Some(figures);
            continue;
        };
        let (same, differ) = first.compare_exact(&figures);
        let verdict = Verdict::of(same > 0 && differ.is_empty());
        let others = differ.len();
        println!(
            "   {around}, {seconds:.0} s: {same} estimates identical, {others} differ {verdict}"
        );
        for line in differ {
            println!("     {line}");
        }
    }
    println!();
}
