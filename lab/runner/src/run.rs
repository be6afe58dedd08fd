//! A run from its request to its stored result: begin, execute boots, finish, load.

use crate::boots;
use crate::context::RunContext;
use crate::event::RunEvent;
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::options::BootOptions;
use crate::recorded::Recorded;
use crate::resume::{self, Resume};
use crate::run_owner;
use crate::sink::StoreSink;
use std::time::Duration;
use trapline_abi::OpSet;
use trapline_model::{
    expand, populate, time, Config, EnvironmentId, Observation, Operations, Outcome, Plan, Request,
};
use trapline_store::{NewRun, Run, RunId, RunInfo, Store};

/// Returns a request for exact figures. They do not depend on the seed, and further boots or samples
/// would repeat them.
pub fn exact_request(
    configs: &[Config],
    operations: &Operations,
    inventory: &Inventory,
) -> Request {
    Request {
        configs: configs.to_vec(),
        ready: configs.to_vec(),
        operations: operations.guest,
        long: operations.long(),
        // A whole workload names none of its operations.
        named: if populate::operations().is_subset(operations.guest) {
            OpSet::EMPTY
        } else {
            operations.guest
        },
        overrides: inventory.overrides().clone(),
        ..Request::default()
    }
}

/// Returns these environments in their default configuration.
pub fn default_configs(environments: &[EnvironmentId]) -> Vec<Config> {
    environments.iter().map(|id| (*id).into()).collect()
}

/// Executes `request` and stores its observations. Returns the stored run, complete or up to its
/// cancellation. A run without boots is not stored: it has only the reasons why nothing can be measured.
///
/// # Errors
/// The store cannot be written or read.
pub fn perform(
    store: &mut Store,
    request: &Request,
    context: &RunContext<'_>,
    options: &BootOptions<'_>,
) -> Result<Run, Failure> {
    let plan = expand(request);
    if plan.boots.is_empty() && !is_empty_slice(request) {
        return Ok(without_boots(request, &plan, None, context));
    }
    let number = begin(store, request, &plan, None, context)?;
    continue_run(store, number, plan, context, options)
}

/// Returns whether a slice has no boots on any host. Its run is stored: it is complete.
fn is_empty_slice(request: &Request) -> bool {
    let everywhere = Request {
        ready: request.configs.clone(),
        ..request.clone()
    };
    request.slice.is_some() && expand(&everywhere).boots.is_empty()
}

/// Returns a run of which nothing can be measured, with the reasons.
fn without_boots(
    request: &Request,
    plan: &Plan,
    plan_text: Option<&str>,
    context: &RunContext<'_>,
) -> Run {
    let recorded = Recorded::of(request, context);
    let now = time::now();
    Run {
        info: RunInfo {
            id: RunId::UNSTORED,
            started_at: now,
            finished_at: Some(now),
            seed: request.seed,
            request: recorded.request.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            facts: recorded.facts_with(context),
            plan: plan_text.map(str::to_owned),
            ..RunInfo::default()
        },
        skips: skips(request, plan, context.inventory),
        ..Run::default()
    }
}

/// Executes the request of a plan file with this text, or resumes the latest unfinished run of it.
///
/// # Errors
/// The store cannot be written or read.
pub fn perform_plan(
    store: &mut Store,
    mut request: Request,
    plan: (&str, Resume),
    context: &RunContext<'_>,
    options: &BootOptions<'_>,
) -> Result<Run, Failure> {
    let (text, resume) = plan;
    let mut plan = expand(&request);
    if plan.boots.is_empty() && !is_empty_slice(&request) {
        return Ok(without_boots(&request, &plan, Some(text), context));
    }
    let recorded = Recorded::of(&request, context);
    let number = match resume::unfinished(store, &recorded, resume, context)? {
        Some(run) => {
            request.seed = run.seed;
            plan = expand(&request);
            run.number
        }
        None => begin(store, &request, &plan, Some(text), context)?,
    };
    continue_run(store, number, plan, context, options)
}

/// Executes the boots of a run's plan that are not stored yet.
///
/// # Errors
/// The store cannot be written or read.
pub fn continue_run(
    store: &mut Store,
    number: RunId,
    mut plan: Plan,
    context: &RunContext<'_>,
    options: &BootOptions<'_>,
) -> Result<Run, Failure> {
    let stored = store.booted(number)?;
    if let Some(time) = expected(&store.runs()?, number).filter(|_| stored.is_empty()) {
        context.events.handle(RunEvent::Expected(time));
    }
    let given_up = given_up(store, number, &plan)?;
    plan.boots.retain(|boot| {
        let is_stored = stored.contains(&(boot.config.clone(), boot.replicate));
        !is_stored && !given_up.contains(&boot.config)
    });
    let mut sink = StoreSink::new(store, number, context.host);
    boots::execute(&plan, context, options, &mut sink)?;
    finish(store, number, context)
}

/// Returns the configurations whose builds or packets are not tried again: of their stored boots none has a result, or
/// the reason why there are none is stored.
fn given_up(store: &mut Store, number: RunId, plan: &Plan) -> Result<Vec<Config>, Failure> {
    let mut long = plan.boots.iter().filter(|boot| !boot.long.is_empty());
    if long.next().is_none() {
        return Ok(Vec::new());
    }
    let run = store.load(number)?;
    let is_failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
    let has_failed = |boot: &&Observation| boot.operations.iter().all(|it| is_failed(&it.outcome));
    let failed = run.observations.iter().filter(has_failed);
    let failed = failed.map(|boot| &boot.config);
    let skipped = run.skips.iter().map(|(config, _)| config);
    let long = |config: &&Config| {
        let mut boots = plan.boots.iter();
        boots.any(|boot| boot.config == **config && !boot.long.is_empty())
    };
    Ok(failed.chain(skipped).filter(long).cloned().collect())
}

/// Returns the finished runs before `run` of the same request, whatever its seed, the latest first.
pub fn earlier_of_same<'a>(
    runs: &'a [RunInfo],
    run: &'a RunInfo,
) -> impl Iterator<Item = &'a RunInfo> {
    runs.iter().rev().filter(move |other| {
        let is_earlier = other.id < run.id && other.finished_at.is_some();
        is_earlier && other.request == run.request
    })
}

/// Returns the time that the last finished run of the same request took.
fn expected(runs: &[RunInfo], number: RunId) -> Option<Duration> {
    let this = runs.iter().find(|run| run.id == number)?;
    let same = earlier_of_same(runs, this).next()?;
    let milliseconds = same.finished_at?.saturating_sub(same.started_at);
    Some(Duration::from_millis(milliseconds))
}

/// Creates the run of `request` and stores the configs that are skipped, with their reasons.
///
/// # Errors
/// The store cannot be written.
pub fn begin(
    store: &mut Store,
    request: &Request,
    plan: &Plan,
    plan_text: Option<&str>,
    context: &RunContext<'_>,
) -> Result<RunId, Failure> {
    let recorded = Recorded::of(request, context);
    let number = create(store, request.seed, recorded, plan_text, context)?;
    for (config, reason) in skips(request, plan, context.inventory) {
        store.add_skip(number, &config, &reason)?;
    }
    Ok(number)
}

/// Returns the configs that are skipped, with their reasons.
fn skips(request: &Request, plan: &Plan, inventory: &Inventory) -> Vec<(Config, String)> {
    let left_out = plan.left_out.iter().filter_map(|config| {
        let unavailable = inventory.unavailable_config(config, &request.long)?;
        Some((config.clone(), unavailable.to_string()))
    });
    left_out.chain(plan.without_work.iter().cloned()).collect()
}

/// Creates a run in the store, owned by this process.
///
/// # Errors
/// The store cannot be written.
pub(crate) fn create(
    store: &mut Store,
    seed: u64,
    recorded: Recorded,
    plan: Option<&str>,
    context: &RunContext<'_>,
) -> Result<RunId, Failure> {
    let run = NewRun {
        seed,
        request: recorded.request.clone(),
        version: env!("CARGO_PKG_VERSION"),
        facts: recorded.facts_with(context),
        owner: Some(&run_owner::current(context.host)),
        plan,
        uuid: &uuid(),
        host: Some(context.host),
    };
    Ok(store.begin_run(&run)?)
}

/// Returns a random identity.
fn uuid() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    text.unwrap_or_default().trim().to_owned()
}

/// Marks a run as finished unless it was cancelled, and loads it: reports are made from the store only.
///
/// # Errors
/// The store cannot be written or read.
pub(crate) fn finish(
    store: &mut Store,
    number: RunId,
    context: &RunContext<'_>,
) -> Result<Run, Failure> {
    if context.interrupt.signal().is_none() {
        store.finish_run(number)?;
    }
    Ok(store.load(number)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::RecordedRequest;

    fn run(id: i64, operation: &str, milliseconds: Option<u64>) -> RunInfo {
        RunInfo {
            id: RunId(id),
            started_at: 1_000,
            finished_at: milliseconds.map(|time| 1_000 + time),
            request: RecordedRequest {
                operations: vec![operation.to_owned()],
                ..RecordedRequest::default()
            },
            ..RunInfo::default()
        }
    }

    #[test]
    fn the_last_finished_run_of_the_same_request_gives_the_expected_time() {
        let runs = [
            run(1, "a", Some(50)),
            run(2, "a", Some(70)),
            run(3, "a", None),
            run(4, "b", Some(90)),
            run(5, "a", None),
            run(6, "c", None),
        ];
        let of = |number| expected(&runs, RunId(number));
        assert_eq!(of(5), Some(Duration::from_millis(70)));
        assert_eq!(of(2), Some(Duration::from_millis(50)));
        assert_eq!(of(1), None);
        assert_eq!(of(6), None);
    }
}
