//! Measured programs: commands of custom VMMs, versions of QEMU and of kernels.

use crate::document::{Look, Marker, Note};
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::Config;

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
    let all = report.summary.facts.iter();
    let all = all.filter(|(config, _)| config.environment.is_custom());
    let described = all.filter_map(|(config, facts)| {
        let command = facts.get("custom-vmm-command")?;
        Some(note(
            report,
            &BTreeSet::from([config]),
            &text(command, facts),
        ))
    });
    described.collect()
}

fn hash(facts: &Facts) -> String {
    let hash = facts.get("custom-vmm-sha256");
    hash.map_or_else(String::new, |hash| {
        format!(" · sha256 {}", &hash[..SHORT_HASH.min(hash.len())])
    })
}

/// Returns the versions of QEMU and of kernels, with the configurations that have them in common.
pub fn versions(report: &Report) -> Vec<Note> {
    let mut configs: BTreeMap<String, BTreeSet<&Config>> = BTreeMap::new();
    for (config, facts) in &report.summary.facts {
        let known = VERSIONS
            .iter()
            .filter_map(|(name, title)| Some(format!("{title}{}", facts.get(*name)?)));
        let text = known.collect::<Vec<_>>().join(" · ");
        if !text.is_empty() {
            configs.entry(text).or_default().insert(config);
        }
    }
    let mut notes: Vec<_> = configs.into_iter().collect();
    notes.sort_by(|(_, one), (_, other)| one.first().cmp(&other.first()));
    notes
        .iter()
        .map(|(text, configs)| note(report, configs, text))
        .collect()
}

fn note(report: &Report, configs: &BTreeSet<&Config>, text: &str) -> Note {
    Note::new(Marker::Subject(report.names(configs)), text, Look::Faint)
}
