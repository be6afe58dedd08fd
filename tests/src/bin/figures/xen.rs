//! Figures of Xen domains: identical in every run, with and without load and snapshots.

use crate::judge::{Figures, Verdict};
use crate::Load;
use std::time::Instant;
use trapline_tests::run::Place;

/// Number of runs. Odd ones are on busy cores; two boot without snapshot, one idle, one busy.
const RUNS: usize = 5;
const FRESH: [usize; 2] = [2, 3];

/// Five runs of both kinds of domains, digit for digit the same (10).
pub fn five_runs(place: &Place) {
    println!("10. Xen, {RUNS} times");
    // Creates missing snapshots, and is the reference.
    let first = measure(place, false);
    for run in 1..=RUNS {
        let busy = run % 2 == 1;
        let fresh = FRESH.contains(&run);
        let load = busy.then(Load::on_every_core);
        let start = Instant::now();
        let again = measure(place, fresh);
        let seconds = start.elapsed().as_secs_f64();
        drop(load);
        let (same, differ) = first.compare_exact(&again);
        let verdict = Verdict::of(same > 0 && differ.is_empty());
        println!(
            "   {}, {}, {seconds:.0} s: {same} estimates identical, {} differ {verdict}",
            if fresh { "booted" } else { "restored" },
            if busy { "busy" } else { "idle" },
            differ.len()
        );
        for line in differ {
            println!("     {line}");
        }
    }
    println!();
}

fn measure(place: &Place, fresh: bool) -> Figures {
    let words = ["-q", "--env", "sim/xen-pvh,sim/xen-hvm"];
    let fresh = fresh.then_some("--fresh");
    let words: Vec<_> = words.into_iter().chain(fresh).collect();
    Figures::new(place.measure(&words))
}
