//! Names of environments, workloads, operations and presets, with suggestions for unknown names.

use crate::environment::EnvironmentId;
use crate::preset::Preset;
use trapline_abi::{job, Op, OpSet, Workload};

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} '{name}'; {hint}")]
pub struct UnknownName {
    /// `environment`, `workload or operation`, or `preset`.
    pub kind: &'static str,
    /// The name as given.
    pub name: String,
    /// Suggestion.
    pub hint: Hint,
}

/// A suggestion for an unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A similar name.
    Nearest(String),
    /// All names, if none is similar.
    Known(Vec<String>),
    /// All names, if everything was asked for, which has no name.
    All(Vec<String>),
}

impl Hint {
    /// Returns the suggestion that is more similar to `name`; all names of both, if neither suggests one.
    fn or_better(self, other: Self, name: &str) -> Self {
        match (self, other) {
            (Self::Nearest(one), Self::Nearest(other))
                if similarity(name, &one) > similarity(name, &other) =>
            {
                Self::Nearest(one)
            }
            (_, Self::Nearest(nearest)) | (Self::Nearest(nearest), _) => Self::Nearest(nearest),
            (Self::Known(mut all) | Self::All(mut all), Self::Known(more) | Self::All(more)) => {
                all.extend(more);
                Self::Known(all)
            }
        }
    }
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nearest(name) => write!(f, "did you mean '{name}'?"),
            Self::Known(names) => write!(f, "choose from {}", names.join(", ")),
            Self::All(names) => write!(
                f,
                "leave it out for the default selection, or list what to measure: {}",
                names.join(",")
            ),
        }
    }
}

/// Smallest similarity of a suggestion (Jaro-Winkler, 0 to 1).
const LEAST_SIMILARITY: f64 = 0.75;

/// Returns the environments in a list like `host,sim/kvm`, in table order without duplicates.
///
/// # Errors
/// A name is unknown.
pub fn environments(list: &str) -> Result<Vec<EnvironmentId>, UnknownName> {
    let mut chosen = Vec::new();
    for name in split(list) {
        chosen.push(environment(name)?);
    }
    chosen.sort();
    chosen.dedup();
    Ok(chosen)
}

/// Returns the environment called `name`.
///
/// # Errors
/// The name is unknown.
pub fn environment(name: &str) -> Result<EnvironmentId, UnknownName> {
    let known = || {
        EnvironmentId::all()
            .map(|id| id.name().to_owned())
            .collect()
    };
    EnvironmentId::from_name(name).ok_or_else(|| unknown("environment", name, known()))
}

/// A selection by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// An environment.
    Environment(EnvironmentId),
    /// The operations of a workload, or one.
    Operations(OpSet),
}

/// Returns what the name of an environment, of a workload or of an operation selects.
///
/// # Errors
/// The name is unknown.
pub fn selection(name: &str) -> Result<Selection, UnknownName> {
    let of_environment = match environment(name) {
        Ok(id) => return Ok(Selection::Environment(id)),
        Err(unknown) => unknown.hint,
    };
    let of_operation = match operations(name) {
        Ok(set) => return Ok(Selection::Operations(set)),
        Err(unknown) => unknown.hint,
    };
    Err(UnknownName {
        kind: "environment, workload or operation",
        name: name.to_owned(),
        hint: of_environment.or_better(of_operation, name),
    })
}

/// Returns the operations that the name of a workload selects.
pub fn selected_by(workload: Workload) -> OpSet {
    workload.set() - OpSet::APART
}

/// Returns the operations of a list like `basic,exits/port-out`.
///
/// # Errors
/// A name is neither a workload nor `workload/operation`.
pub fn operations(list: &str) -> Result<OpSet, UnknownName> {
    let sets = split(list).map(|name| {
        let selected = match Workload::from_name(name) {
            Some(workload) => Some(selected_by(workload)),
            None => job::operations_named(name),
        };
        selected.ok_or_else(|| unknown_operation(name))
    });
    sets.collect()
}

/// Returns the preset called `name`.
///
/// # Errors
/// The name is unknown.
pub fn preset(name: &str) -> Result<Preset, UnknownName> {
    let known = || Preset::ALL.map(|preset| preset.name().to_owned()).to_vec();
    Preset::from_name(name).ok_or_else(|| unknown("preset", name, known()))
}

/// Returns the name of `op` on command lines: `workload/operation`.
pub fn path(op: Op) -> String {
    format!("{}/{}", op.workload().name(), op.name())
}

/// Returns the shortest list of the operations of `set`: complete workloads by their own name.
pub fn describe(set: OpSet) -> String {
    let mut names = Vec::new();
    for workload in Workload::ALL {
        let whole = selected_by(workload);
        let mut others = set & workload.set();
        if whole.is_subset(others) {
            names.push(workload.name().to_owned());
            others -= whole;
        }
        names.extend(others.iter().map(path));
    }
    names.join(",")
}

/// Names that people type for everything.
const EVERYTHING: [&str; 3] = ["all", "everything", "*"];

/// Returns how much two names are alike, from 0 to 1: a single mistyped, missing or swapped letter
/// counts as nothing.
fn similarity(name: &str, known: &str) -> f64 {
    match strsim::osa_distance(name, known) {
        0 | 1 => 1.0,
        _ => strsim::jaro_winkler(name, known),
    }
}

pub(crate) fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// Returns the error for an unknown operation. A name without its workload is suggested with it.
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
    if EVERYTHING.contains(&name) {
        return error;
    }
    let paths: Vec<String> = Op::ALL.into_iter().map(path).collect();
    let names: Vec<String> = Op::ALL.iter().map(|op| op.name().to_owned()).collect();
    let candidates = workloads
        .into_iter()
        .map(|workload| (similarity(name, &workload), workload))
        .chain(paths.into_iter().zip(names).map(|(path, short)| {
            let score = similarity(name, &path).max(similarity(name, &short));
            (score, path)
        }));
    if let Some(nearest) = most_similar(candidates) {
        error.hint = Hint::Nearest(nearest);
    }
    error
}

fn unknown(kind: &'static str, name: &str, known: Vec<String>) -> UnknownName {
    let scored = known
        .iter()
        .map(|candidate| (similarity(name, candidate), candidate.clone()));
    let hint = match most_similar(scored) {
        _ if EVERYTHING.contains(&name) => Hint::All(known.clone()),
        Some(nearest) => Hint::Nearest(nearest),
        None => Hint::Known(known.clone()),
    };
    UnknownName {
        kind,
        name: name.to_owned(),
        hint,
    }
}

fn most_similar(candidates: impl Iterator<Item = (f64, String)>) -> Option<String> {
    candidates
        .filter(|(similarity, _)| *similarity >= LEAST_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn lists_are_parsed_in_table_order() {
        let both = vec![EnvironmentId::KVM, EnvironmentId::SIM_LINUX];
        assert_eq!(environments("sim/linux, kvm,kvm"), Ok(both));
        let chosen = operations("exits/port-out,boot").unwrap();
        assert_eq!(describe(chosen), "exits/port-out,boot");
        assert!(!operations("exits").unwrap().contains(Op::Doorbell));
        assert_eq!(
            describe(OpSet::ALL),
            "basic,basic/first-touch-2m,system,stream,memory,exits,exits/doorbell,boot,irq,populate,block,files,net,ipc,smp"
        );
        assert_eq!(describe(OpSet::EMPTY), "");
    }

    #[test]
    fn a_name_selects_an_environment_or_operations() {
        let environment = Selection::Environment(EnvironmentId::SIM_KVM);
        assert_eq!(selection("sim/kvm"), Ok(environment));
        let operations = Selection::Operations(Op::PortOut.into());
        assert_eq!(selection("exits/port-out"), Ok(operations));
        for (name, nearest) in [
            ("sim/kmv", "sim/kvm"),
            ("basci", "basic"),
            ("port-in", "exits/port-in"),
        ] {
            let hint = selection(name).unwrap_err().hint;
            assert_eq!(hint, Hint::Nearest(nearest.to_owned()));
        }
        let hint = selection("zzzzz").unwrap_err().hint;
        assert!(matches!(hint, Hint::Known(_)), "{hint:?}");
    }

    #[test]
    fn unknown_names_are_rejected_with_a_suggestion_or_all_names() {
        let errors = [
            environments("host,qemu-kv").unwrap_err(),
            environments("kmv").unwrap_err(),
            environments("xyz").unwrap_err(),
            environments("").unwrap_err(),
            operations("exits/port-oot").unwrap_err(),
            operations("port-in").unwrap_err(),
            operations("steam").unwrap_err(),
            operations("basic,,boot").unwrap_err(),
            operations("all").unwrap_err(),
            preset("ful").unwrap_err(),
        ];
        let known = EnvironmentId::names_of(|id| EnvironmentId::BUILT_IN.contains(&id));
        expect![[r#"
            unknown environment 'qemu-kv'; did you mean 'qemu-kvm'?
            unknown environment 'kmv'; did you mean 'kvm'?
            unknown environment 'xyz'; choose from ENVIRONMENTS
            unknown environment ''; choose from ENVIRONMENTS
            unknown workload or operation 'exits/port-oot'; did you mean 'exits/port-out'?
            unknown workload or operation 'port-in'; did you mean 'exits/port-in'?
            unknown workload or operation 'steam'; did you mean 'stream'?
            unknown workload or operation ''; choose from basic, system, stream, memory, exits, boot, irq, populate, block, files, net, ipc, smp
            unknown workload or operation 'all'; leave it out for the default selection, or list what to measure: basic,system,stream,memory,exits,boot,irq,populate,block,files,net,ipc,smp
            unknown preset 'ful'; did you mean 'full'?"#]].assert_eq(&errors.map(|error| error.to_string()).join("\n").replace(&known, "ENVIRONMENTS"));
        let all = environments("all").unwrap_err();
        assert!(matches!(all.hint, Hint::All(_)));
    }
}
