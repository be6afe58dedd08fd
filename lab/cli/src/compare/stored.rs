//! Compares stored runs.

use super::remarks::{differing_conditions, differing_facts, remarks};
use super::{same_clock, settings, Compared};
use crate::args::{CompareArgs, Side};
use crate::show;
use crate::store_path::store_path;
use std::collections::BTreeSet;
use trapline_model::{Config, Host, Observation};
use trapline_report::compare::CompareReport;
use trapline_runner::{Failure, Status};
use trapline_stats::compare::{boots_of, compare_all, Comparison, Row};
use trapline_stats::hosts;
use trapline_stats::verdict::{Design, Settings};
use trapline_store::{Run, RunId, RunInfo, Store};

/// Compares the runs of two sides, or two configs of one run.
pub fn compare(args: &CompareArgs, sides: [&[u32]; 2]) -> Result<Compared, Failure> {
    let mut store = Store::open_existing(&store_path(args.run_options.store.file.as_deref())?)?;
    require_other_runs(sides)?;
    let mut load = |runs: &[u32]| -> Result<Vec<Run>, Failure> {
        let ids = runs.iter().map(|run| RunId(i64::from(*run)));
        ids.map(|id| Ok(store.load(id)?)).collect()
    };
    let (of_a, of_b) = (load(sides[0])?, load(sides[1])?);
    let design = if sides[0] == sides[1] {
        hosts::design_of_run(of_a.iter().flat_map(|run| &run.observations))
    } else if common_hosts(&of_a, &of_b) > 1 {
        Design::Hosts { in_blocks: false }
    } else {
        Design::of_runs(of_a.len(), of_b.len())
    };
    let pairs = pairs(args, &of_a, &of_b)?;
    for (a, b) in &pairs {
        same_clock(a, b)?;
    }
    let is_wall = |(config, _): &(Config, Config)| !config.clock().is_exact();
    let differing = if pairs.iter().any(is_wall) {
        differing_runs(&of_a, &of_b)
    } else {
        Vec::new()
    };
    require_same_conditions(args, &differing)?;
    let (last_a, last_b) = (&of_a[of_a.len() - 1], &of_b[of_b.len() - 1]);
    let repeated = if design == Design::Boots {
        repeated(&mut store, last_a)?
    } else {
        Vec::new()
    };
    let settings = settings(args, args.seed.unwrap_or(last_b.info.seed));
    let (matches, facts) = match_runs([&of_a, &of_b], &pairs, (design, &repeated), &settings);
    let mut remarks = remarks(&matches, None, &settings, design);
    remarks.extend(facts);
    if !differing.is_empty() {
        remarks.extend(differing);
        remarks
            .push("A change may be one of these conditions, not of what was compared.".to_owned());
    }
    let versus = CompareReport {
        version: last_b.info.version.clone(),
        facts: last_b.info.facts.clone(),
        a: name(&of_a, pairs.iter().map(|(a, _)| a)),
        b: name(&of_b, pairs.iter().map(|(_, b)| b)),
        settings,
        design,
        remarks,
        matches,
    };
    let boots = |runs: Vec<Run>| runs.into_iter().flat_map(|run| run.observations).collect();
    Ok(Compared {
        versus,
        status: Status::Done,
        boots: [boots(of_a), boots(of_b)],
    })
}

/// Returns the name of a side: its runs, their configurations, and when they began.
fn name<'a>(runs: &[Run], configs: impl Iterator<Item = &'a Config>) -> String {
    let configs: Vec<String> = configs.map(ToString::to_string).collect();
    let numbers: Vec<String> = runs.iter().map(|run| run.info.id.to_string()).collect();
    let dates = runs.iter().map(|run| show::date(run.info.started_at));
    let dates: Vec<String> = dates.collect();
    let noun = if runs.len() == 1 { "run" } else { "runs" };
    format!(
        "{noun} {}: {} ({})",
        numbers.join(", "),
        configs.join(", "),
        dates.join(", ")
    )
}

/// Returns the number of hosts of both sides, if each is one run.
fn common_hosts(a: &[Run], b: &[Run]) -> usize {
    match (a, b) {
        ([a], [b]) => {
            let hosts = hosts::ids(&b.observations);
            hosts.intersection(&hosts::ids(&a.observations)).count()
        }
        _ => 0,
    }
}

/// # Errors
/// A run is on both sides and one of them has another, too.
fn require_other_runs([a, b]: [&[u32]; 2]) -> Result<(), Failure> {
    let is_one = a == b && a.len() == 1;
    let all: BTreeSet<u32> = a.iter().chain(b).copied().collect();
    if is_one || all.len() == a.len() + b.len() {
        Ok(())
    } else {
        Err(Failure::usage(
            "a run is named twice: the runs of a comparison are independent of each other",
            "name each run once, or the same single run on both sides, as in 'trapline compare 12/kvm 12/qemu-kvm'",
        ))
    }
}

/// Returns what differs between the conditions of the first run of A and every other run.
fn differing_runs(a: &[Run], b: &[Run]) -> Vec<String> {
    let others = a.iter().skip(1).chain(b);
    let mut differing = Vec::new();
    for other in others {
        let of_hosts = differing_hosts(&a[0], other);
        for remark in differing_conditions(&a[0].info, &other.info)
            .into_iter()
            .chain(of_hosts)
        {
            if !differing.contains(&remark) {
                differing.push(remark);
            }
        }
    }
    differing
}

/// Returns the facts in which hosts of both runs differ, if a run has several: those of one host are conditions of the run.
fn differing_hosts(a: &Run, b: &Run) -> Vec<String> {
    if a.hosts.len().max(b.hosts.len()) < 2 {
        return Vec::new();
    }
    let common = a
        .hosts
        .iter()
        .filter_map(|(id, host)| Some((host, b.hosts.get(id)?)));
    let differing = common.flat_map(|(one, other)| {
        let label = one.label();
        let names: BTreeSet<&String> = one.facts.keys().chain(other.facts.keys()).collect();
        names.into_iter().filter_map(move |name| {
            let value = |host: &Host| host.facts.get(name).cloned().unwrap_or_default();
            let (old, new) = (value(one), value(other));
            let (a, b) = (a.info.id, b.info.id);
            (old != new)
                .then(|| format!("Differs: {name} of {label}: {old} (run {a}), {new} (run {b})."))
        })
    });
    differing.collect()
}

/// # Errors
/// Runs on the wall clock have other conditions, and are not to be compared anyway.
fn require_same_conditions(args: &CompareArgs, differing: &[String]) -> Result<(), Failure> {
    if differing.is_empty() || args.anyway {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "the runs were measured under other conditions, which look like differences of what is compared\n{}",
            differing.join("\n")
        ),
        "measure both now, as in 'trapline compare kvm qemu-kvm', or add --anyway",
    ))
}

/// Most runs from which the noise between runs is estimated.
const MOST_REPEATED: usize = 20;

/// Returns the latest runs that repeat `run`: the same request under the same conditions, `run` included.
fn repeated(store: &mut Store, run: &Run) -> Result<Vec<Run>, Failure> {
    let is_same = |other: &&RunInfo| {
        other.request == run.info.request && differing_conditions(&run.info, other).is_empty()
    };
    let runs = store.runs()?;
    let same = runs.iter().rev().filter(is_same).take(MOST_REPEATED);
    same.map(|other| Ok(store.load(other.id)?)).collect()
}

/// Compares pairs of configs of runs of two sides. Returns the rows, and which facts of boots differ. The second of
/// `design` repeats A.
pub fn match_runs(
    [a, b]: [&[Run]; 2],
    pairs: &[(Config, Config)],
    (design, repeated): (Design, &[Run]),
    settings: &Settings,
) -> (Vec<Row>, Vec<String>) {
    let boots = |runs: &[Run], config: &Config| -> Vec<Vec<Observation>> {
        let of_runs = runs.iter().map(|run| boots_of(&run.observations, config));
        of_runs.collect()
    };
    let observed: Vec<_> = pairs
        .iter()
        .map(|(of_a, of_b)| [boots(a, of_a), boots(b, of_b), boots(repeated, of_a)])
        .collect();
    let comparisons: Vec<Comparison<'_>> = observed
        .iter()
        .map(|[a, b, repeated]| Comparison {
            a,
            b,
            design,
            repeated,
        })
        .collect();
    let rows = compare_all(&comparisons, settings);
    let last = |runs: &[Vec<Observation>]| runs.last().cloned().unwrap_or_default();
    let remarks = observed
        .iter()
        .flat_map(|[a, b, _]| differing_facts(&last(a), &last(b)));
    (rows, remarks.collect())
}

/// Returns the configs that all runs have, each twice.
pub fn common<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<(Config, Config)> {
    let all = runs.into_iter().map(configs);
    let common = all.reduce(|one, other| one.intersection(&other).cloned().collect());
    let common = common.into_iter().flatten();
    common.map(|one| (one.clone(), one)).collect()
}

/// Returns the pairs of configs to compare: those that are named, or all that the runs have.
fn pairs(args: &CompareArgs, a: &[Run], b: &[Run]) -> Result<Vec<(Config, Config)>, Failure> {
    let named = |side: &Side| match side {
        Side::Stored { config, .. } => config.clone(),
        Side::New(config) => Some(config.clone()),
    };
    let both = match (named(&args.a), named(&args.b)) {
        (Some(a), Some(b)) => vec![(a, b)],
        (Some(one), None) | (None, Some(one)) => vec![(one.clone(), one)],
        (None, None) => common(a.iter().chain(b)),
    };
    for (of_a, of_b) in &both {
        a.iter().try_for_each(|run| require_stored(run, of_a))?;
        b.iter().try_for_each(|run| require_stored(run, of_b))?;
    }
    if both.is_empty() {
        let runs: Vec<_> = a
            .iter()
            .chain(b)
            .map(|run| run.info.id.to_string())
            .collect();
        Err(Failure::usage(
            format!("runs {} have no environment in common", runs.join(" and ")),
            "'trapline show --list' lists the request of each run",
        ))
    } else {
        Ok(both)
    }
}

fn configs(run: &Run) -> BTreeSet<Config> {
    let all = run.observations.iter().map(|seen| &seen.config);
    let all = all.filter(|config| !config.overrides.is_control);
    all.cloned().collect()
}

fn require_stored(run: &Run, config: &Config) -> Result<(), Failure> {
    let stored = configs(run);
    if stored.contains(config) {
        return Ok(());
    }
    let names: Vec<_> = stored.iter().map(ToString::to_string).collect();
    Err(Failure::usage(
        format!("run {} has no boot of {config}", run.info.id),
        format!("choose from {}", names.join(", ")),
    ))
}
