//! The names people type, and what they meant when they mistyped.

use crate::environment::EnvironmentId;
use crate::preset::Preset;
use trapline_abi::{job, Op, OpSet, Workload};

/// A name that nothing here has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {kind} called '{name}'; {hint}")]
pub struct UnknownName {
    /// What was looked for: `environment`, `workload or operation`, `preset`.
    pub kind: &'static str,
    /// The name as it was typed.
    pub name: String,
    /// What to do about it.
    pub hint: Hint,
}

/// What may have been meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// This name is much like it.
    Nearest(String),
    /// Nothing is much like it: these names there are.
    Known(Vec<String>),
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nearest(name) => write!(f, "did you mean '{name}'?"),
            Self::Known(names) => write!(f, "choose from {}", names.join(", ")),
        }
    }
}

/// Names less alike than this (Jaro-Winkler, 0 to 1) are not suggested.
const ALIKE: f64 = 0.75;

/// The environments in a list like `host,sim/kvm`, in table order, each once.
///
/// # Errors
/// The first name that is none.
pub fn environments(list: &str) -> Result<Vec<EnvironmentId>, UnknownName> {
    let mut chosen = Vec::new();
    for name in split(list) {
        chosen.push(environment(name)?);
    }
    chosen.sort();
    chosen.dedup();
    Ok(chosen)
}

/// The environment called `name`.
///
/// # Errors
/// There is none.
pub fn environment(name: &str) -> Result<EnvironmentId, UnknownName> {
    let known = || EnvironmentId::ALL.map(|id| id.name().to_owned()).to_vec();
    EnvironmentId::from_name(name).ok_or_else(|| unknown("environment", name, known()))
}

/// The set of [`Op::bit`] that a list like `basic,exits/port-out` names.
///
/// # Errors
/// The first name that is neither a workload nor `workload/operation`.
pub fn operations(list: &str) -> Result<OpSet, UnknownName> {
    split(list).try_fold(0, |set, name| {
        let selected = job::operations_named(name).ok_or_else(|| unknown_operation(name))?;
        Ok(set | selected)
    })
}

/// The preset called `name`.
///
/// # Errors
/// There is none.
pub fn preset(name: &str) -> Result<Preset, UnknownName> {
    let known = || Preset::ALL.map(|preset| preset.name().to_owned()).to_vec();
    Preset::from_name(name).ok_or_else(|| unknown("preset", name, known()))
}

/// The name people type for `op`: `workload/operation`.
pub fn path(op: Op) -> String {
    format!("{}/{}", op.workload().name(), op.name())
}

/// The shortest list that names the operations of `set`: whole workloads by
/// their own name.
pub fn describe(set: OpSet) -> String {
    let mut names = Vec::new();
    for workload in Workload::ALL {
        let chosen: Vec<Op> = workload
            .operations()
            .filter(|op| set & op.bit() != 0)
            .collect();
        if chosen.len() == workload.operations().count() {
            names.push(workload.name().to_owned());
        } else {
            names.extend(chosen.into_iter().map(path));
        }
    }
    names.join(",")
}

fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// An operation is also found by its name alone, without its workload.
fn unknown_operation(name: &str) -> UnknownName {
    let kind = "workload or operation";
    let last = name.rsplit('/').next().unwrap_or(name);
    if let Some(op) = Op::ALL.into_iter().find(|op| op.name() == last) {
        return UnknownName {
            kind,
            name: name.to_owned(),
            hint: Hint::Nearest(path(op)),
        };
    }
    let workloads = Workload::ALL.map(|workload| workload.name().to_owned());
    let mut error = unknown(kind, name, workloads.to_vec());
    let paths: Vec<String> = Op::ALL.into_iter().map(path).collect();
    let names: Vec<String> = Op::ALL.iter().map(|op| op.name().to_owned()).collect();
    let candidates = workloads
        .into_iter()
        .map(|workload| (strsim::jaro_winkler(name, &workload), workload))
        .chain(paths.into_iter().zip(names).map(|(path, short)| {
            let alike = strsim::jaro_winkler(name, &path).max(strsim::jaro_winkler(name, &short));
            (alike, path)
        }));
    if let Some(nearest) = most_alike(candidates) {
        error.hint = Hint::Nearest(nearest);
    }
    error
}

fn unknown(kind: &'static str, name: &str, known: Vec<String>) -> UnknownName {
    let scored = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate.clone()));
    let hint = most_alike(scored).map_or(Hint::Known(known.clone()), Hint::Nearest);
    UnknownName {
        kind,
        name: name.to_owned(),
        hint,
    }
}

fn most_alike(candidates: impl Iterator<Item = (f64, String)>) -> Option<String> {
    candidates
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::known_operations;

    #[test]
    fn lists_are_read_in_table_order() {
        let both = vec![EnvironmentId::KVM, EnvironmentId::SIM_LINUX];
        assert_eq!(environments("sim/linux, kvm,kvm"), Ok(both));
        let chosen = operations("exits/port-out,boot").unwrap();
        assert_eq!(describe(chosen), "exits/port-out,boot");
        assert_eq!(
            describe(known_operations()),
            "basic,system,stream,exits,boot,irq,populate,block"
        );
        assert_eq!(describe(0), "");
    }

    #[test]
    fn a_mistyped_name_brings_up_the_nearest() {
        let told = |error: UnknownName| error.to_string();
        let message = told(environments("host,qemu-kv").unwrap_err());
        assert_eq!(
            message,
            "there is no environment called 'qemu-kv'; did you mean 'qemu-kvm'?"
        );
        let message = told(operations("exits/port-oot").unwrap_err());
        assert!(
            message.ends_with("did you mean 'exits/port-out'?"),
            "{message}"
        );
        let message = told(operations("port-in").unwrap_err());
        assert!(
            message.ends_with("did you mean 'exits/port-in'?"),
            "{message}"
        );
        let message = told(operations("steam").unwrap_err());
        assert!(message.ends_with("did you mean 'stream'?"), "{message}");
        let message = told(preset("ful").unwrap_err());
        assert!(message.ends_with("did you mean 'full'?"), "{message}");
    }

    #[test]
    fn where_nothing_is_alike_all_names_are_told() {
        let message = environments("xyz").unwrap_err().to_string();
        assert!(message.contains("choose from host, kvm,"), "{message}");
        assert!(environments("").is_err());
        assert!(operations("basic,,boot").is_err());
    }
}
