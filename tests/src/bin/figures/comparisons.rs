//! Whether comparisons can be trusted on this host: how often two that are the same are
//! called changed, and whether a slowdown that was planted is found.

use crate::judge::Verdict;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_tests::parts;
use trapline_tests::run::Place;

/// Comparisons of a contender with itself, each of a table of operations.
const TABLES: u32 = 20;

/// What they measure: about ten operations in each.
const OPERATIONS: &str = "basic,system";

/// What is nominal: a comparison in a hundred.
const NOMINAL: f64 = 0.01;

/// Turns in which what was planted is timed.
const TURNS: u32 = 5;

/// What a planted slowdown is to be.
const PLANTED: f64 = 0.05;

/// False alarms of a host that may be busy, then what was planted (13).
pub fn trusted(place: &Place) {
    println!("13. Comparisons: a contender against itself, {TABLES} tables of {OPERATIONS}");
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
    /// make it. A processor hides the first ones behind others, so it is searched for.
    fn slowdown(&self, share: f64) -> Option<(u32, f64)> {
        let usual = self.agent("timed", 0).ok()?;
        // In turns, for the host is another one in each second.
        let effect = |instructions| {
            let slower = self.agent("timed", instructions).ok()?;
            let turn = |_| Some([told(&usual)?, told(&slower)?]);
            let turns: Vec<[f64; 2]> = (0..TURNS).filter_map(turn).collect();
            let middle = |side: usize| {
                let mut all: Vec<f64> = turns.iter().map(|turn| turn[side]).collect();
                all.sort_by(f64::total_cmp);
                all.get(all.len() / 2).copied()
            };
            Some(middle(1)? / middle(0)?)
        };
        let (mut less, mut more) = (0, 400);
        while more - less > 4 {
            let middle = (less + more) / 2;
            match effect(middle)? < 1.0 + share {
                true => less = middle,
                false => more = middle,
            }
        }
        let effect = effect(more)?;
        (effect > 1.0 + share / 2.0).then_some((more, effect))
    }

    /// The agent after so many instructions more at each system call.
    fn agent(&self, name: &str, instructions: u32) -> std::io::Result<PathBuf> {
        let path = self.directory.join(format!("{name}-{instructions}"));
        std::fs::copy(own("plant")?, &path)?;
        Ok(path)
    }
}

/// What a plant says that a call costs, in nanoseconds.
fn told(plant: &Path) -> Option<f64> {
    let output = Command::new(plant).arg("time").output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// A program that was built with this one.
fn own(name: &str) -> std::io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    Ok(here.with_file_name(name))
}

fn planted(place: &Place, plants: &Plants) {
    let compare = |a: &Path, b: &Path| -> Option<Value> {
        let words = format!(
            "host:agent={} host:agent={} --workload basic/getpid --format json",
            a.display(),
            b.display()
        );
        let told = place.run_storing("compare", &words).json();
        Some(told["operations"].as_array()?.first()?.clone())
    };
    let Ok(usual) = plants.agent("usual", 0) else {
        return println!("   skipped: the program 'plant' is not built");
    };
    let Some((wanted, effect)) = plants.slowdown(PLANTED) else {
        return println!("   skipped: no filter makes getpid slower by {PLANTED}");
    };
    println!("   by its own clock {wanted} instructions of a filter make it {effect:.3} times");
    for (name, instructions, expected) in [("slower", wanted, "changed"), ("same", 0, "equivalent")]
    {
        let told = plants.agent(name, instructions).ok();
        let told = told.and_then(|agent| compare(&usual, &agent));
        let Some(told) = told else {
            println!("   {name}: could not be compared");
            continue;
        };
        println!(
            "   {name}: {}, effect {:.4} ({:.4} to {:.4}) {}",
            told["verdict"],
            told["effect"].as_f64().unwrap_or(f64::NAN),
            told["low"].as_f64().unwrap_or(f64::NAN),
            told["high"].as_f64().unwrap_or(f64::NAN),
            Verdict::of(told["verdict"] == expected)
        );
    }
}
