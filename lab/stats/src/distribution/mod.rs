//! All batches of one operation over all boots, as a person would look at them: the least
//! (what the operation costs in itself), quantiles (what it typically costs, and in the tail),
//! modes, a histogram, and boot by boot. Nothing is dropped.

mod modes;
mod plots;
mod quantiles;

pub use modes::{modes, Mode};
pub use plots::{cumulative, histogram, Histogram};
pub use quantiles::quantile;

use crate::judge::BootValues;
use crate::spread::Sorted;

/// The quantiles that are told.
pub const SHARES: [f64; 9] = [0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];

/// One operation of one contender. All values are in the unit of its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Batches of all boots.
    pub count: usize,
    /// The smallest of them.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The quantiles of Harrell and Davis (1982): share, value. See [`SHARES`].
    pub quantiles: Vec<(f64, f64)>,
    /// Around which values batches gather, in ascending order.
    pub modes: Vec<Mode>,
    /// How many lie where.
    pub histogram: Histogram,
    /// Which share is not above which value, to be drawn in steps.
    pub cumulative: Vec<(f64, f64)>,
    /// Each boot, in the order of blocks.
    pub boots: Vec<BootFigure>,
}

/// One boot among others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BootFigure {
    /// Its block.
    pub block: u32,
    /// Its batches.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// The median: the boot's figure.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Distribution {
    /// Of these boots; `None` without a batch. `step` is that of the clock in the unit of
    /// the values, or 0: see [`crate::judge::clock_step`].
    pub fn new(boots: &[BootValues], step: f64) -> Option<Self> {
        let batches = boots.iter().flat_map(|boot| boot.batches.iter().copied());
        let all: Vec<f64> = Sorted::new(batches.collect())?.iter().collect();
        let mut figures: Vec<_> = boots.iter().filter_map(BootFigure::new).collect();
        figures.sort_by_key(|boot| boot.block);
        Some(Self {
            count: all.len(),
            min: all[0],
            max: all[all.len() - 1],
            quantiles: SHARES.map(|share| (share, quantile(&all, share))).to_vec(),
            modes: modes(&all, step),
            histogram: histogram(&all),
            cumulative: cumulative(&all),
            boots: figures,
        })
    }

    /// The value of one of [`SHARES`].
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let found = self.quantiles.iter().find(|(one, _)| *one == share);
        found.map(|(_, value)| *value)
    }
}

impl BootFigure {
    fn new(boot: &BootValues) -> Option<Self> {
        let sorted = Sorted::new(boot.batches.clone())?;
        Some(Self {
            block: boot.block,
            count: sorted.count(),
            min: sorted.min(),
            median: sorted.median(),
            max: sorted.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_has_every_batch_of_every_boot() {
        let boot = |block, batches: &[f64]| BootValues {
            block,
            batches: batches.to_vec(),
            mean: None,
        };
        let boots = [
            boot(1, &[9.0, 7.0, 8.0]),
            boot(0, &[5.0, 500.0]),
            boot(2, &[]),
        ];
        let found = Distribution::new(&boots, 0.0).unwrap();
        assert_eq!((found.count, found.min, found.max), (5, 5.0, 500.0));
        assert_eq!(found.modes.iter().map(|mode| mode.share).sum::<f64>(), 1.0);
        let blocks: Vec<_> = found
            .boots
            .iter()
            .map(|boot| (boot.block, boot.median))
            .collect();
        assert_eq!(blocks, [(0, 252.5), (1, 8.0)]);
        let median = found.quantile(0.5).unwrap();
        assert!(median > 8.0 && median < 100.0, "{median}");
        assert!(found.quantile(0.42).is_none());
        assert_eq!(Distribution::new(&boots[2..], 0.0), None);
    }
}
