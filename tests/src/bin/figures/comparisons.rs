//! Whether comparisons can be trusted on this host: how often two that are the same are
//! called changed, and whether a slowdown that was planted is found.

use crate::judge::Verdict;
use serde_json::Value;
use std::path::PathBuf;
use trapline_tests::parts;
use trapline_tests::run::Place;

/// Comparisons of a config with itself, each of a table of operations.
const TABLES: u32 = 20;

/// Workloads that are compared, of about ten operations each.
const OPERATIONS: &str = "basic,system";

/// What is nominal: a comparison in a hundred.
const NOMINAL: f64 = 0.01;

/// Blocks by which it is decided how much slower a plant is.
const TRUTH: u32 = 60;

/// The seed of those: they share nothing with the comparison that is to find it.
const TRUTH_SEED: u64 = 2;

/// Size of a planted slowdown.
const PLANTED: f64 = 0.05;

/// False alarms of a host that may be busy, then what was planted (13).
pub fn trusted(place: &Place) {
    println!("13. Comparisons: a config against itself, {TABLES} tables of {OPERATIONS}");
    alarms(place);
    println!("14. Comparisons: a planted slowdown of getpid, and none");
    match Plants::beside(place) {
        Ok(plants) => planted(place, &plants),
        Err(error) => println!("   skipped: {error}"),
    }
    println!();
}

fn alarms(place: &Place) {
    let (mut judged, mut below, mut changed, mut unsure) = (0u32, 0u32, 0u32, 0u32);
    for seed in 1..=TABLES {
        let words = format!("host host --workload {OPERATIONS} --seed {seed} --format json");
        let told = place.run_storing("compare", &words).json();
        for one in told["operations"].as_array().into_iter().flatten() {
            judged += u32::from(one["p"].is_number());
            below += u32::from(one["p"].as_f64().is_some_and(|p| p <= NOMINAL));
            changed += u32::from(one["verdict"] == "changed");
            unsure += u32::from(one["verdict"] == "unsure");
        }
    }
    let expected = f64::from(judged) * NOMINAL;
    // Three standard deviations of a binomial count above what is expected.
    let most = expected + 3.0 * (expected * (1.0 - NOMINAL)).sqrt();
    println!("   {judged} comparisons, {unsure} unsure");
    println!(
        "   {below} with p of at most 1% each (expected {expected:.1}, at most {most:.1}) {}",
        Verdict::of(judged >= 200 && f64::from(below) <= most)
    );
    println!("   {changed} called changed after adjustment over their table\n");
}

/// Agents in worlds of which one is slower.
struct Plants {
    directory: PathBuf,
}

impl Plants {
    fn beside(place: &Place) -> std::io::Result<Self> {
        let directory = place.path().join("plants");
        std::fs::create_dir_all(&directory)?;
        std::os::unix::fs::symlink(
            parts().join("trapline-agent"),
            directory.join("trapline-agent"),
        )?;
        Ok(Self { directory })
    }

    /// How many instructions make a call slower by this share, and how much slower they do
    /// make it, by many blocks. A processor hides the first ones behind what stands around the
    /// call, so it is searched for, and no other loop than the agent's can tell.
    fn slowdown(&self, place: &Place, share: f64) -> Option<(u32, f64)> {
        let flags = format!("--boots {TRUTH} --seed {TRUTH_SEED}");
        let effect = |instructions| self.compare(place, instructions, &flags)?["effect"].as_f64();
        let (mut less, mut more) = (0, 400);
        let mut nearest = (more, effect(more)?);
        while more - less > 4 {
            let middle = (less + more) / 2;
            let told = effect(middle)?;
            let distance = |effect: f64| (effect - 1.0 - share).abs();
            if distance(told) < distance(nearest.1) {
                nearest = (middle, told);
            }
            match told < 1.0 + share {
                true => less = middle,
                false => more = middle,
            }
        }
        Some(nearest)
    }

    /// What a comparison says of a call after so many instructions, and after none.
    fn compare(&self, place: &Place, instructions: u32, flags: &str) -> Option<Value> {
        let usual = self.agent("usual", 0).ok()?;
        let other = self.agent("other", instructions).ok()?;
        let words = format!(
            "host:agent={} host:agent={} --workload basic/getpid --format json {flags}",
            usual.display(),
            other.display()
        );
        let told = place.run_storing("compare", &words).json();
        Some(told["operations"].as_array()?.first()?.clone())
    }

    /// The agent after so many instructions more at each system call.
    fn agent(&self, name: &str, instructions: u32) -> std::io::Result<PathBuf> {
        let path = self.directory.join(format!("{name}-{instructions}"));
        std::fs::copy(own("plant")?, &path)?;
        Ok(path)
    }
}

/// A program that was built with this one.
fn own(name: &str) -> std::io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    Ok(here.with_file_name(name))
}

fn planted(place: &Place, plants: &Plants) {
    let Some((wanted, effect)) = plants.slowdown(place, PLANTED) else {
        return println!("   skipped: what was planted could not be compared");
    };
    println!("   by {TRUTH} blocks {wanted} instructions of a filter make it {effect:.3} times");
    for (name, instructions, expected) in [("slower", wanted, "changed"), ("same", 0, "equivalent")]
    {
        let Some(told) = plants.compare(place, instructions, "--until-sure") else {
            println!("   {name}: could not be compared");
            continue;
        };
        println!(
            "   {name}: {} after {} blocks, effect {:.4} ({:.4} to {:.4}) {}",
            told["verdict"],
            told["blocks"],
            told["effect"].as_f64().unwrap_or(f64::NAN),
            told["low"].as_f64().unwrap_or(f64::NAN),
            told["high"].as_f64().unwrap_or(f64::NAN),
            Verdict::of(told["verdict"] == expected)
        );
    }
}
