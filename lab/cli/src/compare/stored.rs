//! Compares stored runs.

use super::remarks::{differing_facts, differing_hosts};
use super::{same_clock, settings, Compared};
use crate::args::{CompareArgs, Side};
use crate::store_path::store_path;
use std::collections::BTreeSet;
use trapline_model::Config;
use trapline_report::compare::CompareReport;
use trapline_runner::{Failure, Status};
use trapline_stats::compare::{boots_of, compare_all, Comparison, Row};
use trapline_stats::verdict::{Design, Settings};
use trapline_store::{Run, RunId, Store};

/// Compares two runs, or two configs of one run.
pub fn compare(args: &CompareArgs, a: u32, b: u32) -> Result<Compared, Failure> {
    let mut store = Store::open_existing(&store_path(args.run_options.store.file.as_deref())?)?;
    let mut load = |run: u32| store.load(RunId(i64::from(run)));
    let (run_a, run_b) = (load(a)?, load(b)?);
    let design = if a == b {
        Design::Blocked
    } else {
        Design::Independent
    };
    let pairs = pairs(args, &run_a, &run_b)?;
    for (of_a, of_b) in &pairs {
        same_clock(of_a, of_b)?;
    }
    let settings = settings(args, args.seed.unwrap_or(run_b.info.seed));
    let (matches, remarks) = match_runs(&run_a, &run_b, &pairs, design, &settings);
    let name = |run: u32, configs: &mut dyn Iterator<Item = &Config>| {
        let names: Vec<_> = configs.map(ToString::to_string).collect();
        format!("run {run}: {}", names.join(", "))
    };
    let versus = CompareReport {
        version: run_b.info.version.clone(),
        facts: run_b.info.facts.clone(),
        a: name(a, &mut pairs.iter().map(|(a, _)| a)),
        b: name(b, &mut pairs.iter().map(|(_, b)| b)),
        settings,
        remarks,
        matches,
    };
    Ok(Compared {
        versus,
        status: Status::Done,
        boots: [run_a.observations, run_b.observations],
    })
}

/// Compares pairs of configs of two runs. Returns the rows, and what else differs.
pub fn match_runs(
    a: &Run,
    b: &Run,
    pairs: &[(Config, Config)],
    design: Design,
    settings: &Settings,
) -> (Vec<Row>, Vec<String>) {
    let boots = |run: &Run, config| boots_of(&run.observations, config);
    let observed: Vec<_> = pairs
        .iter()
        .map(|(of_a, of_b)| (boots(a, of_a), boots(b, of_b)))
        .collect();
    let comparisons: Vec<Comparison<'_>> = observed
        .iter()
        .map(|(a, b)| Comparison { a, b, design })
        .collect();
    let rows = compare_all(&comparisons, settings);
    let mut remarks: Vec<_> = observed
        .iter()
        .flat_map(|(a, b)| differing_facts(a, b))
        .collect();
    if !rows.iter().all(|row| row.clock().is_exact()) {
        remarks.extend(differing_hosts(&a.info.facts, &b.info.facts));
    }
    (rows, remarks)
}

/// Returns the configs that both runs have, each twice.
pub fn common(a: &Run, b: &Run) -> Vec<(Config, Config)> {
    let of_b = configs(b);
    let common = configs(a).into_iter().filter(|one| of_b.contains(one));
    common.map(|one| (one.clone(), one)).collect()
}

/// Returns the pairs of configs to compare: those that are named, or all that both runs have.
fn pairs(args: &CompareArgs, a: &Run, b: &Run) -> Result<Vec<(Config, Config)>, Failure> {
    let named = |side: &Side| match side {
        Side::Stored { config, .. } => config.clone(),
        Side::New(config) => Some(config.clone()),
    };
    let both = match (named(&args.a), named(&args.b)) {
        (Some(a), Some(b)) => vec![(a, b)],
        (Some(one), None) | (None, Some(one)) => vec![(one.clone(), one)],
        (None, None) => common(a, b),
    };
    for (of_a, of_b) in &both {
        require_stored(a, of_a)?;
        require_stored(b, of_b)?;
    }
    if both.is_empty() {
        Err(Failure::usage(
            format!(
                "runs {} and {} have no environment in common",
                a.info.id, b.info.id
            ),
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
