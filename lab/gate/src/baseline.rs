//! Stored figures with their profiles, as a text file: one figure or function per line, sorted, with all digits.

use crate::facts;
use crate::kept_profile::{self, KeptProfile};
use crate::unique::Unique;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::{Direction, Op};
use trapline_model::kernel_build::Column;
use trapline_model::{names, Config, Feature, Operation, Operations, Scheduling};
use trapline_profile::Profile;
use trapline_stats::{Cell, Figure, Summary, Value};

/// The version of the format that is written, and the newest that is read.
pub const VERSION: u64 = 4;

/// The first format in which every requested operation has a figure or a reason.
const COMPLETE: u64 = 4;

/// Key of the format version; its presence identifies a baseline.
const VERSION_KEY: &str = "trapline-baseline";

/// Figures, with the options to measure them again and the profiles to explain a difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// [`VERSION`].
    #[serde(rename = "trapline-baseline")]
    pub version: u64,
    /// The version of Trapline that measured.
    pub trapline: String,
    /// The operations, as an argument of `--workload`.
    pub workload: String,
    /// The configurations, by name.
    pub environments: BTreeMap<String, EnvironmentBaseline>,
}

/// Baseline of one configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentBaseline {
    /// Relevant facts ([`facts::RELEVANT_FACTS`]).
    pub facts: BTreeMap<String, String>,
    /// By unit, and by `workload/operation`: the mean over all batches. Formats 1 and 2 have
    /// the median batch.
    pub figures: BTreeMap<String, BTreeMap<String, f64>>,
    /// The fastest batch by `workload/operation`, where it is not the figure.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fastest: BTreeMap<String, f64>,
    /// The figure with what is excluded, by `workload/operation`, where that is anything
    /// ([`trapline_stats::Figure::raw`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub raw: BTreeMap<String, f64>,
    /// Reasons of requested operations that are skipped, by `workload/operation`. Formats 1 to 3 have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, String>,
    /// By `workload/operation`. Format 1 and environments without instruction counters have none. The format calls
    /// them `ledgers`.
    #[serde(
        rename = "ledgers",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub profiles: BTreeMap<String, KeptProfile>,
}

/// Error of parsing a baseline.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The text is empty.
    #[error("empty, as after a run that failed")]
    Empty,
    /// The text is not JSON, or not of the expected form.
    #[error("not a baseline, or damaged ({0})")]
    Corrupt(#[source] serde_json::Error),
    /// The text is JSON of something else.
    #[error("JSON, but not a baseline")]
    Foreign,
    /// A later version wrote the text.
    #[error("format {found} is not supported, this version reads up to {VERSION}")]
    Newer {
        /// Its format version.
        found: u64,
    },
    /// There is no figure to compare with.
    #[error("no figures")]
    NoFigures,
    /// An environment has no figure to compare with.
    #[error("no figures of {0}")]
    NoFiguresOf(String),
    /// A requested operation has neither a figure nor a reason.
    #[error("neither a figure of {operation} in {environment}, nor the reason why it is skipped")]
    Incomplete {
        /// The environment.
        environment: String,
        /// `workload/operation`.
        operation: String,
    },
    /// An environment is unknown or has no exact clock, or a setting is unknown.
    #[error("figures of '{0}', which is not an environment of the instruction clock")]
    Environment(String),
}

impl BaselineError {
    /// Returns the remedy, as an instruction to the user.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Empty | Self::Foreign => "make one with 'trapline baseline'",
            Self::Newer { .. } => "use a newer Trapline, or make it again with 'trapline baseline'",
            Self::NoFiguresOf(_) => {
                "make it again with 'trapline baseline', of operations that 'trapline run' measures there"
            }
            Self::Corrupt(_)
            | Self::NoFigures
            | Self::Incomplete { .. }
            | Self::Environment(_) => "make it again with 'trapline baseline'",
        }
    }
}

impl Baseline {
    /// Creates a baseline of the figures of `summary`.
    pub fn new(summary: &Summary, operations: &Operations, trapline: &str) -> Self {
        let mut environments: BTreeMap<String, EnvironmentBaseline> = BTreeMap::new();
        for (config, found) in &summary.facts {
            let kept = environments.entry(config.to_string()).or_default();
            kept.facts = facts::relevant(found);
        }
        for cell in &summary.cells {
            let kept = environments.entry(cell.config.to_string()).or_default();
            kept.add(cell);
        }
        Self {
            version: VERSION,
            trapline: trapline.to_owned(),
            workload: operations.to_string(),
            environments,
        }
    }

    /// Adds the profiles of figures.
    pub fn add_profiles(&mut self, profiles: &BTreeMap<(Config, Op), Profile>) {
        for ((config, op), profile) in profiles {
            let kept = self.environments.get_mut(&config.to_string());
            if let Some(kept) = kept.filter(|kept| kept.figure(&names::path(*op)).is_some()) {
                kept.profiles
                    .insert(names::path(*op), kept_profile::keep(profile));
            }
        }
    }

    /// Returns true if any figure has a profile.
    pub fn has_profiles(&self) -> bool {
        let mut kept = self.environments.values();
        kept.any(|kept| !kept.profiles.is_empty())
    }

    /// Parses the output of [`Self::text`].
    ///
    /// # Errors
    /// The text is damaged, something else, or from a later version.
    pub fn parse(text: &str) -> Result<Self, BaselineError> {
        if text.trim().is_empty() {
            return Err(BaselineError::Empty);
        }
        // The version first: the rest may have another form in later ones.
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(BaselineError::Corrupt)?;
        let Unique = serde_json::from_str(text).map_err(BaselineError::Corrupt)?;
        match value.get(VERSION_KEY).and_then(serde_json::Value::as_u64) {
            None => return Err(BaselineError::Foreign),
            Some(found) if found > VERSION => return Err(BaselineError::Newer { found }),
            Some(_) => {}
        }
        let baseline: Self = serde_json::from_value(value).map_err(BaselineError::Corrupt)?;
        baseline.configs()?;
        baseline.require_figures().map(|()| baseline)
    }

    /// Checks that each environment has figures, and that no requested operation is missing.
    ///
    /// # Errors
    /// [`BaselineError::NoFigures`], [`BaselineError::NoFiguresOf`] or [`BaselineError::Incomplete`].
    pub fn require_figures(&self) -> Result<(), BaselineError> {
        if self.environments.is_empty() {
            return Err(BaselineError::NoFigures);
        }
        let operations = self.operations();
        for (environment, kept) in &self.environments {
            if kept.operations().next().is_none() {
                return Err(BaselineError::NoFiguresOf(environment.clone()));
            }
            let config = Config::from_recorded(environment);
            let requested = config.map(|config| operations.of(&config));
            let mut requested = requested.into_iter().flatten().map(Operation::path);
            let is_missing =
                |path: &String| kept.figure(path).is_none() && !kept.skipped.contains_key(path);
            let missing = requested.find(is_missing);
            if let Some(operation) = missing.filter(|_| self.version >= COMPLETE) {
                return Err(BaselineError::Incomplete {
                    environment: environment.clone(),
                    operation,
                });
            }
        }
        Ok(())
    }

    /// Returns the file's text: sorted, one figure per line.
    pub fn text(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }

    /// Returns the configurations, in table order.
    ///
    /// # Errors
    /// An environment is unknown or has no exact clock.
    pub fn configs(&self) -> Result<BTreeSet<Config>, BaselineError> {
        let exact = |name: &String| {
            Config::from_recorded(name)
                .filter(is_exact)
                .ok_or_else(|| BaselineError::Environment(name.clone()))
        };
        self.environments.keys().map(exact).collect()
    }

    /// Returns the scheduling of guests in each configuration, by name.
    pub fn scheduling(&self) -> impl Iterator<Item = (&str, Scheduling)> {
        let environments = self.environments.iter();
        environments.map(|(name, kept)| (name.as_str(), Scheduling::of_facts(&kept.facts)))
    }

    /// Returns the operations that this version has.
    pub fn operations(&self) -> Operations {
        let names = self.workload.split(',');
        names
            .filter_map(|name| name.parse::<Operations>().ok())
            .collect()
    }
}

/// Returns whether a configuration has exact figures: of builds, or those of an environment whose guest is no Linux.
fn is_exact(config: &Config) -> bool {
    let is_build = Column::of(config).is_some() && config.clock().is_exact();
    is_build || config.environment.has(Feature::Profiles)
}

/// Returns the figure of the cheapest batch, in which the machine served no interrupt unless it did in all
/// batches.
pub fn fastest(op: Operation, figure: &Figure) -> f64 {
    match op.direction() {
        Direction::Less => figure.min,
        Direction::More => figure.max,
    }
}

impl EnvironmentBaseline {
    /// Adds a figure, or the reason of a skip. Failed operations have no place in a baseline.
    fn add(&mut self, cell: &Cell) {
        let path = cell.op.path();
        match &cell.value {
            Value::Measured(figure) => {
                let of_unit = self.figures.entry(cell.unit.to_owned()).or_default();
                of_unit.insert(path.clone(), figure.estimate);
                let fastest = fastest(cell.op, figure);
                if let Some(raw) = figure.raw {
                    self.raw.insert(path.clone(), raw);
                }
                if fastest != figure.estimate {
                    self.fastest.insert(path, fastest);
                }
            }
            Value::Skip(reason) => {
                self.skipped.insert(path, reason.clone());
            }
            Value::Failed(_) => {}
        }
    }

    /// Returns the fastest batch of an operation; in formats 1 and 2 the median batch.
    pub fn fastest(&self, operation: &str) -> Option<f64> {
        let kept = self.fastest.get(operation).copied();
        kept.or_else(|| Some(self.figure(operation)?.0))
    }

    /// Returns the figure of an operation, with its unit.
    pub fn figure(&self, operation: &str) -> Option<(f64, &str)> {
        let mut units = self.figures.iter();
        units.find_map(|(unit, figures)| Some((*figures.get(operation)?, unit.as_str())))
    }

    /// Returns all operations with a figure.
    pub fn operations(&self) -> impl Iterator<Item = &String> {
        self.figures.values().flat_map(BTreeMap::keys)
    }
}

/// Returns the failed cells, which a baseline cannot have.
pub fn failures(summary: &Summary) -> impl Iterator<Item = (&Cell, &trapline_stats::Failure)> {
    summary.cells.iter().filter_map(|cell| match &cell.value {
        Value::Failed(failure) => Some((cell, failure)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    fn baseline(figure: f64) -> Baseline {
        let figures = BTreeMap::from([("exits/port-out".to_owned(), figure)]);
        let of_functions = BTreeMap::from([("kvm_amd svm_vcpu_run".to_owned(), figure)]);
        let kept = EnvironmentBaseline {
            facts: BTreeMap::from([("qemu".to_owned(), "7.2".to_owned())]),
            figures: BTreeMap::from([("insn".to_owned(), figures)]),
            fastest: BTreeMap::new(),
            raw: BTreeMap::new(),
            skipped: BTreeMap::new(),
            profiles: BTreeMap::from([("exits/port-out".to_owned(), of_functions)]),
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
    fn each_figure_and_function_has_a_line() {
        expect![[r#"
            {
              "environments": {
                "sim/kvm": {
                  "facts": {
                    "qemu": "7.2"
                  },
                  "figures": {
                    "insn": {
                      "exits/port-out": 3182.25
                    }
                  },
                  "ledgers": {
                    "exits/port-out": {
                      "kvm_amd svm_vcpu_run": 3182.25
                    }
                  }
                }
              },
              "trapline": "0.1.0",
              "trapline-baseline": 4,
              "workload": "exits/port-out"
            }
        "#]]
        .assert_eq(&baseline(3182.25).text());
    }

    #[test]
    fn invalid_texts_are_rejected() {
        let good = baseline(1.0).text();
        let newer = good.replace("\"trapline-baseline\": 4", "\"trapline-baseline\": 5");
        let wall = good.replace("sim/kvm", "kvm");
        let null = good.replace("1.0", "null");
        let twice = good.replace("\"qemu\": \"7.2\"", "\"qemu\": \"7.2\", \"qemu\": \"7.3\"");
        let texts = [
            "",
            "{",
            "[]",
            "{\"cells\": []}",
            &newer,
            &wall,
            &null,
            &twice,
        ];
        let errors = texts.map(|text| Baseline::parse(text).unwrap_err().to_string());
        expect![[r#"
            empty, as after a run that failed
            not a baseline, or damaged (EOF while parsing an object at line 1 column 1)
            JSON, but not a baseline
            JSON, but not a baseline
            format 5 is not supported, this version reads up to 4
            figures of 'kvm', which is not an environment of the instruction clock
            not a baseline, or damaged (invalid type: null, expected f64)
            not a baseline, or damaged (two values of 'qemu' at line 6 column 7)"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn every_requested_operation_has_a_figure_or_a_reason() {
        let mut two = baseline(1.0);
        let kept = two.environments["sim/kvm"].clone();
        two.environments.insert("sim".to_owned(), kept);
        for op in Op::ALL {
            let path = names::path(op);
            let mut more = two.clone();
            more.workload.push_str(&format!(",{path}"));
            let is_complete = path == "exits/port-out";
            assert_eq!(Baseline::parse(&more.text()).is_ok(), is_complete, "{path}");
            for name in ["sim", "sim/kvm"] {
                let kept = more.environments.get_mut(name).unwrap();
                kept.skipped.insert(path.clone(), "no device".to_owned());
            }
            assert_eq!(Baseline::parse(&more.text()).unwrap(), more);
            more.environments.get_mut("sim").unwrap().skipped.clear();
            assert_eq!(Baseline::parse(&more.text()).is_ok(), is_complete, "{path}");
            more.version = 3;
            assert!(Baseline::parse(&more.text()).is_ok());
            more.environments.get_mut("sim").unwrap().figures.clear();
            let error = Baseline::parse(&more.text()).unwrap_err();
            assert_eq!(error.to_string(), "no figures of sim");
        }
    }

    #[test]
    fn format_1_is_read_and_has_no_profiles() {
        let text = r#"{"trapline-baseline": 1, "trapline": "0.1.0", "workload": "exits",
            "environments": {"sim": {"facts": {}, "figures": {"insn": {"exits/cpuid": 7.0}}}}}"#;
        let read = Baseline::parse(text).unwrap();
        assert_eq!(
            read.environments["sim"].figure("exits/cpuid"),
            Some((7.0, "insn"))
        );
        assert!(!read.has_profiles());
        assert!(baseline(1.0).has_profiles());
    }

    #[test]
    fn operations_of_other_versions_are_skipped() {
        let mut other = baseline(1.0);
        other.workload = "exits/port-out,later/thing".to_owned();
        assert_eq!(other.operations().to_string(), "exits/port-out");
    }
}
