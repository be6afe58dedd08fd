//! Results of builds, raw.

use super::PlannedBuild;
use std::collections::BTreeMap;

/// Prefix of facts about all builds of a run: sources and tools.
pub const OF_ALL: &str = "build-";

/// A build and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// Plan.
    pub planned: PlannedBuild,
    /// Outcome.
    pub outcome: BuildOutcome,
    /// Facts of its environment and its sources.
    pub facts: BTreeMap<String, String>,
}

/// Outcome of a build.
#[derive(Clone, Debug, PartialEq)]
pub enum BuildOutcome {
    /// Success.
    Done(BuildFigures),
    /// The environment cannot build it, for this reason.
    Skipped(String),
    /// Failure, with the reason.
    Failed(String),
}

/// Figures of a successful build.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildFigures {
    /// Duration on the clock of the Linux in which it ran, in nanoseconds.
    pub own_ns: u64,
    /// Duration on the clock of its environment, in nanoseconds or instructions.
    pub took: u64,
    /// Number of object files.
    pub objects: u32,
    /// Hash of their symbols.
    pub proof: String,
}
