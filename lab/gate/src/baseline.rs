//! Figures that are kept, with the ledgers that explain them, as a file that people
//! can read and compare line by line: one figure or function a line, sorted, every
//! digit.

use crate::{explained, facts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trapline_abi::{Direction, Op, OpSet};
use trapline_model::{names, EnvironmentId, Scheduling};
use trapline_profile::Ledger;
use trapline_stats::{Cell, Figure, Summary, Value};

/// The version of the format that is written, and the newest that is read.
pub const VERSION: u64 = 3;

/// The key that says the version, and by being there that this is a baseline.
const VERSION_KEY: &str = "trapline-baseline";

/// Figures with what is needed to take them again and to explain a difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// [`VERSION`].
    #[serde(rename = "trapline-baseline")]
    pub version: u64,
    /// The version of Trapline that measured.
    pub trapline: String,
    /// What was asked for, as `--workload` takes it.
    pub workload: String,
    /// The environments, by name.
    pub environments: BTreeMap<String, Kept>,
}

/// What is kept of one environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The facts that matter, see [`facts::MATTERING`].
    pub facts: BTreeMap<String, String>,
    /// By unit, and by `workload/operation`: the mean over all batches. Formats 1 and 2 have
    /// the median batch.
    pub figures: BTreeMap<String, BTreeMap<String, f64>>,
    /// The fastest batch by `workload/operation`, where it is not the figure.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fastest: BTreeMap<String, f64>,
    /// By `workload/operation`. Format 1 has no ledgers, and where nothing counts there
    /// are none either.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ledgers: BTreeMap<String, KeptLedger>,
}

/// Instructions for one operation by `component function`; they add up to the figure.
pub type KeptLedger = BTreeMap<String, f64>;

/// Why a text is no baseline that can be used.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// Nothing is in it.
    #[error("it is empty, as after a run that failed; make it with 'trapline baseline'")]
    Empty,
    /// It cannot be read as what it should be.
    #[error("it is no baseline, or damaged ({0}); make it anew with 'trapline baseline'")]
    Corrupt(#[source] serde_json::Error),
    /// It is JSON of something else.
    #[error("it is JSON, but no baseline; make one with 'trapline baseline'")]
    Foreign,
    /// A later version wrote it.
    #[error("it has format {found}, and this version reads up to {VERSION}; use a newer Trapline, or make it anew")]
    Newer {
        /// Its version.
        found: u64,
    },
    /// Nothing could be compared with it.
    #[error("it has no figures; make it anew with 'trapline baseline'")]
    NoFigures,
    /// It names an environment that has no exact figures here.
    #[error("it has figures of '{0}', which is no environment of the instruction clock; make it anew with 'trapline baseline'")]
    Environment(String),
}

impl Baseline {
    /// What `summary` says, to be kept. Operations without a figure are left out.
    pub fn new(summary: &Summary, operations: OpSet, trapline: &str) -> Self {
        let mut environments: BTreeMap<String, Kept> = BTreeMap::new();
        for (id, found) in &summary.facts {
            let kept = environments.entry(id.name().to_owned()).or_default();
            kept.facts = facts::mattering(found);
        }
        for cell in &summary.cells {
            if let Value::Measured(figure) = &cell.value {
                let kept = environments
                    .entry(cell.environment.name().to_owned())
                    .or_default();
                let of_unit = kept.figures.entry(cell.unit.to_owned()).or_default();
                of_unit.insert(names::path(cell.op), figure.estimate);
                let fastest = fastest(cell.op, figure);
                if fastest != figure.estimate {
                    kept.fastest.insert(names::path(cell.op), fastest);
                }
            }
        }
        Self {
            version: VERSION,
            trapline: trapline.to_owned(),
            workload: names::describe(operations),
            environments,
        }
    }

    /// Keeps the ledgers of figures, too.
    pub fn add_ledgers(&mut self, ledgers: &BTreeMap<(EnvironmentId, Op), Ledger>) {
        for ((environment, op), ledger) in ledgers {
            let kept = self.environments.get_mut(environment.name());
            if let Some(kept) = kept.filter(|kept| kept.figure(&names::path(*op)).is_some()) {
                kept.ledgers
                    .insert(names::path(*op), explained::keep(ledger));
            }
        }
    }

    /// Whether any figure has a ledger.
    pub fn has_ledgers(&self) -> bool {
        let mut kept = self.environments.values();
        kept.any(|kept| !kept.ledgers.is_empty())
    }

    /// Reads what [`Self::text`] wrote.
    ///
    /// # Errors
    /// It is damaged, something else, or from a later version.
    pub fn parse(text: &str) -> Result<Self, BaselineError> {
        if text.trim().is_empty() {
            return Err(BaselineError::Empty);
        }
        // The version first: the rest of a later one may look different.
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(BaselineError::Corrupt)?;
        match value.get(VERSION_KEY).and_then(serde_json::Value::as_u64) {
            None => return Err(BaselineError::Foreign),
            Some(found) if found > VERSION => return Err(BaselineError::Newer { found }),
            Some(_) => {}
        }
        let baseline: Self = serde_json::from_value(value).map_err(BaselineError::Corrupt)?;
        if baseline.environments.is_empty() {
            return Err(BaselineError::NoFigures);
        }
        baseline.ids().map(|_| baseline)
    }

    /// The file's text: sorted, one figure a line.
    pub fn text(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }

    /// The environments, in table order.
    ///
    /// # Errors
    /// One is unknown here, or is measured on the wall clock.
    pub fn ids(&self) -> Result<Vec<EnvironmentId>, BaselineError> {
        let exact = |name: &String| {
            EnvironmentId::from_name(name)
                .filter(|id| id.has_ledgers())
                .ok_or_else(|| BaselineError::Environment(name.clone()))
        };
        let mut ids: Vec<_> = self
            .environments
            .keys()
            .map(exact)
            .collect::<Result<_, _>>()?;
        ids.sort();
        Ok(ids)
    }

    /// How guests were scheduled in each environment, by its name.
    pub fn scheduling(&self) -> impl Iterator<Item = (&str, Scheduling)> {
        let environments = self.environments.iter();
        environments.map(|(name, kept)| (name.as_str(), Scheduling::of_facts(&kept.facts)))
    }

    /// The operations that were asked for, as far as this version knows them:
    /// set of [`Op::bit`].
    pub fn operations(&self) -> OpSet {
        let known = |name: &str| names::operations(name).unwrap_or(0);
        self.workload
            .split(',')
            .fold(0, |set, name| set | known(name))
    }
}

/// The figure of the batch that costs least, in which the machine served no interrupt unless it
/// did in all batches.
pub fn fastest(op: Op, figure: &Figure) -> f64 {
    match op.direction() {
        Direction::Less => figure.min,
        Direction::More => figure.max,
    }
}

impl Kept {
    /// The fastest batch of an operation. Formats 1 and 2 have none: there the median batch
    /// stands for it.
    pub fn fastest(&self, operation: &str) -> Option<f64> {
        let kept = self.fastest.get(operation).copied();
        kept.or_else(|| Some(self.figure(operation)?.0))
    }

    /// The figure of an operation, with its unit.
    pub fn figure(&self, operation: &str) -> Option<(f64, &str)> {
        let mut units = self.figures.iter();
        units.find_map(|(unit, figures)| Some((*figures.get(operation)?, unit.as_str())))
    }

    /// Every operation that has a figure.
    pub fn operations(&self) -> impl Iterator<Item = &String> {
        self.figures.values().flat_map(BTreeMap::keys)
    }
}

/// Cells that have no place in a baseline: they should have had a figure.
pub fn failures(summary: &Summary) -> impl Iterator<Item = (&Cell, &trapline_stats::Failure)> {
    summary.cells.iter().filter_map(|cell| match &cell.value {
        Value::Failed(failure) => Some((cell, failure)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn baseline(figure: f64) -> Baseline {
        let figures = BTreeMap::from([("exits/port-out".to_owned(), figure)]);
        let of_functions = BTreeMap::from([("kvm_amd svm_vcpu_run".to_owned(), figure)]);
        let kept = Kept {
            facts: BTreeMap::from([("qemu".to_owned(), "7.2".to_owned())]),
            figures: BTreeMap::from([("insn".to_owned(), figures)]),
            fastest: BTreeMap::new(),
            ledgers: BTreeMap::from([("exits/port-out".to_owned(), of_functions)]),
        };
        Baseline {
            version: VERSION,
            trapline: "0.1.0".to_owned(),
            workload: "exits/port-out".to_owned(),
            environments: BTreeMap::from([("sim/kvm".to_owned(), kept)]),
        }
    }

    proptest! {
        #[test]
        fn every_digit_survives(figure in proptest::num::f64::NORMAL) {
            let before = baseline(figure);
            prop_assert_eq!(Baseline::parse(&before.text()).unwrap(), before);
        }
    }

    #[test]
    fn a_figure_is_a_line_and_so_is_a_function() {
        let text = baseline(3182.25).text();
        assert!(
            text.contains("\n          \"exits/port-out\": 3182.25\n"),
            "{text}"
        );
        assert!(
            text.contains("\n          \"kvm_amd svm_vcpu_run\": 3182.25\n"),
            "{text}"
        );
        assert!(text.ends_with("}\n"));
    }

    #[test]
    fn what_is_no_baseline_is_told_with_what_helps() {
        let good = baseline(1.0).text();
        let newer = good.replace("\"trapline-baseline\": 3", "\"trapline-baseline\": 4");
        let wall = good.replace("sim/kvm", "kvm");
        let null = good.replace("1.0", "null");
        for (text, words) in [
            ("", "it is empty"),
            ("{", "damaged"),
            ("[]", "no baseline"),
            ("{\"cells\": []}", "no baseline"),
            (
                newer.as_str(),
                "it has format 4, and this version reads up to 3",
            ),
            (
                wall.as_str(),
                "'kvm', which is no environment of the instruction clock",
            ),
            (null.as_str(), "damaged"),
        ] {
            let error = Baseline::parse(text).unwrap_err().to_string();
            assert!(
                error.contains(words) && error.contains("; "),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn format_1_is_read_and_has_no_ledgers() {
        let text = r#"{"trapline-baseline": 1, "trapline": "0.1.0", "workload": "exits",
            "environments": {"sim": {"facts": {}, "figures": {"insn": {"exits/cpuid": 7.0}}}}}"#;
        let read = Baseline::parse(text).unwrap();
        assert_eq!(
            read.environments["sim"].figure("exits/cpuid"),
            Some((7.0, "insn"))
        );
        assert!(!read.has_ledgers());
        assert!(baseline(1.0).has_ledgers());
    }

    #[test]
    fn operations_of_another_version_are_passed_over() {
        let mut other = baseline(1.0);
        other.workload = "exits/port-out,later/thing".to_owned();
        assert_eq!(names::describe(other.operations()), "exits/port-out");
    }
}
