//! What is compared: the boots of two contenders, each boot with one figure, and which of
//! them belong together.

use crate::spread::Sorted;
use std::collections::BTreeMap;
use thiserror::Error;
use trapline_model::Clock;

/// What one boot gave of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct BootValues {
    /// Its block: boots of one block ran one after the other. Boots of an exact clock may
    /// all be of one.
    pub block: u32,
    /// Its batches, in order of time, in the unit of the figures.
    pub batches: Vec<f64>,
    /// The mean over its batches, weighted by operations
    /// ([`crate::value::Calibration::mean`]). `None` without a batch.
    pub mean: Option<f64>,
}

impl BootValues {
    /// The boot's figure by `clock`: its median batch on the wall clock, the mean over all
    /// its batches on an exact clock. `None` without a batch.
    pub fn figure(&self, clock: Clock) -> Option<f64> {
        match clock {
            Clock::Wall => self.median(),
            Clock::Insn | Clock::InsnVmx => self.mean,
        }
    }

    /// Its median batch. `None` without a batch.
    pub fn median(&self) -> Option<f64> {
        Sorted::new(self.batches.clone()).map(|sorted| sorted.median())
    }
}

/// How the boots of two contenders belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Both ran in the same blocks: what a block's boots share cancels out.
    Blocks,
    /// They ran apart, in two runs: what differs between the runs looks like a difference
    /// of the contenders.
    Apart,
}

/// One of two contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that is compared with.
    A,
    /// The one that is compared.
    B,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "the first contender",
            Self::B => "the second contender",
        })
    }
}

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Unjudged {
    /// A side was not measured.
    #[error("{0} has no boot with a figure; run it again")]
    NoBoots(Side),
    /// Ratios are of figures above nothing.
    #[error("a boot of {side} measured {figure}, below resolution; a ratio of it means nothing")]
    NotPositive {
        /// Whose boot.
        side: Side,
        /// Its figure.
        figure: f64,
    },
    /// An exact clock gave several figures.
    #[error("not deterministic: boots of {side} measured {first} and {other}")]
    NotDeterministic {
        /// Whose boots.
        side: Side,
        /// The figure of the first.
        first: f64,
        /// Another.
        other: f64,
    },
    /// The sides never met.
    #[error("no block holds boots of both; compare them as runs apart")]
    NoCommonBlock,
}

/// The logarithms of a side's figures, with their blocks.
fn logarithms(boots: &[BootValues], side: Side) -> Result<Vec<(u32, f64)>, Unjudged> {
    let figures = figures(boots, Clock::Wall, side)?;
    figures
        .into_iter()
        .map(|(block, figure)| match figure > 0.0 && figure.is_finite() {
            true => Ok((block, figure.ln())),
            false => Err(Unjudged::NotPositive { side, figure }),
        })
        .collect()
}

/// A side's figures by `clock`, with their blocks, in the order of blocks.
pub fn figures(
    boots: &[BootValues],
    clock: Clock,
    side: Side,
) -> Result<Vec<(u32, f64)>, Unjudged> {
    let of_boot = |boot: &BootValues| Some((boot.block, boot.figure(clock)?));
    let mut figures: Vec<(u32, f64)> = boots.iter().filter_map(of_boot).collect();
    figures.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    match figures.is_empty() {
        true => Err(Unjudged::NoBoots(side)),
        false => Ok(figures),
    }
}

/// What is known of a difference of logarithms.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Of each block: B less A.
    Differences(Vec<f64>),
    /// Each side's boots.
    Apart {
        /// Logarithms of A.
        a: Vec<f64>,
        /// Logarithms of B.
        b: Vec<f64>,
    },
}

/// The data of a comparison, and how many boots went into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Arranged {
    pub data: Data,
    pub boots: (usize, usize),
    pub lone: (usize, usize),
}

impl Arranged {
    pub fn new(a: &[BootValues], b: &[BootValues], design: Design) -> Result<Self, Unjudged> {
        let a = logarithms(a, Side::A)?;
        let b = logarithms(b, Side::B)?;
        match design {
            Design::Blocks => Self::in_blocks(&a, &b),
            Design::Apart => Ok(Self::apart(&a, &b)),
        }
    }

    fn apart(a: &[(u32, f64)], b: &[(u32, f64)]) -> Self {
        let values = |side: &[(u32, f64)]| side.iter().map(|(_, value)| *value).collect();
        Self {
            boots: (a.len(), b.len()),
            lone: (0, 0),
            data: Data::Apart {
                a: values(a),
                b: values(b),
            },
        }
    }

    /// A side with several boots in a block has their mean there.
    fn in_blocks(a: &[(u32, f64)], b: &[(u32, f64)]) -> Result<Self, Unjudged> {
        let (of_a, of_b) = (by_block(a), by_block(b));
        let mut arranged = Self {
            data: Data::Differences(Vec::new()),
            boots: (0, 0),
            lone: (a.len(), b.len()),
        };
        let mut differences = Vec::new();
        for (block, a) in &of_a {
            if let Some(b) = of_b.get(block) {
                differences.push(mean(b) - mean(a));
                arranged.boots.0 += a.len();
                arranged.boots.1 += b.len();
            }
        }
        if differences.is_empty() {
            return Err(Unjudged::NoCommonBlock);
        }
        arranged.lone.0 -= arranged.boots.0;
        arranged.lone.1 -= arranged.boots.1;
        arranged.data = Data::Differences(differences);
        Ok(arranged)
    }
}

fn by_block(boots: &[(u32, f64)]) -> BTreeMap<u32, Vec<f64>> {
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (block, value) in boots {
        blocks.entry(*block).or_default().push(*value);
    }
    blocks
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
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
    fn boots_of_one_block_are_a_pair_and_lone_ones_are_counted() {
        let a = [boot(0, 1.0), boot(1, 2.0), boot(2, 3.0)];
        let b = [boot(2, 6.0), boot(0, 1.0), boot(2, 6.0), boot(7, 1.0)];
        let arranged = Arranged::new(&a, &b, Design::Blocks).unwrap();
        assert_eq!((arranged.boots, arranged.lone), ((2, 3), (1, 1)));
        let Data::Differences(differences) = arranged.data else {
            panic!("paired");
        };
        assert_eq!(differences.len(), 2);
        assert_eq!(differences[0], 0.0);
        assert!((differences[1] - 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_compared_says_why() {
        let one = [boot(0, 1.0)];
        let refused = |a: &[BootValues], b: &[BootValues]| {
            Arranged::new(a, b, Design::Blocks).unwrap_err().to_string()
        };
        assert!(refused(&[], &one).starts_with("the first contender has no boot"));
        assert!(refused(&one, &[boot(0, -1.0)]).contains("the second contender measured -1"));
        assert!(refused(&one, &[boot(3, 1.0)]).contains("compare them as runs apart"));
        let empty = BootValues {
            block: 0,
            batches: vec![],
            mean: None,
        };
        assert!(refused(&one, &[empty]).starts_with("the second contender has no boot"));
    }
}
