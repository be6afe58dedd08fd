//! Alternative intervals of the same estimate, which are not used: resampled boots show too little of the
//! far tail that a table requires, or too much.

use crate::hosts::Host;
use crate::{percent, Trials};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal};
use trapline_stats::rng::rng;
use trapline_stats::verdict::{Design, Settings, TableTest, TestInput};

/// The level of one comparison, and in a table of 66 operations of which it alone changed.
const ALONE: f64 = 0.01;
const IN_TABLE: f64 = ALONE / 66.0;

/// Share of values trimmed at either end, as in [`TableTest`].
const TRIMMED: f64 = 0.15;

pub fn print(trials: Trials) {
    let (for_alarms, for_power) = (trials.of(1000), trials.of(60));
    println!("Rival intervals of the same estimate: p of 1% at most where nothing changed (at");
    println!("most 1%), and how often 5% is found alone in a table of 66. {for_alarms} and {for_power} trials.");
    println!("                  false alarms at 1%              5% found in a table");
    println!("host    boots   judge  resampled     BCa        judge  resampled     BCa");
    let test = TableTest::new(&Settings::default());
    for (host, stream) in Host::ALL
        .into_iter()
        .zip(0..)
        .filter(|(host, _)| *host != Host::Drift)
    {
        for boots in [8, 12, 20] {
            let mut rng = rng(300 + boots as u64, stream);
            let rejected = |effect, alpha, trials, rng: &mut ChaCha8Rng| {
                let mut counts = [0; 3];
                for _ in 0..trials {
                    let input = host.measured(boots, effect, Design::Blocked, rng);
                    let p = p_values(&input, alpha, &test, rng);
                    for (count, rejects) in counts.iter_mut().zip(p) {
                        *count += usize::from(rejects);
                    }
                }
                counts.map(|count| percent(count, trials, 1))
            };
            let [one, two, three] = rejected(0.0, ALONE, for_alarms, &mut rng);
            let [four, five, six] = rejected(0.05, IN_TABLE, for_power, &mut rng);
            let name = host.name();
            println!(
                "{name:7} {boots:5} {one:>7} {two:>10} {three:>7} {four:>12} {five:>10} {six:>7}"
            );
        }
    }
    println!();
}

/// Returns whether [`TableTest`], the resampled percentile-t and BCa reject a ratio of 1.
fn p_values(input: &TestInput, alpha: f64, test: &TableTest, rng: &mut ChaCha8Rng) -> [bool; 3] {
    let result = test.test(std::slice::from_ref(input)).remove(0);
    let logarithm = |boot: Option<f64>| boot.expect("it has a figure").ln();
    let pairs = input.a.iter().zip(&input.b);
    let differences = pairs.map(|(a, b)| logarithm(b.median()) - logarithm(a.median()));
    let mut values: Vec<f64> = differences.collect();
    values.sort_by(f64::total_cmp);
    let draws = (5.0 / alpha) as usize;
    let drawn: Vec<(f64, f64)> = (0..draws)
        .map(|_| trimmed(&resampled(&values, rng)))
        .collect();
    [
        result.is_ok_and(|one| one.p.is_some_and(|p| p <= alpha)),
        percentile_t(&values, &drawn, alpha),
        bca(&values, &drawn, alpha),
    ]
}

fn resampled(values: &[f64], rng: &mut ChaCha8Rng) -> Vec<f64> {
    let draw = |_| values[rng.random_range(0..values.len())];
    let mut drawn: Vec<f64> = (0..values.len()).map(draw).collect();
    drawn.sort_by(f64::total_cmp);
    drawn
}

/// The trimmed mean and its standard error.
fn trimmed(sorted: &[f64]) -> (f64, f64) {
    let cut = (TRIMMED * sorted.len() as f64) as usize;
    let kept = &sorted[cut..sorted.len() - cut];
    let staying = kept.len() as f64;
    let clamped = sorted
        .iter()
        .map(|one| one.clamp(kept[0], kept[kept.len() - 1]));
    let middle = clamped.clone().sum::<f64>() / sorted.len() as f64;
    let squares: f64 = clamped.map(|one| (one - middle).powi(2)).sum();
    let mean = kept.iter().sum::<f64>() / staying;
    (mean, (squares / (staying * (staying - 1.0))).sqrt())
}

/// Symmetric percentile-t (Efron and Tibshirani 1993, section 12.5; Hall 1988).
fn percentile_t(values: &[f64], drawn: &[(f64, f64)], alpha: f64) -> bool {
    let (center, error) = trimmed(values);
    let farther = drawn
        .iter()
        .filter(|(mean, its)| *its <= 0.0 || (mean - center).abs() / its >= center.abs() / error);
    (farther.count() + 1) as f64 <= alpha * (drawn.len() + 1) as f64
}

/// Bias-corrected and accelerated (Efron and Tibshirani 1993, section 14.3).
fn bca(values: &[f64], drawn: &[(f64, f64)], alpha: f64) -> bool {
    let normal = Normal::standard();
    let (center, _) = trimmed(values);
    let mut means: Vec<f64> = drawn.iter().map(|(mean, _)| *mean).collect();
    means.sort_by(f64::total_cmp);
    let below = means.partition_point(|mean| *mean < center) as f64 / means.len() as f64;
    let bias = normal.inverse_cdf(below.clamp(1e-4, 1.0 - 1e-4));
    let acceleration = acceleration(values);
    let end = |share: f64| {
        let moved = bias + normal.inverse_cdf(share);
        let share = normal.cdf(bias + moved / (1.0 - acceleration * moved));
        means[((share * means.len() as f64) as usize).min(means.len() - 1)]
    };
    end(alpha / 2.0) > 0.0 || end(1.0 - alpha / 2.0) < 0.0
}

/// Returns the acceleration from the leave-one-out estimates.
fn acceleration(values: &[f64]) -> f64 {
    let without = |index: usize| {
        let mut rest = values.to_vec();
        rest.remove(index);
        trimmed(&rest).0
    };
    let estimates: Vec<f64> = (0..values.len()).map(without).collect();
    let mean = estimates.iter().sum::<f64>() / estimates.len() as f64;
    let power = |exponent| -> f64 {
        estimates
            .iter()
            .map(|one| (mean - one).powi(exponent))
            .sum()
    };
    if power(2) > 0.0 {
        power(3) / (6.0 * power(2).powf(1.5))
    } else {
        0.0
    }
}
