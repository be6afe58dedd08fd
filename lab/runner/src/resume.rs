//! Resumes a run that was interrupted or killed: its stored boots are kept, and only the others are
//! executed.
//!
//! A run is resumed only if nothing that affects a boot has changed. Otherwise the change is reported
//! and another run starts.

use crate::context::RunContext;
use crate::failure::Failure;
use crate::recorded::{Recorded, PARTS};
use crate::run_owner::{self, State};
use std::collections::BTreeMap;
use trapline_store::{RunId, RunInfo, Store};

/// Facts that differ from run to run on the same host.
pub const RANDOM_FACTS: [&str; 1] = ["tsc mhz"];

/// A run to be resumed.
pub(crate) struct UnfinishedRun {
    /// Its number.
    pub number: RunId,
    /// Its seed, which gives the order of its remaining boots.
    pub seed: u64,
}

/// Treatment of an unfinished run of the same plan.
#[derive(Clone, Copy, Debug)]
pub enum Resume {
    /// Resume it if its seed is this one, or any if there is none.
    Allowed {
        /// The seed in the plan file.
        seed: Option<u64>,
    },
    /// Start another run.
    Restart,
}

/// Returns the latest run of the same request if it is unfinished and may be resumed, and takes it over.
///
/// # Errors
/// The store cannot be read or written.
pub(crate) fn unfinished(
    store: &mut Store,
    recorded: &Recorded,
    resume: Resume,
    context: &RunContext<'_>,
) -> Result<Option<UnfinishedRun>, Failure> {
    let Resume::Allowed { seed } = resume else {
        return Ok(None);
    };
    let is_same = |run: &&RunInfo| {
        run.request == recorded.request && seed.is_none_or(|seed| run.seed == seed)
    };
    let runs = store.runs()?;
    let latest = runs.iter().rev().find(is_same);
    let Some(run) = latest.filter(|run| run.finished_at.is_none()) else {
        return Ok(None);
    };
    let id = run.id;
    let owner = run_owner::current(context.host);
    match run_owner::state(run, &owner) {
        State::Ended => {}
        State::Running => {
            context.note(&format!(
                "run {id} of the same request is in progress: starting another"
            ));
            return Ok(None);
        }
        // A store that another host writes is refused when a run begins.
        State::RunningElsewhere => return Ok(None),
        State::EndedElsewhere => {
            context.note(&format!(
                "run {id} of the same request is unfinished and of other hosts: starting another"
            ));
            return Ok(None);
        }
    }
    if let Some(change) = change_since(run, &recorded.facts) {
        context.note(&format!(
            "run {id} is unfinished, but {change}: starting another"
        ));
        return Ok(None);
    }
    let taken = store.take_over(id, run.owner.as_deref(), (&owner, context.host))?;
    if taken {
        context.note(&format!(
            "resuming run {id}: {} boots are stored",
            run.boots
        ));
    }
    let run = UnfinishedRun {
        number: id,
        seed: run.seed,
    };
    Ok(taken.then_some(run))
}

/// Returns a description of the first difference between the facts of a run and those of now.
fn change_since(run: &RunInfo, now: &BTreeMap<String, String>) -> Option<String> {
    if run.version != env!("CARGO_PKG_VERSION") {
        return Some(format!("it was started by Trapline {}", run.version));
    }
    // Facts that the request adds follow from the request.
    let differs = now.iter().find(|(name, value)| {
        !RANDOM_FACTS.contains(&name.as_str()) && run.facts.get(*name) != Some(value)
    });
    differs.map(|(name, value)| match (name.as_str(), run.facts.get(name)) {
        (PARTS, _) => "the builds under test have changed".to_owned(),
        (_, Some(before)) => format!("'{name}' has changed from {before} to {value}"),
        (_, None) => format!("'{name}' was unknown before"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(version: &str, cpu: &str) -> RunInfo {
        RunInfo {
            version: version.to_owned(),
            facts: facts(cpu, "2000.1", "a"),
            ..RunInfo::default()
        }
    }

    fn facts(cpu: &str, tsc: &str, parts: &str) -> BTreeMap<String, String> {
        let all = [("cpu", cpu), ("tsc mhz", tsc), (PARTS, parts)];
        let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
        all.into()
    }

    #[test]
    fn the_first_change_is_described() {
        let here = env!("CARGO_PKG_VERSION");
        let change = |run: &RunInfo, facts| change_since(run, &facts);
        let before = run(here, "fast");
        assert_eq!(change(&before, facts("fast", "2000.2", "a")), None);
        let other = change(&before, facts("slow", "2000.1", "a")).unwrap();
        assert_eq!(other, "'cpu' has changed from fast to slow");
        let other = change(&before, facts("fast", "2000.1", "b")).unwrap();
        assert_eq!(other, "the builds under test have changed");
        let older = change(&run("0.0.1", "fast"), facts("fast", "2000.1", "a")).unwrap();
        assert_eq!(older, "it was started by Trapline 0.0.1");
    }
}
