//! Did it change? A contender B is judged against a contender A, operation by operation,
//! from the boots of both: *changed*, *equivalent* or *unsure*, and what would settle it.
//!
//! The replicate is the boot. Work is done on logarithms, so that an effect is the ratio of
//! B to A and neither side is special. Each operation brings its [`Evidence`]: of few boots
//! an exact test on ranks ([`ranks`]), of eight or more a bootstrap ([`bootstrap`]). Verdicts
//! are of a whole table at once, for among many operations some differ by chance ([`table`]).

mod adjust;
mod boots;
mod bootstrap;
mod evidence;
mod looks;
mod observed;
mod outlook;
mod ranks;
mod same;
mod table;
mod trimmed;

pub use adjust::q_values;
pub use boots::{BootValues, Design, Side, Unjudged};
pub use looks::{Looks, Spending, UntilSure};
pub use observed::{boots_of, clock_step};
pub use outlook::Outlook;
pub use same::FalseAlarms;
pub use table::{judge, same_digits, Judge, Question};

/// Boots, or blocks of them, from which on the bootstrap is used.
pub const LEAST_FOR_BOOTSTRAP: usize = 8;

/// What a verdict has to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The share of false ones among all that are called changed (Benjamini and Hochberg
    /// 1995), and so the chance that a table without any change shows one.
    pub alpha: f64,
    /// The same for what is called equivalent.
    pub equivalence_alpha: f64,
    /// What is too little to matter: ratios from `1 / (1 + margin)` to `1 + margin`.
    pub margin: f64,
    /// Blocks in all beyond which nobody would go on to settle an operation.
    pub most_blocks: usize,
    /// Decides the boots that a bootstrap simulates.
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

/// What is to be said of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It differs, and maybe by more than the margin.
    Changed,
    /// If it differs at all, then by less than the margin.
    Equivalent,
    /// These boots do not tell.
    Unsure,
}

impl Verdict {
    /// The name programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Equivalent => "equivalent",
            Self::Unsure => "unsure",
        }
    }
}

/// How a verdict was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The digits of an exact clock.
    Digits,
    /// Exact test of all signs of the ranks of a few blocks' differences (Wilcoxon 1945),
    /// estimate and interval of Hodges and Lehmann (1963).
    SignedRanks,
    /// Exact permutation test on ranks of few boots apart (Mann and Whitney 1947), estimate
    /// and interval of Hodges and Lehmann (1963).
    RankSums,
    /// Bootstrap of the trimmed mean of blocks.
    BlockBootstrap,
    /// Bootstrap of the difference of two sides' trimmed means.
    BootBootstrap,
}

impl Method {
    /// The name programs read.
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

/// A range of ratios of B to A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// How often such an interval holds the truth, from 0 to 1.
    pub level: f64,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// What two contenders' boots say of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The verdict.
    pub verdict: Verdict,
    /// The ratio of B to A.
    pub effect: f64,
    /// Its 95% interval, whatever else is in the table. None on an exact clock, and of boots
    /// so few that every ratio would be in it.
    pub interval: Option<Interval>,
    /// The interval on which the verdict rests. Of what is changed it excludes 1; of what is
    /// equivalent it lies within the margin; of what is unsure it is the one that would have
    /// to exclude 1.
    pub decisive: Option<Interval>,
    /// How probable boots that differ so much are where nothing changed.
    pub p: Option<f64>,
    /// The share of false ones among all in the table with such a `p` or a smaller one.
    pub q: Option<f64>,
    /// How probable boots that agree so well are where the difference is the margin.
    pub p_equivalent: Option<f64>,
    /// The same to `p_equivalent` as `q` to `p`.
    pub q_equivalent: Option<f64>,
    /// Whether the effect itself, as it was measured, is within the margin.
    pub within_margin: bool,
    /// How it was judged.
    pub method: Method,
    /// Blocks that hold boots of both; apart, the boots of the side with fewer.
    pub blocks: usize,
    /// Boots of A and of B that were used.
    pub boots: (usize, usize),
    /// Boots of A and of B whose block has none of the other side. They say nothing of a
    /// difference within blocks.
    pub lone: (usize, usize),
    /// From block to block the ratio varies by this factor (one standard deviation of its
    /// logarithm, raised): 1.03 is three percent. None on an exact clock.
    pub spread: Option<f64>,
    /// What would settle an unsure one.
    pub outlook: Option<Outlook>,
}
