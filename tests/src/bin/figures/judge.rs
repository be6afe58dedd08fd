//! Figures of a run's JSON, and their comparison with requirements.

use serde_json::Value;
use std::fmt;

/// Comparison of a figure with its requirement.
pub enum Verdict {
    /// The figure meets it.
    Met,
    /// The figure does not meet it.
    Missed,
    /// There is no figure.
    Unknown,
}

impl Verdict {
    /// Returns the verdict on a condition.
    pub fn of(met: bool) -> Self {
        if met {
            Self::Met
        } else {
            Self::Missed
        }
    }

    /// Returns the verdict on a condition on an optional figure.
    pub fn maybe(met: Option<bool>) -> Self {
        met.map_or(Self::Unknown, Self::of)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "- met",
            Self::Missed => "- MISSED",
            Self::Unknown => "- unknown here",
        })
    }
}

/// The figures of one run.
pub struct Figures(Value);

impl Figures {
    /// Reads a run's JSON.
    pub fn new(json: Value) -> Self {
        Self(json)
    }

    /// Returns the estimate of `workload/operation` in an environment.
    pub fn estimate(&self, environment: &str, path: &str) -> Option<f64> {
        self.cell(environment, path)?["estimate"].as_f64()
    }

    fn cell(&self, environment: &str, path: &str) -> Option<&Value> {
        self.cells()
            .find(|cell| cell["environment"] == environment && path_of(cell) == path)
    }

    fn cells(&self) -> impl Iterator<Item = &Value> {
        self.0["cells"].as_array().into_iter().flatten()
    }

    /// Returns the peak memory of an environment's VMM beyond guest RAM, in bytes.
    pub fn own_memory(&self, environment: &str) -> Option<f64> {
        let timelines = self.0["timelines"].as_array()?;
        let timeline = timelines
            .iter()
            .find(|line| line["environment"] == environment)?;
        timeline["own_memory_bytes"].as_f64()
    }

    /// Returns the number of exact estimates that are identical in another run, and a line for each that
    /// differs.
    pub fn compare_exact(&self, other: &Self) -> (usize, Vec<String>) {
        let exact = other
            .cells()
            .filter(|cell| cell["clock"] != "wall" && cell.get("skip").is_none());
        let mut differ = Vec::new();
        let mut same = 0;
        for cell in exact {
            let (environment, path) = (
                cell["environment"].as_str().unwrap_or_default(),
                path_of(cell),
            );
            let before = self.cell(environment, &path).map(|cell| &cell["estimate"]);
            if before == Some(&cell["estimate"]) {
                same += 1
            } else {
                differ.push(format!(
                    "{environment} {path}: {before:?}, {}",
                    cell["estimate"]
                ))
            }
        }
        (same, differ)
    }
}

fn path_of(cell: &Value) -> String {
    let word = |key: &str| cell[key].as_str().unwrap_or_default();
    format!("{}/{}", word("workload"), word("operation"))
}
