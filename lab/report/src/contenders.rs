//! Measured programs: commands of custom VMMs, versions of QEMU and of kernels.

use crate::document::{Look, Marker, Note};
use crate::report::Report;
use std::collections::BTreeMap;
use trapline_model::EnvironmentId;

/// Digits of a hash that are shown.
const SHORT_HASH: usize = 12;

/// Facts that name programs and kernels, with their titles.
const VERSIONS: [(&str, &str); 3] = [
    ("qemu", "QEMU "),
    ("l1-kernel", ""),
    ("guest-kernel", "guest: "),
];

/// Most characters of a command in the brief form.
const SHORT_COMMAND: usize = 60;

/// Returns the command, the program's hash, and those of its files of each custom VMM.
pub fn custom_vmms(report: &Report) -> Vec<Note> {
    describe(report, |command, facts| {
        let files = facts.get("custom-vmm-files");
        let files = files.map_or_else(String::new, |files| format!(" · {files}"));
        format!("{command}{}{files}", hash(facts))
    })
}

/// Returns the start of the command and the program's hash of each custom VMM.
pub fn brief_custom_vmms(report: &Report) -> Vec<Note> {
    describe(report, |command, facts| {
        let end = command.char_indices().nth(SHORT_COMMAND);
        let command = match end {
            Some((end, _)) => format!("{}…", command[..end].trim_end()),
            None => command.to_owned(),
        };
        format!("{command}{}", hash(facts))
    })
}

type Facts = BTreeMap<String, String>;

fn describe(report: &Report, text: impl Fn(&str, &Facts) -> String) -> Vec<Note> {
    let all = report.summary.facts.iter().filter(|(id, _)| id.is_custom());
    let described = all.filter_map(|(id, facts)| {
        let command = facts.get("custom-vmm-command")?;
        Some(note(&[*id], &text(command, facts)))
    });
    described.collect()
}

fn hash(facts: &Facts) -> String {
    let hash = facts.get("custom-vmm-sha256");
    hash.map_or_else(String::new, |hash| {
        format!(" · sha256 {}", &hash[..SHORT_HASH.min(hash.len())])
    })
}

/// Returns the versions of QEMU and of kernels, with the environments that have them in common.
pub fn versions(report: &Report) -> Vec<Note> {
    let mut environments: BTreeMap<String, Vec<EnvironmentId>> = BTreeMap::new();
    for (id, facts) in &report.summary.facts {
        let known = VERSIONS
            .iter()
            .filter_map(|(name, title)| Some(format!("{title}{}", facts.get(*name)?)));
        let text = known.collect::<Vec<_>>().join(" · ");
        if !text.is_empty() {
            environments.entry(text).or_default().push(*id);
        }
    }
    let mut notes: Vec<_> = environments.into_iter().collect();
    notes.sort_by_key(|(_, environments)| environments[0]);
    notes
        .iter()
        .map(|(text, environments)| note(environments, text))
        .collect()
}

fn note(environments: &[EnvironmentId], text: &str) -> Note {
    let names: Vec<_> = environments.iter().map(|id| id.name()).collect();
    Note::new(Marker::Subject(names.join(", ")), text, Look::Faint)
}
