//! Input of a test: the figures of both sides' boots, and their pairing.

use crate::sorted::{mean, Sorted};
use std::collections::BTreeMap;
use thiserror::Error;
use trapline_model::Clock;

/// Values of one operation in one boot.
#[derive(Clone, Debug, PartialEq)]
pub struct BootValues {
    /// Block: boots of one block ran one after the other. Boots of an exact clock may all be of one.
    pub block: u32,
    /// Batches in order of time, in the unit of the figures.
    pub batches: Vec<f64>,
    /// Mean over the batches, weighted by operations ([`crate::value::Calibration::mean`]). `None`
    /// without a batch.
    pub mean: Option<f64>,
}

impl BootValues {
    /// Returns the boot's figure: its median batch on the wall clock, the mean over all its batches on an
    /// exact clock. `None` without a batch.
    pub fn figure(&self, clock: Clock) -> Option<f64> {
        if clock.is_exact() {
            self.mean
        } else {
            self.median()
        }
    }

    /// Returns the value of run `number` with these boots: the median of their medians. `None` without a batch.
    pub fn of_run(number: u32, boots: &[Self]) -> Option<Self> {
        let medians = boots.iter().filter_map(Self::median);
        Some(Self::of_one(
            number,
            Sorted::new(medians.collect())?.median(),
        ))
    }

    /// Returns the value of block `number`, which is one figure.
    pub fn of_one(number: u32, figure: f64) -> Self {
        Self {
            block: number,
            batches: vec![figure],
            mean: Some(figure),
        }
    }

    /// Returns the median batch; `None` without a batch.
    pub fn median(&self) -> Option<f64> {
        Sorted::new(self.batches.clone()).map(|sorted| sorted.median())
    }
}

/// Pairing of the boots of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Both ran in the same blocks: conditions that a block's boots share cancel out.
    Blocked,
    /// Each value is that of a host, which measured both ([`crate::hosts`]).
    Hosts {
        /// Both ran in the same blocks on each host.
        in_blocks: bool,
    },
    /// They are of fewer than [`LEAST_RUNS`] runs of a side. Boots of one run share its conditions, so the
    /// verdict is on these runs, not on what was compared: see [`super::Verdict::RunsDiffer`].
    Boots,
    /// Each value is the figure of a run, of at least [`LEAST_RUNS`] of either side.
    Runs,
}

/// Least number of runs of each side whose figures are tested.
pub const LEAST_RUNS: usize = 3;

impl Design {
    /// Returns the pairing of the boots of so many runs of A and of B.
    pub fn of_runs(a: usize, b: usize) -> Self {
        if a.min(b) < LEAST_RUNS {
            Self::Boots
        } else {
            Self::Runs
        }
    }
}

/// A side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The baseline.
    A,
    /// The candidate.
    B,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}

/// Reason why boots cannot be tested.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TestError {
    /// A side has no figure.
    #[error("{0} has no boot with a figure; run it again")]
    NoBoots(Side),
    /// A figure is not positive, so it has no logarithm.
    #[error("a boot of {side} measured {figure}, below resolution, so there is no ratio")]
    NotPositive {
        /// The side.
        side: Side,
        /// The figure.
        figure: f64,
    },
    /// Boots of an exact clock have several figures.
    #[error("not deterministic: boots of {side} measured {first} and {other}")]
    NotDeterministic {
        /// The side.
        side: Side,
        /// The first figure.
        first: f64,
        /// Another figure.
        other: f64,
    },
    /// The sides have no block in common.
    #[error("no block holds boots of both; compare them as separate runs")]
    NoCommonBlock,
}

/// Returns the blocks and logarithms of a side's figures, in the order of blocks.
fn logarithms(boots: &[BootValues], side: Side) -> Result<Vec<(u32, f64)>, TestError> {
    let figures = figures(boots, Clock::Wall, side)?;
    figures
        .into_iter()
        .map(|(block, figure)| {
            if figure > 0.0 && figure.is_finite() {
                Ok((block, figure.ln()))
            } else {
                Err(TestError::NotPositive { side, figure })
            }
        })
        .collect()
}

/// Returns the blocks and figures of a side, in the order of blocks.
pub fn figures(
    boots: &[BootValues],
    clock: Clock,
    side: Side,
) -> Result<Vec<(u32, f64)>, TestError> {
    let of_boot = |boot: &BootValues| Some((boot.block, boot.figure(clock)?));
    let mut figures: Vec<(u32, f64)> = boots.iter().filter_map(of_boot).collect();
    figures.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    if figures.is_empty() {
        Err(TestError::NoBoots(side))
    } else {
        Ok(figures)
    }
}

/// Logarithms of figures.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// B less A in each block.
    Differences(Vec<f64>),
    /// The boots of each side.
    Independent {
        /// Logarithms of A.
        a: Vec<f64>,
        /// Logarithms of B.
        b: Vec<f64>,
    },
}

/// The data of a test, with numbers of boots of A and of B.
#[derive(Clone, Debug, PartialEq)]
pub struct TestData {
    pub data: Data,
    /// Boots that are used.
    pub boots: (usize, usize),
    /// Boots whose block has none of the other side.
    pub unmatched: (usize, usize),
}

impl TestData {
    pub fn new(a: &[BootValues], b: &[BootValues], design: Design) -> Result<Self, TestError> {
        let a = logarithms(a, Side::A)?;
        let b = logarithms(b, Side::B)?;
        match design {
            Design::Blocked | Design::Hosts { .. } => Self::blocked(&a, &b),
            Design::Boots | Design::Runs => Ok(Self::independent(&a, &b)),
        }
    }

    fn independent(a: &[(u32, f64)], b: &[(u32, f64)]) -> Self {
        let values = |side: &[(u32, f64)]| side.iter().map(|(_, value)| *value).collect();
        Self {
            boots: (a.len(), b.len()),
            unmatched: (0, 0),
            data: Data::Independent {
                a: values(a),
                b: values(b),
            },
        }
    }

    /// Takes the mean of several boots of a side in one block.
    fn blocked(a: &[(u32, f64)], b: &[(u32, f64)]) -> Result<Self, TestError> {
        let (blocks_a, blocks_b) = (by_block(a), by_block(b));
        let mut boots = (0, 0);
        let mut differences = Vec::new();
        for (block, a) in &blocks_a {
            if let Some(b) = blocks_b.get(block) {
                differences.push(mean(b) - mean(a));
                boots.0 += a.len();
                boots.1 += b.len();
            }
        }
        if differences.is_empty() {
            Err(TestError::NoCommonBlock)
        } else {
            Ok(Self {
                data: Data::Differences(differences),
                boots,
                unmatched: (a.len() - boots.0, b.len() - boots.1),
            })
        }
    }
}

fn by_block(boots: &[(u32, f64)]) -> BTreeMap<u32, Vec<f64>> {
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (block, value) in boots {
        blocks.entry(*block).or_default().push(*value);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(block: u32, figure: f64) -> BootValues {
        BootValues {
            block,
            batches: vec![figure],
            mean: Some(figure),
        }
    }

    #[test]
    fn boots_of_one_block_are_paired_and_unmatched_ones_counted() {
        let a = [boot(0, 1.0), boot(1, 2.0), boot(2, 3.0)];
        let b = [boot(2, 6.0), boot(0, 1.0), boot(2, 6.0), boot(7, 1.0)];
        let data = TestData::new(&a, &b, Design::Blocked).unwrap();
        assert_eq!((data.boots, data.unmatched), ((2, 3), (1, 1)));
        let Data::Differences(differences) = data.data else {
            panic!("independent");
        };
        assert_eq!(differences.len(), 2);
        assert_eq!(differences[0], 0.0);
        assert!((differences[1] - 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn untestable_boots_are_refused() {
        let one = [boot(0, 1.0)];
        let refused =
            |a: &[BootValues], b: &[BootValues]| TestData::new(a, b, Design::Blocked).unwrap_err();
        assert_eq!(refused(&[], &one), TestError::NoBoots(Side::A));
        let negative = TestError::NotPositive {
            side: Side::B,
            figure: -1.0,
        };
        assert_eq!(refused(&one, &[boot(0, -1.0)]), negative);
        assert_eq!(refused(&one, &[boot(3, 1.0)]), TestError::NoCommonBlock);
        let empty = BootValues {
            block: 0,
            batches: vec![],
            mean: None,
        };
        assert_eq!(refused(&one, &[empty]), TestError::NoBoots(Side::B));
    }
}
