//! Executes kernel builds. Each build is stored when it is over, so that a plan can be resumed.

use crate::context::RunContext;
use crate::event::RunEvent;
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::request_text::RecordedRequest;
use crate::resume::{self, Resume};
use crate::run;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use trapline_environments::kernel_build::{self, Built, Root};
use trapline_environments::{EnvError, Limits};
use trapline_model::kernel_build::{
    Build, BuildFigures, BuildOutcome, BuildRequest, Column, PlannedBuild, Size,
};
use trapline_model::EnvironmentId;
use trapline_store::{Run, RunId, Store};

/// Executes the builds of `request` and stores them. With the text of a plan, an unfinished run of it
/// may be resumed.
///
/// # Errors
/// The store cannot be written or read.
pub fn perform(
    store: &mut Store,
    mut request: BuildRequest,
    plan: Option<(&str, Resume)>,
    context: &RunContext<'_>,
    deadline: Option<Instant>,
) -> Result<Run, Failure> {
    let recorded = RecordedRequest::of_builds(&request, context);
    let unfinished = match plan {
        Some((_, resume)) => resume::unfinished(store, &recorded, resume, context)?,
        None => None,
    };
    let number = match unfinished {
        Some(run) => {
            request.seed = run.seed;
            run.number
        }
        None => {
            let text = plan.map(|(text, _)| text);
            run::create(store, request.seed, recorded, text, context)?
        }
    };
    execute(store, number, &request, context, deadline)?;
    run::finish(store, number, context)
}

/// Executes the builds of a run that are not stored yet.
fn execute(
    store: &mut Store,
    number: RunId,
    request: &BuildRequest,
    context: &RunContext<'_>,
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    let stored = store.load(number)?.builds;
    let mut remaining = request.expand();
    remaining.retain(|planned| stored.iter().all(|build| build.planned != *planned));
    let watch = Limits {
        timeout: context.timeout.unwrap_or(default_timeout(request.size)),
        stop: context.interrupt.flag(),
    };
    let builder = Builder {
        context,
        size: request.size,
        watch: &watch,
        root: None,
        hopeless: stored.iter().filter_map(hopeless).collect(),
    };
    let boots = remaining.len();
    context.events.handle(RunEvent::Started { boots });
    let executed = builder.execute(&remaining, deadline, &mut |build| {
        Ok(store.add_build(number, build)?)
    });
    context.events.handle(RunEvent::Finished);
    executed
}

/// Returns the limit for one build: many times what it takes on hardware, for environments that
/// translate every instruction.
fn default_timeout(size: Size) -> Duration {
    Duration::from_secs(match size {
        Size::Mini => 1_200,
        Size::Tiny => 2 * 3_600,
        Size::Def => 24 * 3_600,
    })
}

/// Returns the reason, with its remedy, why a build is impossible on this host, if it is.
pub fn unavailable_reason(
    inventory: &Inventory,
    size: Size,
    environment: EnvironmentId,
    column: Column,
) -> Option<String> {
    let unsupported = kernel_build::unsupported_reason(environment, column);
    let unavailable = || inventory.unavailable(environment).map(ToString::to_string);
    let root = || {
        let checked = kernel_build::check(&inventory.settings().cache, size);
        checked.err().map(|error| error.to_string())
    };
    unsupported.or_else(unavailable).or_else(root)
}

/// Returns the cell of a build that failed, which another build would repeat.
fn hopeless(build: &Build) -> Option<(EnvironmentId, Column)> {
    let done = matches!(build.outcome, BuildOutcome::Done(_));
    (!done).then_some((build.planned.environment, build.planned.column))
}

/// Executes builds of one size.
struct Builder<'a> {
    context: &'a RunContext<'a>,
    size: Size,
    watch: &'a Limits,
    /// Created on first use.
    root: Option<Root>,
    /// Cells that are not tried again.
    hopeless: BTreeSet<(EnvironmentId, Column)>,
}

impl Builder<'_> {
    /// Executes `builds` and passes each to `store`, until cancellation. Starts no round after the
    /// deadline.
    fn execute(
        mut self,
        builds: &[PlannedBuild],
        deadline: Option<Instant>,
        store: &mut dyn FnMut(&Build) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut round = None;
        for planned in builds {
            let is_first_of_round = round.replace(planned.round) != Some(planned.round);
            if is_first_of_round && deadline.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            let cell = (planned.environment, planned.column);
            if !self.hopeless.contains(&cell) {
                let Ok(build) = self.build(*planned) else {
                    break;
                };
                self.hopeless.extend(hopeless(&build));
                store(&build)?;
            }
            self.context.events.handle(RunEvent::StepDone);
        }
        Ok(())
    }

    /// # Errors
    /// The run is cancelled.
    fn build(&mut self, planned: PlannedBuild) -> Result<Build, EnvError> {
        let (environment, column) = (planned.environment, planned.column);
        let event = RunEvent::BuildStarted(environment, column);
        self.context.events.handle(event);
        let not_done = |outcome| (outcome, Default::default());
        let inventory = self.context.inventory;
        let (outcome, facts) = match unavailable_reason(inventory, self.size, environment, column) {
            Some(reason) => not_done(BuildOutcome::Skipped(reason)),
            None => match self.make(environment, column) {
                Ok(built) => (BuildOutcome::Done(done(&built)), built.facts),
                Err(error @ EnvError::Stopped) => return Err(error),
                Err(EnvError::Unavailable(missing)) => {
                    not_done(BuildOutcome::Skipped(missing.to_string()))
                }
                Err(error) => not_done(BuildOutcome::Failed(error.with_remedy())),
            },
        };
        Ok(Build {
            planned,
            outcome,
            facts,
        })
    }

    fn make(&mut self, environment: EnvironmentId, column: Column) -> Result<Built, EnvError> {
        let settings = self.context.inventory.settings();
        let root = match self.root.take() {
            Some(root) => root,
            None => Root::prepared(settings, self.size, self.watch)?,
        };
        let built = kernel_build::build(settings, environment, &root, column, self.watch);
        self.root = Some(root);
        built
    }
}

fn done(built: &Built) -> BuildFigures {
    BuildFigures {
        own_ns: built.own_ns,
        took: built.took,
        objects: built.proof.objects,
        proof: built.proof.hash.clone(),
    }
}
