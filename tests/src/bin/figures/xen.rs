//! Xen's figures: the same in every run, whatever else the machine does and however a
//! run began.

use crate::judge::{Figures, Verdict};
use crate::Load;
use std::time::Instant;
use trapline_tests::run::Place;

/// Runs, of which those with an odd number are with every core busy, and two are booted
/// anew: one idle, one busy.
const RUNS: usize = 5;
const FRESH: [usize; 2] = [2, 3];

/// Five runs of both kinds of domains, digit for digit the same (10).
pub fn five_runs(place: &Place) {
    println!("10. Xen, {RUNS} times");
    // Makes the snapshots that are missing, and gives the digits.
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
