//! Looking until sure: the error rate over all looks, and how soon it ends.

use crate::hosts::Host;
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::judge::{Design, Judge, Question, Settings, UntilSure, Verdict};
use trapline_stats::spread::chance;

const FIRST: usize = 8;
const EVERY: usize = 4;
const MOST: usize = 40;

pub fn print(trials: Trials) {
    let trials = trials.of(2000);
    println!("Looking after {FIRST} blocks and then every {EVERY}, until sure or at {MOST}. Of a true ratio");
    println!("of 1: how often changed is said at any look (at most 1%), without a margin, and");
    println!("if every look had the whole 1%; with a margin of 2%, how often equivalent is.");
    println!("Of 1.03: how often changed is. Blocks: the mean when it ended. {trials} trials.");
    println!("host     changed  careless   equivalent blocks    +3% blocks");
    for (host, stream) in Host::ALL.into_iter().zip(0..) {
        line(host, stream, trials);
    }
    println!();
}

fn line(host: Host, stream: u64, trials: usize) {
    let with_margin = |margin| {
        let settings = Settings {
            margin,
            most_blocks: MOST,
            ..Settings::default()
        };
        Judge::new(&settings)
    };
    let (bare, judge) = (with_margin(0.0), with_margin(0.02));
    let mut chance = chance(7, stream);
    let mut runs = |judge: &Judge, effect| -> Vec<(Verdict, usize)> {
        let run = |_| until_sure(host, judge, effect, &mut chance);
        (0..trials).map(run).collect()
    };
    let (wrong, same, changed) = (runs(&bare, 0.0), runs(&judge, 0.0), runs(&judge, 0.03));
    let careless = (0..trials).filter(|_| carelessly(host, &bare, &mut chance));
    let share = |runs: &[(Verdict, usize)], verdict| {
        let is = runs.iter().filter(|one| one.0 == verdict).count();
        percent(is, trials, 1)
    };
    println!(
        "{:7} {:>8} {:>9} {:>12} {:>6} {:>6} {:>6}",
        host.name(),
        share(&wrong, Verdict::Changed),
        percent(careless.count(), trials, 1),
        share(&same, Verdict::Equivalent),
        blocks(&same),
        share(&changed, Verdict::Changed),
        blocks(&changed),
    );
}

fn blocks(runs: &[(Verdict, usize)]) -> String {
    let sum: usize = runs.iter().map(|one| one.1).sum();
    format!("{:.1}", sum as f64 / runs.len() as f64)
}

fn first_blocks(all: &Question, blocks: usize) -> Question {
    Question {
        a: all.a[..blocks].to_vec(),
        b: all.b[..blocks].to_vec(),
        ..*all
    }
}

fn until_sure(host: Host, judge: &Judge, effect: f64, chance: &mut ChaCha8Rng) -> (Verdict, usize) {
    let all = host.measured(MOST, effect, Design::Blocks, chance);
    let mut looks = UntilSure::new(judge.clone());
    let mut blocks = FIRST;
    loop {
        let judged = looks.look(&[first_blocks(&all, blocks)], blocks, blocks == MOST);
        let verdict = judged[0].as_ref().expect("it is judged").verdict;
        if blocks == MOST || looks.is_sure() {
            return (verdict, blocks);
        }
        blocks += EVERY;
    }
}

/// Whether any look at the whole level says changed.
fn carelessly(host: Host, judge: &Judge, chance: &mut ChaCha8Rng) -> bool {
    let all = host.measured(MOST, 0.0, Design::Blocks, chance);
    (FIRST..=MOST).step_by(EVERY).any(|blocks| {
        let judged = judge.judge(&[first_blocks(&all, blocks)]).remove(0);
        judged.expect("it is judged").verdict == Verdict::Changed
    })
}
