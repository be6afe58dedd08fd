//! Runs of several stores -> one run: the slices of a plan, or the same plan on several hosts.

use crate::rows::{json, signed};
use crate::{read, write, NewRun, Problem, Run, RunId, RunInfo};
use rusqlite::{params, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::{Config, Host, Slice};

/// The builds under test, which are a fact of a run.
const PARTS: &str = "parts";

/// The owner of a merged run: no process, on no host.
pub const MERGED: &str = "merged";

/// A run that cannot be merged with those before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {difference}")]
pub struct NotMergeable {
    /// Name of the run.
    pub name: String,
    /// Difference from the first run, whose name it has.
    pub difference: String,
}

/// A merged run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Its number.
    pub run: RunId,
    /// Number of its boots.
    pub boots: u64,
    /// Boots that several runs have, and are the same in all.
    pub repeated: u64,
    /// Hosts of its boots.
    pub hosts: usize,
    /// Runs that were not finished.
    pub unfinished: Vec<String>,
    /// Slices of the plan that no run has.
    pub missing: Vec<String>,
}

/// A run that grows by others, in one transaction.
pub struct Merge<'a> {
    transaction: &'a Transaction<'a>,
    first: Option<(String, RunInfo)>,
    merged: Merged,
    facts: BTreeMap<String, String>,
    times: (u64, u64),
    slices: BTreeSet<Option<String>>,
    hosts: BTreeSet<String>,
    known: BTreeMap<String, Host>,
    measured: BTreeSet<Config>,
    skips: BTreeMap<Config, String>,
}

impl<'a> Merge<'a> {
    pub fn new(transaction: &'a Transaction<'a>) -> Self {
        Self {
            transaction,
            first: None,
            merged: Merged {
                run: RunId::UNSTORED,
                boots: 0,
                repeated: 0,
                hosts: 0,
                unfinished: Vec::new(),
                missing: Vec::new(),
            },
            facts: BTreeMap::new(),
            times: (u64::MAX, 0),
            slices: BTreeSet::new(),
            hosts: BTreeSet::new(),
            known: BTreeMap::new(),
            measured: BTreeSet::new(),
            skips: BTreeMap::new(),
        }
    }

    /// Adds a run. Returns the reason why it does not belong to those before it, if there is one.
    pub fn add(&mut self, name: &str, run: &Run) -> Result<Option<String>, Problem> {
        let info = &run.info;
        match &self.first {
            None => self.begin(name, info)?,
            Some((of, first)) => {
                if let Some(difference) = difference(first, info) {
                    return Ok(Some(format!("{difference} than {of}")));
                }
                self.facts
                    .retain(|fact, value| info.facts.get(fact) == Some(value));
            }
        }
        match info.finished_at {
            Some(end) => self.times.1 = self.times.1.max(end),
            None => self.merged.unfinished.push(name.to_owned()),
        }
        self.times.0 = self.times.0.min(info.started_at);
        self.slices.insert(info.request.slice.clone());
        for host in run.hosts.values() {
            let known = self.known.get(&host.id);
            if let Some(fact) = known.and_then(|known| differing_fact(known, host)) {
                let label = host.label();
                return Ok(Some(format!("its host {label} had another {fact} before")));
            }
            write::add_host(self.transaction, self.merged.run, host)?;
            self.known.insert(host.id.clone(), host.clone());
        }
        for (config, reason) in &run.skips {
            let first = self.skips.entry(config.clone());
            first.or_insert_with(|| reason.clone());
        }
        self.add_boots(run)
    }

    fn begin(&mut self, name: &str, info: &RunInfo) -> Result<(), Problem> {
        let mut request = info.request.clone();
        request.slice = None;
        let run = NewRun {
            seed: info.seed,
            request,
            version: &info.version,
            plan: info.plan.as_deref(),
            ..NewRun::default()
        };
        self.merged.run = write::insert_run(self.transaction, &run)?;
        self.facts.clone_from(&info.facts);
        self.first = Some((name.to_owned(), info.clone()));
        Ok(())
    }

    fn add_boots(&mut self, run: &Run) -> Result<Option<String>, Problem> {
        for boot in &run.observations {
            self.measured.insert(boot.config.clone());
            self.hosts.insert(boot.host.clone());
            match write::find(self.transaction, self.merged.run, boot)? {
                None => {
                    write::add_boot(self.transaction, self.merged.run, boot)?;
                    self.merged.boots += 1;
                }
                Some(id) if read::boot(self.transaction, id)? == *boot => self.merged.repeated += 1,
                Some(_) => {
                    return Ok(Some(format!(
                        "its boot {} of {} was measured again on the same host: name one of both runs",
                        boot.replicate, boot.config
                    )));
                }
            }
        }
        Ok(None)
    }

    /// Completes the run: it is finished if all of its runs are, and all slices of the plan are there.
    pub fn finish(mut self) -> Result<Merged, Problem> {
        for (config, reason) in &self.skips {
            if !self.measured.contains(config) {
                write::skip(self.transaction, self.merged.run, config, reason)?;
            }
        }
        self.merged.missing = missing(&self.slices);
        self.merged.hosts = self.hosts.len();
        let is_whole = self.merged.missing.is_empty() && self.merged.unfinished.is_empty();
        self.transaction.execute(
            "UPDATE runs SET started_at = ?2, finished_at = ?3, facts = ?4, owner = ?5 WHERE id = ?1",
            params![
                self.merged.run.0,
                signed(self.times.0),
                is_whole.then_some(signed(self.times.1)),
                json(&self.facts),
                MERGED
            ],
        )?;
        Ok(self.merged)
    }
}

/// Returns the name of the first fact in which what is known of a host differs.
fn differing_fact<'a>(known: &'a Host, host: &'a Host) -> Option<&'a str> {
    let names = known.facts.keys().chain(host.facts.keys());
    let mut names = names.map(String::as_str);
    names.find(|name| known.facts.get(*name) != host.facts.get(*name))
}

/// Returns the first difference of two runs that cannot be one, as a clause.
fn difference(first: &RunInfo, run: &RunInfo) -> Option<String> {
    if run.version != first.version {
        return Some(format!("it is of another version ({})", run.version));
    }
    if run.plan != first.plan {
        return Some("it is of another plan".to_owned());
    }
    let mut requests = [&first.request, &run.request].map(Clone::clone);
    let slices = requests.each_mut().map(|request| request.slice.take());
    if requests[0] != requests[1] {
        return Some("it is of another request".to_owned());
    }
    if run.seed != first.seed {
        return Some(format!("it is of another seed ({})", run.seed));
    }
    if run.facts.get(PARTS) != first.facts.get(PARTS) {
        return Some("its builds under test are others".to_owned());
    }
    let counts = slices.map(|slice| slice.and_then(|text| text.parse().ok()).map(Slice::of));
    (counts[0] != counts[1]).then(|| match counts[1] {
        Some(of) => format!("it is one of {of} slices, which are others"),
        None => "it is of a whole plan, which is more".to_owned(),
    })
}

/// Returns the slices that are not there. Runs of whole plans have none.
fn missing(slices: &BTreeSet<Option<String>>) -> Vec<String> {
    let first = slices.iter().flatten().next();
    let of = first
        .and_then(|text| text.parse().ok())
        .map_or(0, Slice::of);
    let all = (1..=of).map(|number| format!("{number}/{of}"));
    all.filter(|slice| !slices.contains(&Some(slice.clone())))
        .collect()
}
