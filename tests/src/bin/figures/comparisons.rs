//! Error rates of comparisons on this host: false alarms between identical configurations, and
//! detection of a planted slowdown.

use crate::judge::Verdict;
use serde_json::Value;
use std::path::PathBuf;
use trapline_tests::parts;
use trapline_tests::run::Place;

/// Comparisons of a config with itself, each of a table of operations.
const TABLES: u32 = 20;

/// Workloads that are compared, of about ten operations each.
const OPERATIONS: &str = "basic,system";

/// Nominal false discovery rate.
const NOMINAL: f64 = 0.01;

/// Number of blocks that determine the size of a planted slowdown.
const TRUTH: u32 = 60;

/// Seed of these blocks, different from that of the tested comparison.
const TRUTH_SEED: u64 = 2;

/// Size of a planted slowdown.
const PLANTED: f64 = 0.05;

/// Counts false alarms, then tests the detection of a planted slowdown (13).
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
        let json = place.run_storing("compare", &words).json();
        for one in json["operations"].as_array().into_iter().flatten() {
            judged += u32::from(one["p"].is_number());
            below += u32::from(one["p"].as_f64().is_some_and(|p| p <= NOMINAL));
            changed += u32::from(one["verdict"] == "changed");
            unsure += u32::from(one["verdict"] == "unsure");
        }
    }
    let expected = f64::from(judged) * NOMINAL;
    // Three standard deviations of a binomial count above its mean.
    let most = expected + 3.0 * (expected * (1.0 - NOMINAL)).sqrt();
    println!("   {judged} comparisons, {unsure} unsure");
    println!(
        "   {below} with p of at most 1% each (expected {expected:.1}, at most {most:.1}) {}",
        Verdict::of(judged >= 200 && f64::from(below) <= most)
    );
    println!("   {changed} called changed after adjustment over their table\n");
}

/// Agents with and without a planted slowdown.
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

    /// Returns the number of instructions that slow a call down by `share`, and the measured effect.
    /// Found by bisection with the agent's own loop: the CPU executes the first ones in parallel with
    /// the code around the call.
    fn slowdown(&self, place: &Place, share: f64) -> Option<(u32, f64)> {
        let flags = format!("--boots {TRUTH} --seed {TRUTH_SEED}");
        let effect = |instructions| self.compare(place, instructions, &flags)?["effect"].as_f64();
        let (mut less, mut more) = (0, 400);
        let mut nearest = (more, effect(more)?);
        while more - less > 4 {
            let middle = (less + more) / 2;
            let measured = effect(middle)?;
            let distance = |effect: f64| (effect - 1.0 - share).abs();
            if distance(measured) < distance(nearest.1) {
                nearest = (middle, measured);
            }
            if measured < 1.0 + share {
                less = middle
            } else {
                more = middle
            }
        }
        Some(nearest)
    }

    /// Returns the comparison of getpid with and without planted instructions.
    fn compare(&self, place: &Place, instructions: u32, flags: &str) -> Option<Value> {
        let usual = self.agent("usual", 0).ok()?;
        let other = self.agent("other", instructions).ok()?;
        let words = format!(
            "host:agent={} host:agent={} --workload basic/getpid --format json {flags}",
            usual.display(),
            other.display()
        );
        let json = place.run_storing("compare", &words).json();
        Some(json["operations"].as_array()?.first()?.clone())
    }

    /// Returns the path of an agent with additional instructions at each system call.
    fn agent(&self, name: &str, instructions: u32) -> std::io::Result<PathBuf> {
        let path = self.directory.join(format!("{name}-{instructions}"));
        std::fs::copy(own("plant")?, &path)?;
        Ok(path)
    }
}

/// Returns the path of a program that was built with this one.
fn own(name: &str) -> std::io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    Ok(here.with_file_name(name))
}

fn planted(place: &Place, plants: &Plants) {
    let Some((wanted, effect)) = plants.slowdown(place, PLANTED) else {
        return println!("   skipped: the planted slowdown could not be compared");
    };
    println!("   by {TRUTH} blocks {wanted} instructions of a filter make it {effect:.3} times");
    for (name, instructions, expected) in [("slower", wanted, "changed"), ("same", 0, "equivalent")]
    {
        let Some(json) = plants.compare(place, instructions, "--sequential") else {
            println!("   {name}: could not be compared");
            continue;
        };
        println!(
            "   {name}: {} after {} blocks, effect {:.4} ({:.4} to {:.4}) {}",
            json["verdict"],
            json["blocks"],
            json["effect"].as_f64().unwrap_or(f64::NAN),
            json["low"].as_f64().unwrap_or(f64::NAN),
            json["high"].as_f64().unwrap_or(f64::NAN),
            Verdict::of(json["verdict"] == expected)
        );
    }
}
