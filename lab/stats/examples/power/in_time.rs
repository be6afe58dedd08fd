//! The share of expiries in time: coverage of its 95% interval, and wrong results of requirements.

use crate::{percent, Trials};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use statrs::function::factorial::ln_binomial;
use trapline_abi::interrupt::WINDOW;
use trapline_stats::irq::{InTimeInterval, WindowCount};
use trapline_stats::rng::{normal, rng};

const WINDOWS: [usize; 4] = [10, 30, 100, 1000];

/// Process that makes expiries late.
#[derive(Clone, Copy)]
enum Lates {
    /// Each independently, with this probability.
    Independent(f64),
    /// With this probability a window has a burst of a length in this range; others are independent.
    Bursts {
        windows: f64,
        length: (u64, u64),
        others: f64,
    },
    /// Phases of `length` windows on average take this share of all windows; `late` is the late share
    /// within a phase, 0.1% outside.
    Phases { share: f64, length: f64, late: f64 },
    /// A share whose logarithm is a first-order autoregressive process: median 1%,
    /// deviation 1, and this correlation of neighbours.
    Drift(f64),
}

const OUTSIDE: f64 = 0.001;

const CASES: [(&str, Lates); 15] = [
    ("none", Lates::Independent(0.0)),
    ("0.01%", Lates::Independent(0.0001)),
    ("0.1%", Lates::Independent(0.001)),
    ("1%", Lates::Independent(0.01)),
    ("10%", Lates::Independent(0.1)),
    ("50%", Lates::Independent(0.5)),
    ("bursts 1%", bursts(0.01, (10, 300), 0.0)),
    ("bursts 2%", bursts(0.02, (10, 300), 0.0)),
    ("1% + bursts", bursts(0.01, (10, 300), 0.01)),
    ("stalls 2%", bursts(0.02, (1024, 1024), 0.0)),
    ("phases of 4", phases(0.1, 4.0, 0.2)),
    ("phases of 5", phases(0.5, 5.0, 0.1)),
    ("phases of 10", phases(0.3, 10.0, 0.3)),
    ("drift", Lates::Drift(0.8)),
    ("stalls of 4", phases(0.1, 4.0, 1.0)),
];

const fn bursts(windows: f64, length: (u64, u64), others: f64) -> Lates {
    Lates::Bursts {
        windows,
        length,
        others,
    }
}

const fn phases(share: f64, length: f64, late: f64) -> Lates {
    Lates::Phases {
        share,
        length,
        late,
    }
}

pub fn print(trials: Trials) {
    let trials = trials.of(1000);
    println!("The share of timer expiries in time, in windows of {WINDOW}. How often its 95%");
    println!("interval holds the truth (at least 95%); how often a requirement is called met that");
    println!("the truth just violates, and not met that it just satisfies (at most 2.5%); how");
    println!("often the interval has no width; its median width. {trials} runs each.");
    println!("  0.01% to 50%  each expiry independently");
    println!("  bursts        of 10 to 300 expiries, in 1% or 2% of the windows");
    println!("  stalls        whole windows, 2%");
    println!("  phases of 4   windows on average, 10% of all; 20% of a phase is late, else 0.1%");
    println!("  phases of 5   50% of all; 10%      phases of 10  30% of all; 30%");
    println!("  drift         the share is autoregressive: median 1%, correlation 0.8");
    println!(
        "  stalls of 4   windows on average, 10% of all: more than the interval promises, for a"
    );
    println!("                run without one cannot tell how long they are");
    println!("late          windows   covers     met  not met  no width    width");
    for ((name, lates), stream) in CASES.into_iter().zip(0..) {
        let sampler = Sampler::new(lates);
        for windows in WINDOWS {
            let mut rng = rng(windows as u64, stream);
            println!(
                "{name:13} {windows:7} {}",
                Line::of(&sampler, windows, trials, &mut rng)
            );
        }
    }
    println!();
}

/// Counts of one case and number of windows.
struct Line {
    trials: usize,
    covers: usize,
    /// Intervals above the truth, for which a requirement above it is reported as met.
    above: usize,
    below: usize,
    without_width: usize,
    width: f64,
}

impl Line {
    fn of(sampler: &Sampler, windows: usize, trials: usize, rng: &mut ChaCha8Rng) -> Self {
        let truth = 1.0 - sampler.truth;
        let drawn: Vec<(f64, f64)> = (0..trials)
            .map(|_| {
                let interval = InTimeInterval::of(&sampler.windows(windows, rng));
                interval.expect("there are expiries").bursts
            })
            .collect();
        let count = |is: &dyn Fn(f64, f64) -> bool| {
            drawn.iter().filter(|(low, high)| is(*low, *high)).count()
        };
        let mut widths: Vec<f64> = drawn.iter().map(|(low, high)| high - low).collect();
        widths.sort_by(f64::total_cmp);
        Self {
            trials,
            covers: count(&|low, high| low <= truth && truth <= high),
            above: count(&|low, _| low > truth),
            below: count(&|_, high| high < truth),
            without_width: count(&|low, high| low >= high),
            width: widths[trials / 2],
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = |count| percent(count, self.trials, 1);
        write!(
            f,
            "{:>8} {:>7} {:>8} {:>9} {:>7.2}%",
            share(self.covers),
            share(self.above),
            share(self.below),
            share(self.without_width),
            100.0 * self.width
        )
    }
}

/// Draws windows of a case whose share of late expiries is known.
struct Sampler {
    lates: Lates,
    truth: f64,
    /// Late expiries of a window outside of phases or bursts, and within a phase.
    usual: Binomial,
    bad: Binomial,
}

impl Sampler {
    fn new(lates: Lates) -> Self {
        let (truth, usual, bad) = match lates {
            Lates::Independent(late) => (late, late, 0.0),
            Lates::Bursts {
                windows,
                length,
                others,
            } => {
                let mean = (length.0 + length.1) as f64 / 2.0 / f64::from(WINDOW);
                (others + windows * mean * (1.0 - others), others, 0.0)
            }
            Lates::Phases { share, late, .. } => {
                (share * late + (1.0 - share) * OUTSIDE, OUTSIDE, late)
            }
            Lates::Drift(_) => (drift_mean(), 0.0, 0.0),
        };
        Self {
            lates,
            truth,
            usual: Binomial::new(usual),
            bad: Binomial::new(bad),
        }
    }

    /// Draws the late expiries of consecutive windows.
    fn windows(&self, count: usize, rng: &mut ChaCha8Rng) -> Vec<WindowCount> {
        let late: Vec<u64> = match self.lates {
            Lates::Independent(_) => (0..count).map(|_| self.usual.draw(rng)).collect(),
            Lates::Bursts {
                windows, length, ..
            } => (0..count)
                .map(|_| self.burst(windows, length, rng))
                .collect(),
            Lates::Phases { share, length, .. } => self.phases(count, share, length, rng),
            Lates::Drift(correlation) => drift(count, correlation, rng),
        };
        let all = late.into_iter().map(|late| WindowCount {
            boot: 0,
            expiries: WINDOW.into(),
            late,
        });
        all.collect()
    }

    fn burst(&self, windows: f64, length: (u64, u64), rng: &mut ChaCha8Rng) -> u64 {
        let others = self.usual.draw(rng);
        if rng.random::<f64>() >= windows {
            return others;
        }
        let burst = rng.random_range(length.0..=length.1);
        // Independent late expiries outside the burst.
        let kept = others as f64 * (1.0 - burst as f64 / f64::from(WINDOW));
        burst + kept.round() as u64
    }

    fn phases(&self, count: usize, share: f64, length: f64, rng: &mut ChaCha8Rng) -> Vec<u64> {
        let (ends, begins) = (1.0 / length, share / (1.0 - share) / length);
        let mut is_bad = rng.random::<f64>() < share;
        let windows = (0..count).map(|_| {
            let late = if is_bad { &self.bad } else { &self.usual }.draw(rng);
            let changes = rng.random::<f64>() < if is_bad { ends } else { begins };
            is_bad ^= changes;
            late
        });
        windows.collect()
    }
}

/// Returns the late share of a drifting process for a standard normal value.
fn drifted(value: f64) -> f64 {
    (0.01 * value.exp()).min(1.0)
}

/// Returns the mean over the normal distribution, by the trapezoidal rule.
fn drift_mean() -> f64 {
    let step = 1.0 / 256.0;
    let values = (-2048..=2048).map(|index| f64::from(index) * step);
    let density = |value: f64| (-value * value / 2.0).exp() / std::f64::consts::TAU.sqrt();
    values
        .map(|value| drifted(value) * density(value) * step)
        .sum()
}

fn drift(count: usize, correlation: f64, rng: &mut ChaCha8Rng) -> Vec<u64> {
    let step = (1.0 - correlation * correlation).sqrt();
    let mut value = normal(rng);
    let windows = (0..count).map(|_| {
        let late = (drifted(value) * f64::from(WINDOW)).round();
        value = correlation * value + step * normal(rng);
        late as u64
    });
    windows.collect()
}

/// Distribution function of the number of late expiries in a window.
struct Binomial(Vec<f64>);

impl Binomial {
    fn new(late: f64) -> Self {
        let window = u64::from(WINDOW);
        let mut sum = 0.0;
        let up_to = (0..=window).map(|count| {
            let (some, others) = (count as i32, (window - count) as i32);
            let ways = ln_binomial(window, count);
            let log = |base: f64, power: i32| match power {
                0 => 0.0,
                power => f64::from(power) * base.ln(),
            };
            sum += (ways + log(late, some) + log(1.0 - late, others)).exp();
            sum
        });
        Self(up_to.collect())
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        let value = rng.random::<f64>();
        let count = self.0.partition_point(|up_to| *up_to <= value);
        count.min(self.0.len() - 1) as u64
    }
}
