//! Components of the variance of a figure: between boots, and between the batches of one boot; and the number of batches
//! that follows from them.
//!
//! With `b` boots of `k` batches each, and a boot that costs `c` times what a batch costs, the variance of the mean is
//! smallest for a given time with `k = sqrt(c within^2 / between^2)` batches a boot (Kalibera and Jones 2013,
//! "Rigorous Benchmarking in Reasonable Time", section 9.2). Variances are of logarithms, so deviations are shares.

use crate::sorted::{squared_deviations, variance, Sorted};
use std::f64::consts::FRAC_PI_2;

/// Most batches of a boot that are advised.
const MOST: f64 = 1000.0;

/// Standard deviations of a figure, as shares of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Components {
    /// Between boots: what remains of the variance of their medians without that of their batches.
    pub between: f64,
    /// Between the batches of a boot.
    pub within: f64,
    /// Number of batches of a boot: the mean over boots.
    pub batches: usize,
    /// Number of batches with which a given time gives the narrowest interval; `None` if the cost of a boot is not known.
    pub advised: Option<usize>,
}

impl Components {
    /// Returns the components of the batches of boots; `None` for fewer than two boots of two batches, or a value that is
    /// not positive. `cost` is the time of a boot without its batches as a multiple of that of a batch.
    pub fn of(boots: &[Vec<f64>], cost: Option<f64>) -> Option<Self> {
        let is_usable = |boot: &Vec<f64>| boot.len() > 1 && boot.iter().all(|value| *value > 0.0);
        if boots.len() < 2 || !boots.iter().all(is_usable) {
            return None;
        }
        let logarithms = |boot: &Vec<f64>| boot.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let boots: Vec<Vec<f64>> = boots.iter().map(logarithms).collect();
        let squares = boots.iter().map(|boot| squared_deviations(boot));
        let all: usize = boots.iter().map(Vec::len).sum();
        let within = squares.sum::<f64>() / (all - boots.len()) as f64;
        let medians = boots
            .iter()
            .filter_map(|boot| Some(Sorted::new(boot.clone())?.median()));
        let medians: Vec<f64> = medians.collect();
        let spread = variance(&medians);
        let batches = all as f64 / boots.len() as f64;
        // The variance of a median of normal values is pi/2 times that of their mean.
        let between = (spread - FRAC_PI_2 * within / batches).max(0.0);
        let advised = |cost: f64| {
            let batches = (FRAC_PI_2 * within / between * cost)
                .sqrt()
                .clamp(1.0, MOST);
            batches.round() as usize
        };
        Some(Self {
            between: between.sqrt(),
            within: within.sqrt(),
            batches: batches.round() as usize,
            advised: cost.filter(|cost| *cost > 0.0 && within > 0.0).map(advised),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{normal, rng};

    fn simulated(between: f64, within: f64) -> Vec<Vec<f64>> {
        let mut rng = rng(5, 0);
        let boot = |_| {
            let level = 1000.0 * (between * normal(&mut rng)).exp();
            (0..30)
                .map(|_| level * (within * normal(&mut rng)).exp())
                .collect()
        };
        (0..200).map(boot).collect()
    }

    #[test]
    fn components_are_those_that_were_simulated() {
        for (between, within) in [(0.02, 0.005), (0.005, 0.05), (0.0, 0.03)] {
            let found = Components::of(&simulated(between, within), Some(10.0)).unwrap();
            assert!((found.within / within - 1.0).abs() < 0.05, "{found:?}");
            assert!(
                (found.between - between).abs() < 0.2 * between + 0.003,
                "{found:?}"
            );
            assert_eq!(found.batches, 30);
        }
    }

    #[test]
    fn noisy_batches_ask_for_more_of_them_and_noisy_boots_for_fewer() {
        let advised = |between, within, cost| {
            Components::of(&simulated(between, within), Some(cost))
                .unwrap()
                .advised
                .unwrap()
        };
        assert!(advised(0.02, 0.005, 10.0) <= 2);
        let many = advised(0.005, 0.05, 10.0);
        assert!((30..60).contains(&many), "{many}");
        assert!(advised(0.005, 0.05, 40.0) > many);
    }

    #[test]
    fn one_boot_or_one_batch_has_no_components() {
        assert_eq!(Components::of(&[vec![1.0, 2.0]], None), None);
        assert_eq!(Components::of(&[vec![1.0], vec![2.0]], None), None);
        assert_eq!(
            Components::of(&[vec![1.0, 0.0], vec![2.0, 1.0]], None),
            None
        );
        let found = Components::of(&[vec![1.0, 2.0], vec![2.0, 1.0]], None).unwrap();
        assert_eq!(found.advised, None);
    }
}
