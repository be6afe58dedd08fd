//! One operation: coverage of its interval, false positives, power.

use crate::hosts::Host;
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::rng::rng;
use trapline_stats::verdict::{Assessment, Design, Settings, TableTest, Verdict};

const BOOTS: [usize; 5] = [3, 5, 8, 12, 20];
const EFFECTS: [f64; 4] = [0.01, 0.02, 0.05, 0.10];

pub fn in_blocks(trials: Trials) {
    println!("One operation, boots in blocks. Of a true ratio of 1: how often the 95% interval");
    println!("has it, how often p is 1% or 5% at most, how often the verdict is equivalent");
    println!(
        "(margin 2%). Of others: how often p is 1% at most. {} trials.",
        trials.of(4000)
    );
    print(Design::Blocked, &Host::ALL, trials);
}

pub fn independent(trials: Trials) {
    println!("The same, of runs apart: on a host that drifts they cannot be compared.");
    print(Design::Runs, &Host::ALL, trials);
}

fn print(design: Design, hosts: &[Host], trials: Trials) {
    println!("host    boots   covers     1%     5%  equivalent     +1%    +2%    +5%   +10%");
    let test = TableTest::new(&Settings::default());
    for (host, stream) in hosts.iter().zip(0..) {
        for boots in BOOTS {
            let mut rng = rng(boots as u64, stream);
            let line = Line::of(*host, boots, design, &test, trials, &mut rng);
            println!("{:7} {boots:5} {line}", host.name());
        }
    }
    println!();
}

/// Counts of one host and number of boots.
struct Line {
    trials: usize,
    with_interval: usize,
    covers: usize,
    one: usize,
    five: usize,
    equivalent: usize,
    found: [usize; EFFECTS.len()],
}

impl Line {
    fn of(
        host: Host,
        boots: usize,
        design: Design,
        test: &TableTest,
        trials: Trials,
        rng: &mut ChaCha8Rng,
    ) -> Self {
        let trials = trials.of(4000);
        let mut tested = |effect| {
            let input = host.measured(boots, effect, design, rng);
            test.test(&[input]).remove(0).expect("it is tested")
        };
        let null: Vec<Assessment> = (0..trials).map(|_| tested(0.0)).collect();
        let count = |is: &dyn Fn(&Assessment) -> bool| null.iter().filter(|one| is(one)).count();
        Self {
            trials,
            with_interval: count(&|one| one.interval.is_some()),
            covers: count(&|one| one.interval.is_some_and(|i| i.low <= 1.0 && 1.0 <= i.high)),
            one: count(&|one| is_at_most(one, 0.01)),
            five: count(&|one| is_at_most(one, 0.05)),
            equivalent: count(&|one| one.verdict == Verdict::Equivalent),
            found: EFFECTS.map(|effect| {
                let found = (0..trials).filter(|_| is_at_most(&tested(effect), 0.01));
                found.count()
            }),
        }
    }
}

fn is_at_most(assessment: &Assessment, alpha: f64) -> bool {
    assessment.p.is_some_and(|p| p <= alpha)
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let covers = match self.with_interval {
            0 => "none".to_owned(),
            all => percent(self.covers, all, 1),
        };
        let share = |count, digits| percent(count, self.trials, digits);
        write!(
            f,
            "{covers:>8} {:>6} {:>6}",
            share(self.one, 2),
            share(self.five, 2)
        )?;
        write!(f, "{:>12}  ", share(self.equivalent, 0))?;
        for found in self.found {
            write!(f, "{:>7}", share(found, 0))?;
        }
        Ok(())
    }
}
