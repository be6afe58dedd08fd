//! Going on with a run that was interrupted, killed or cut off: what its store holds stays,
//! and only the rest is measured.
//!
//! That is done only where nothing changed that a boot could notice. Whatever did change is
//! named, and the study begins anew.

use crate::failure::Failure;
use crate::lab::Lab;
use crate::{doctor, keep, keeper};
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::{kernel_build, Request};
use trapline_store::{RunId, RunInfo, Store};

/// The fact that tells builds of what is measured apart.
const PARTS: &str = "parts";

/// It is measured anew by each run, and differs by chance.
const BY_CHANCE: [&str; 1] = ["tsc mhz"];

/// What a run is to be, as its store has it.
pub struct Asked {
    /// What is asked for, as words of a command line.
    pub words: String,
    /// What is known of the host, and which builds are measured.
    pub facts: BTreeMap<String, String>,
}

impl Asked {
    /// What operations are asked for.
    pub fn of(request: &Request, lab: &Lab) -> Self {
        let contenders = request.contenders.iter();
        let labs = contenders.map(|contender| lab.of(&contender.variant));
        Self::with(keep::describe(request), labs)
    }

    /// What kernel builds are asked for.
    pub fn of_builds(request: &kernel_build::Request, lab: &Lab) -> Self {
        Self::with(request.to_string(), [lab].into_iter())
    }

    fn with<'a>(words: String, labs: impl Iterator<Item = &'a Lab>) -> Self {
        let mut facts = doctor::facts();
        let parts: BTreeSet<String> = labs.map(|lab| lab.settings().parts.fingerprint()).collect();
        let parts: Vec<String> = parts.into_iter().collect();
        facts.insert(PARTS.to_owned(), parts.join(" "));
        Self { words, facts }
    }
}

/// A run that is gone on with.
pub struct Unfinished {
    /// Its number.
    pub number: RunId,
    /// Its seed: the rest is measured in the order in which it began.
    pub seed: u64,
}

/// The latest run that asked for the same, was not finished, and is now this process's to
/// go on with, if there is one. Its seed has to be `seed`, if that is given.
///
/// # Errors
/// The store cannot be read or written.
pub fn unfinished(
    store: &mut Store,
    asked: &Asked,
    seed: Option<u64>,
) -> Result<Option<Unfinished>, Failure> {
    let failed = |error: trapline_store::StoreError| Failure::from_error(&error);
    let runs = store.runs().map_err(failed)?;
    let same = |run: &&RunInfo| {
        without_seed(&run.request) == without_seed(&asked.words)
            && seed.is_none_or(|seed| run.seed == seed)
    };
    let latest = runs.iter().rev().find(same);
    let Some(run) = latest.filter(|run| run.finished_at.is_none()) else {
        return Ok(None);
    };
    if !is_left(run) {
        anstream::eprintln!("run {} of the same is going on: this is another", run.id);
        return Ok(None);
    }
    if let Some(changed) = changed(run, &asked.facts) {
        anstream::eprintln!(
            "run {} was not finished, but {changed}: beginning anew",
            run.id
        );
        return Ok(None);
    }
    let myself = keeper::myself();
    let taken = store.take_over(run.id, run.keeper.as_deref(), &myself);
    let taken = taken.map_err(failed)?;
    if taken {
        anstream::eprintln!(
            "going on with run {}: {} boots are there",
            run.id,
            run.boots
        );
    }
    Ok(taken.then_some(Unfinished {
        number: run.id,
        seed: run.seed,
    }))
}

/// The words of a request but for its seed.
fn without_seed(words: &str) -> String {
    const NAME: &str = " --seed ";
    match words.split_once(NAME) {
        Some((before, after)) => {
            let after = after.find(' ').map_or("", |end| &after[end..]);
            format!("{before}{after}")
        }
        None => words.to_owned(),
    }
}

/// Whether nobody adds to it any more.
fn is_left(run: &RunInfo) -> bool {
    !run.keeper.as_deref().is_some_and(keeper::is_there)
}

/// What is not as it was when the run began.
fn changed(run: &RunInfo, now: &BTreeMap<String, String>) -> Option<String> {
    if run.version != env!("CARGO_PKG_VERSION") {
        return Some(format!("Trapline was {} then", run.version));
    }
    // What the request adds to the facts follows from the request.
    let differs = now.iter().find(|(name, value)| {
        !BY_CHANCE.contains(&name.as_str()) && run.facts.get(*name) != Some(value)
    });
    differs.map(|(name, value)| match (name.as_str(), run.facts.get(name)) {
        (PARTS, _) => "other builds are measured now".to_owned(),
        (_, Some(then)) => format!("'{name}' was {then} then, and is {value} now"),
        (_, None) => format!("'{name}' was not known then"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(version: &str, cpu: &str) -> RunInfo {
        RunInfo {
            id: RunId(3),
            started_at: 0,
            finished_at: None,
            seed: 1,
            request: String::new(),
            version: version.to_owned(),
            facts: facts(cpu, "2000.1", "a"),
            boots: 4,
            keeper: None,
            plan: None,
        }
    }

    fn facts(cpu: &str, tsc: &str, parts: &str) -> BTreeMap<String, String> {
        let all = [("cpu", cpu), ("tsc mhz", tsc), (PARTS, parts)];
        let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
        all.into()
    }

    #[test]
    fn what_changed_is_named() {
        let here = env!("CARGO_PKG_VERSION");
        let told = |run: &RunInfo, facts| changed(run, &facts);
        let before = run(here, "fast");
        assert_eq!(told(&before, facts("fast", "2000.2", "a")), None);
        let other = told(&before, facts("slow", "2000.1", "a")).unwrap();
        assert_eq!(other, "'cpu' was fast then, and is slow now");
        let other = told(&before, facts("fast", "2000.1", "b")).unwrap();
        assert_eq!(other, "other builds are measured now");
        let older = told(&run("0.0.1", "fast"), facts("fast", "2000.1", "a")).unwrap();
        assert_eq!(older, "Trapline was 0.0.1 then");
    }

    #[test]
    fn requests_are_the_same_whatever_their_seeds() {
        for (words, without) in [
            ("--env host --seed 12 --boots 3", "--env host --boots 3"),
            ("--env host --seed 12", "--env host"),
            ("--env sim --boots 3", "--env sim --boots 3"),
        ] {
            assert_eq!(without_seed(words), without);
        }
    }

    #[test]
    fn a_run_is_left_when_its_keeper_is_gone() {
        let mut before = run("1", "fast");
        assert!(is_left(&before), "an older store does not say who");
        before.keeper = Some(keeper::myself());
        assert!(!is_left(&before));
        before.keeper = Some("another boot 1 1".to_owned());
        assert!(is_left(&before));
    }
}
