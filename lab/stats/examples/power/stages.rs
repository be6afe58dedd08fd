//! Stages of a boot: the median of each launch's own steps.

use crate::Trials;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_abi::Stage;
use trapline_model::testing::boot;
use trapline_model::{EnvironmentId, Launch, Observation};
use trapline_stats::rng::{normal, rng};
use trapline_stats::{summarise, Sorted};

/// Launches of a boot.
const LAUNCHES: usize = 20;

/// Stages with the medians of their lengths, in microseconds.
const STAGES: [(Stage, f64); 5] = [
    (Stage::VmmMain, 400.0),
    (Stage::VmCreated, 900.0),
    (Stage::VmmEntry, 300.0),
    (Stage::GuestMain, 700.0),
    (Stage::FirstSample, 200.0),
];

pub fn print(trials: Trials) {
    let trials = trials.of(400);
    println!("Stages of {LAUNCHES} launches: how far off the worst of five is in the median of {trials} boots, by the");
    println!("medians of the launches' own steps and by the differences of the medians since exec; how often");
    println!("the interval of a step (95.86%) has its median.");
    println!("launches                        own steps  differences  covers");
    for (name, stalls, stream) in [
        ("lengths of sd 50%", 0.0, 0),
        ("40% stall for 4 ms", 0.4, 1),
    ] {
        let mut rng = rng(120, stream);
        let mut found = vec![(Vec::new(), Vec::new()); STAGES.len()];
        let mut covers = 0;
        for _ in 0..trials {
            let timelines = summarise(&[simulated(stalls, &mut rng)]).timelines;
            let mut before = 0.0;
            for ((at, (_, length)), (own, differences)) in
                timelines[0].stages.iter().zip(STAGES).zip(&mut found)
            {
                let length = length * 1e3;
                own.push(at.step / length);
                differences.push((at.reached - before) / length);
                let has = at
                    .step_interval
                    .is_some_and(|it| it.low <= length && length <= it.high);
                covers += usize::from(has);
                before = at.reached;
            }
        }
        let off = |values: Vec<f64>| {
            let median = Sorted::new(values).map_or(f64::NAN, |sorted| sorted.median());
            (median - 1.0).abs()
        };
        let worst = found
            .into_iter()
            .fold([0.0_f64; 2], |worst, (own, differences)| {
                [worst[0].max(off(own)), worst[1].max(off(differences))]
            });
        let [own, differences] = worst.map(|it| format!("{:.1}%", 100.0 * it));
        let covers = crate::percent(covers, trials * STAGES.len(), 1);
        println!("{name:30} {own:>10} {differences:>12} {covers:>7}");
    }
    println!();
}

/// Returns a boot whose launches stall at one stage of three with this probability.
fn simulated(stalls: f64, rng: &mut ChaCha8Rng) -> Observation {
    let launches = (0..LAUNCHES).map(|_| {
        let stalled = (rng.random::<f64>() < stalls).then(|| rng.random_range(0..STAGES.len()));
        let mut at = 0.0;
        let reached = STAGES.iter().enumerate().map(|(index, (stage, length))| {
            let spread = if stalls > 0.0 { 0.02 } else { 0.5 };
            at += length * 1e3 * (spread * normal(rng)).exp();
            at += if stalled == Some(index) { 4e6 } else { 0.0 };
            (*stage, at as u64)
        });
        Launch {
            timeline: reached.collect(),
            ..Launch::default()
        }
    });
    Observation {
        launches: launches.collect(),
        ..boot(EnvironmentId::KVM, 0, [])
    }
}
