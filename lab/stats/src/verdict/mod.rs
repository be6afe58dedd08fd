//! Tests whether a candidate B differs from a baseline A, operation by operation, from the boots of both.
//! The verdict is *changed*, *equivalent* or *unsure*, with the number of boots that would settle it.
//!
//! The replicate is the boot within a run, and the run between runs ([`Design`]). Tests work on logarithms, so
//! an effect is the ratio of B to A and the sides are exchangeable. Few boots are tested by ranks ([`ranks`]), eight or more by the studentised
//! trimmed mean ([`bootstrap`]); *equivalent* also needs the plain mean within the margin ([`mean`]), so
//! that it never hides a tail. Error rates hold over a whole table ([`levels`]) and over repeated
//! looks ([`interim`]).

mod adjust;
mod boot_values;
mod bootstrap;
mod choose;
mod data;
mod false_positives;
mod interim;
mod levels;
mod mean;
mod ranks;
mod required;
mod table;
mod test;
mod trimmed;

pub use adjust::focused_q_values;
pub use boot_values::{boot_values, clock_step};
pub use choose::rank_interval;
pub use data::{BootValues, Design, Side, TestError, LEAST_RUNS};
pub use false_positives::FalsePositives;
pub use interim::{AlphaSpending, InterimTests};
pub use required::RequiredBoots;
pub use table::{same_digits, test_table, TableTest, TestInput};

use crate::order::Interval;

/// Number of boots, or blocks of them, from which on the bootstrap is used.
pub const LEAST_FOR_BOOTSTRAP: usize = 8;

/// Error rates and parameters of a table's tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// False discovery rate of *changed*: the expected share of false ones among the operations
    /// reported as changed, and the probability that a table without any change reports one.
    pub alpha: f64,
    /// False discovery rate of *equivalent*.
    pub equivalence_alpha: f64,
    /// Equivalence margin: ratios from `1 / (1 + margin)` to `1 + margin`.
    pub margin: f64,
    /// Largest total number of blocks that [`RequiredBoots`] suggests.
    pub most_blocks: usize,
    /// Seed of the simulated null distributions.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            alpha: 0.01,
            equivalence_alpha: 0.05,
            margin: 0.02,
            most_blocks: 200,
            seed: 1,
        }
    }
}

/// Result of an operation's tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It differs, possibly by more than the margin.
    Changed,
    /// The difference is within the margin.
    Equivalent,
    /// These boots decide neither.
    Unsure,
    /// The boots of few runs differ ([`Design::Boots`]). What varies from run to run may be the cause.
    RunsDiffer,
    /// The boots of few runs differ by less than the margin.
    RunsAgree,
}

impl Verdict {
    /// Returns the name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Equivalent => "equivalent",
            Self::Unsure => "unsure",
            Self::RunsDiffer => "runs-differ",
            Self::RunsAgree => "runs-agree",
        }
    }
}

/// Test behind a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Equality of digits on an exact clock.
    Digits,
    /// Exact test of all signs of the ranks of a few blocks' differences (Wilcoxon 1945),
    /// estimate and interval of Hodges and Lehmann (1963).
    SignedRanks,
    /// The stricter of the exact rank sum test of few independent boots (Mann and Whitney 1947), estimate
    /// and interval of Hodges and Lehmann (1963), and Welch's (1947) t-test.
    RankSums,
    /// Bootstrap of the trimmed mean of blocks.
    BlockBootstrap,
    /// Bootstrap of the difference of two sides' trimmed means.
    BootBootstrap,
}

impl Method {
    /// Returns the name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Digits => "digits",
            Self::SignedRanks => "signed-ranks",
            Self::RankSums => "rank-sums",
            Self::BlockBootstrap => "block-bootstrap",
            Self::BootBootstrap => "boot-bootstrap",
        }
    }
}

/// Blocks outside the margin of an operation whose typical block is within it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Number of blocks whose ratio is outside the margin.
    pub blocks: usize,
    /// The ratio of B to A in the block farthest outside.
    pub farthest: f64,
}

/// Verdict on one operation with its tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// The verdict.
    pub verdict: Verdict,
    /// The ratio of B to A.
    pub effect: f64,
    /// The 95% interval of the ratio for this operation alone, not adjusted to the table. None on an
    /// exact clock, and for boots so few that every ratio would be in it.
    pub interval: Option<Interval>,
    /// The interval that decides the verdict, adjusted to the table. If changed it excludes 1; if
    /// equivalent it lies within the margin; if unsure it is the one that would have to exclude 1.
    pub decisive: Option<Interval>,
    /// p-value against no difference.
    pub p: Option<f64>,
    /// q-value of *changed*: `p` adjusted to the table ([`focused_q_values`]). None if equivalent, which
    /// is never reported as changed.
    pub q: Option<f64>,
    /// p-value against a difference as large as the margin, of the trimmed and of the plain mean: the
    /// larger of both.
    pub p_equivalent: Option<f64>,
    /// q-value of *equivalent*. None if an earlier look settled the operation as changed.
    pub q_equivalent: Option<f64>,
    /// True if the effect as measured is within the margin.
    pub within_margin: bool,
    /// Blocks outside the margin, if they alone prevent *equivalent*.
    pub tail: Option<Tail>,
    /// The test.
    pub method: Method,
    /// Pairing of the boots. None on an exact clock.
    pub design: Option<Design>,
    /// Blocks that hold boots of both; of separate runs the boots, or runs, of the side with fewer.
    pub blocks: usize,
    /// Boots of A and of B that were used.
    pub boots: (usize, usize),
    /// Boots of A and of B whose block has none of the other side. They are not used.
    pub unmatched: (usize, usize),
    /// Factor by which the ratio varies from block to block: the exponential of one standard deviation of
    /// its logarithm, so 1.03 is three percent. None on an exact clock.
    pub spread: Option<f64>,
    /// Boots that would settle an unsure operation.
    pub required: Option<RequiredBoots>,
}

impl Assessment {
    /// Returns the assessment of two exact figures with `boots` of A and of B: without any uncertainty, changed unless the
    /// effect is within the margin.
    pub fn of_digits(effect: f64, within_margin: bool, boots: (usize, usize)) -> Self {
        Self {
            verdict: if within_margin {
                Verdict::Equivalent
            } else {
                Verdict::Changed
            },
            effect,
            interval: None,
            decisive: None,
            p: None,
            q: None,
            p_equivalent: None,
            q_equivalent: None,
            within_margin,
            tail: None,
            method: Method::Digits,
            design: None,
            blocks: boots.0.min(boots.1),
            boots,
            unmatched: (0, 0),
            spread: None,
            required: None,
        }
    }
}
