//! What came of a build, raw.

use super::PlannedBuild;
use std::collections::BTreeMap;

/// Facts that are of all builds of a run begin so: what is built, and with what.
pub const OF_ALL: &str = "build-";

/// One build, whatever came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// Which.
    pub planned: PlannedBuild,
    /// What came of it.
    pub outcome: Outcome,
    /// What its environment and its sources were.
    pub facts: BTreeMap<String, String>,
}

/// What came of a build.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was done.
    Done(Done),
    /// It cannot be done there, for this reason.
    Skipped(String),
    /// It should have been done, and was not.
    Failed(String),
}

/// A build that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// How long it took by the clock of the Linux in which it ran, in nanoseconds.
    pub own_ns: u64,
    /// The same by the clock of its environment: nanoseconds, or instructions.
    pub took: u64,
    /// Object files that it made.
    pub objects: u32,
    /// The hash of their symbols.
    pub proof: String,
}
