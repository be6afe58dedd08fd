//! Requirements of the exact gate: figures and profiles that are identical in every run, with and without
//! load and snapshots; and the time that this takes.

use crate::judge::Verdict;
use crate::{Load, SIMULATED};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trapline_tests::baseline_of_release;
use trapline_tests::run::Place;

/// Number of runs. Half are on busy cores, every third boots without snapshot.
const RUNS: usize = 10;

/// Ten baselines with profiles, byte for byte the same (8).
pub fn ten_baselines(place: &Place) {
    println!("8. Figures and profiles of all simulated environments, {RUNS} times");
    let mut texts: Vec<String> = Vec::new();
    for run in 0..RUNS {
        let load = (run % 2 == 1).then(Load::on_every_core);
        let fresh = run % 3 == 2;
        let mut words = vec!["baseline", "-q", "--env", SIMULATED];
        words.extend(fresh.then_some("--fresh"));
        let (took, made) = timed(|| place.run(&words));
        drop(load);
        let differs = texts.first().is_some_and(|first| *first != made.stdout);
        let outcome = match made.status {
            Some(0) => Verdict::of(!differs).to_string(),
            status => format!("status {status:?}: {}", made.stderr.trim()),
        };
        let start = if fresh { "booted" } else { "restored" };
        let around = if run % 2 == 1 { "busy" } else { "idle" };
        println!(
            "   {start}, {around}, {:.0} s {outcome}",
            took.as_secs_f64()
        );
        texts.push(made.stdout);
    }
    let lines = texts[0].lines().count();
    let same = texts
        .iter()
        .all(|text| *text == texts[0] && !text.is_empty());
    println!(
        "   {lines} lines, byte for byte the same {}\n",
        Verdict::of(same)
    );
}

/// Durations of frequent commands (9).
pub fn waiting(place: &Place) {
    println!("9. Waiting, where snapshots exist");
    let one = [
        "run",
        "-q",
        "--env",
        "sim/kvm",
        "--workload",
        "exits/port-out",
    ];
    let all = ["run", "-q", "--env", SIMULATED];
    // Creates missing snapshots.
    place.run(&one);
    place.run(&all);
    print_duration("two runs of one job", timed(|| place.run(&one)).0, 6.0);
    print_duration("the quick preset", timed(|| place.run(&all)).0, 45.0);
    check_ourselves(place);
    println!();
}

fn check_ourselves(place: &Place) {
    let files = ["sim.json", "sim-kvm.json"].map(baseline_of_release);
    if let Some(Err(reason)) = files.iter().find(|file| file.is_err()) {
        return println!("   a check of ourselves: skipped: {reason}");
    }
    let check = |file: PathBuf| {
        let file = file.to_str().expect("path is UTF-8");
        place.run(&["check", "-q", "--baseline", file])
    };
    let files = files.into_iter().flatten();
    let (took, _) = timed(|| files.map(check).collect::<Vec<_>>());
    print_duration("a check of ourselves", took, 30.0);
}

fn print_duration(label: &str, took: Duration, most: f64) {
    let seconds = took.as_secs_f64();
    let verdict = Verdict::of(seconds <= most);
    println!("   {label}: {seconds:.1} s (at most {most:.0}) {verdict}");
}

fn timed<T>(act: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = act();
    (start.elapsed(), result)
}
