//! `trapline kernel-build`: how long the kernel takes to build, by environment, number of
//! CPUs, and where those are. Each build is stored when it is over, so that a plan's can go
//! on where they were cut off.

use crate::args::{Format, KernelBuildArgs, PlainFormat};
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::progress::Bar;
use crate::resume::Asked;
use crate::run::{self, Means};
use crate::{outcome, resume, terminal};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use trapline_environments::kernel_build::{self, Built, Root};
use trapline_environments::{EnvError, Watch};
use trapline_model::kernel_build::{Build, Column, Done, Outcome, PlannedBuild, Request, Size};
use trapline_model::EnvironmentId;
use trapline_report::kernel_build::{json, table, Matrix};
use trapline_store::{Run, RunId, Store};

/// Builds, stores and shows.
///
/// # Errors
/// A part is missing, the store cannot be written, or output cannot.
pub fn kernel_build(args: &KernelBuildArgs) -> Result<Status, Failure> {
    let mut store = run::open_store(&args.manner)?;
    let interrupt = Interrupt::watch()?;
    let lab = Lab::open(&args.manner.simulated)?;
    let means = Means::new(&lab, &interrupt, &args.manner);
    let request = args.request();
    let asked = Asked::of_builds(&request, &lab);
    let number = run::note(&mut store, request.seed, asked, &means)?;
    let run = go_on(&mut store, number, &request, &means)?;
    show(&run, request.size, args.format, &interrupt)
}

/// Does the builds of a plan, and those only that an earlier run of it has left.
/// `unfinished` is `None` if it shall begin anew, else the seed that the plan gives, if any.
///
/// # Errors
/// As [`kernel_build`].
pub fn of_plan(
    store: &mut Store,
    mut request: Request,
    means: &Means<'_>,
    unfinished: Option<Option<u64>>,
    format: Format,
) -> Result<Status, Failure> {
    // Nobody waits for hours to hear that.
    let format = form(format)?;
    let asked = Asked::of_builds(&request, means.lab);
    let unfinished = match unfinished {
        Some(seed) => resume::unfinished(store, &asked, seed)?,
        None => None,
    };
    let number = match unfinished {
        Some(left) => {
            request.seed = left.seed;
            left.number
        }
        None => run::note(store, request.seed, asked, means)?,
    };
    let run = go_on(store, number, &request, means)?;
    show(&run, request.size, format, means.interrupt)
}

/// Does what is left of a run.
fn go_on(
    store: &mut Store,
    number: RunId,
    request: &Request,
    means: &Means<'_>,
) -> Result<Run, Failure> {
    let failed = |error: trapline_store::StoreError| Failure::from_error(&error);
    let before = store.load(number).map_err(failed)?.builds;
    let mut left = request.expand();
    left.retain(|planned| before.iter().all(|build| build.planned != *planned));
    let bar = Bar::new(left.len(), means.manner.quiet);
    let usual = patience(request.size);
    let watch = Watch {
        patience: means.manner.timeout.map_or(usual, Duration::from_secs),
        stop: means.interrupt.flag(),
    };
    let work = Work {
        lab: means.lab,
        size: request.size,
        watch: &watch,
        bar: &bar,
        root: None,
        hopeless: before.iter().filter_map(hopeless).collect(),
    };
    let done = work.all(&left, means.deadline, &mut |build| {
        store.add_build(number, build).map_err(failed)
    });
    bar.finish();
    done?;
    run::end(store, number, means.interrupt)
}

fn show(
    run: &Run,
    size: Size,
    format: PlainFormat,
    interrupt: &Interrupt,
) -> Result<Status, Failure> {
    let matrix = Matrix::new(size, &run.builds);
    print(&matrix, format)?;
    Ok(match interrupt.signal() {
        Some(signal) => {
            outcome::tell_interrupted(run);
            Status::Interrupted(signal)
        }
        None => status(&matrix),
    })
}

/// Prints the builds of a run, and nothing else, to standard output.
///
/// # Errors
/// Output cannot be written.
pub fn print(matrix: &Matrix, format: PlainFormat) -> Result<(), Failure> {
    match format {
        PlainFormat::Table => terminal::print_text(&table(matrix, terminal::width())),
        PlainFormat::Json => terminal::print_json(&json(matrix, env!("CARGO_PKG_VERSION"))),
    }
}

/// The same form, as far as builds are printed in it.
///
/// # Errors
/// They are not.
pub fn form(format: Format) -> Result<PlainFormat, Failure> {
    match format {
        Format::Table => Ok(PlainFormat::Table),
        Format::Json => Ok(PlainFormat::Json),
        _ => {
            let told = Failure::new("--format: builds of kernels are not printed in that form");
            Err(told.help("choose table or json").status(Status::Usage))
        }
    }
}

fn status(matrix: &Matrix) -> Status {
    match (matrix.is_good(), matrix.wavers()) {
        (false, _) => Status::Failed,
        (true, true) => Status::Undetermined,
        (true, false) => Status::Done,
    }
}

/// Many times what it takes on hardware, for those that translate every instruction.
fn patience(size: Size) -> Duration {
    Duration::from_secs(match size {
        Size::Mini => 1_200,
        Size::Tiny => 2 * 3_600,
        Size::Def => 24 * 3_600,
    })
}

/// Why something cannot be built there on this host, and what to do about that.
pub fn why_not(
    lab: &Lab,
    size: Size,
    environment: EnvironmentId,
    column: Column,
) -> Option<String> {
    let misfit = kernel_build::misfit(environment, column);
    let not_ready = || lab.why_not(environment).map(str::to_owned);
    let root = || {
        let checked = kernel_build::check(&lab.settings().cache, size);
        checked.err().map(|error| error.to_string())
    };
    misfit.or_else(not_ready).or_else(root)
}

/// The cell of a build that another build would only repeat.
fn hopeless(build: &Build) -> Option<(EnvironmentId, Column)> {
    let done = matches!(build.outcome, Outcome::Done(_));
    (!done).then_some((build.planned.environment, build.planned.column))
}

/// What builds are done with.
struct Work<'a> {
    lab: &'a Lab,
    size: Size,
    watch: &'a Watch,
    bar: &'a Bar,
    /// Made when it is first needed.
    root: Option<Root>,
    /// Cells that need not be tried again.
    hopeless: BTreeSet<(EnvironmentId, Column)>,
}

impl Work<'_> {
    /// Does these builds and keeps what comes of each, until somebody wants everything to
    /// stop. No round is begun after the deadline.
    fn all(
        mut self,
        builds: &[PlannedBuild],
        deadline: Option<Instant>,
        keep: &mut dyn FnMut(&Build) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut round = None;
        for planned in builds {
            let begins = round.replace(planned.round) != Some(planned.round);
            if begins && deadline.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            let cell = (planned.environment, planned.column);
            if !self.hopeless.contains(&cell) {
                let Ok(build) = self.one(*planned) else {
                    break;
                };
                self.hopeless.extend(hopeless(&build));
                keep(&build)?;
            }
            self.bar.done();
        }
        Ok(())
    }

    /// # Errors
    /// Somebody wants everything to stop.
    fn one(&mut self, planned: PlannedBuild) -> Result<Build, EnvError> {
        let PlannedBuild {
            environment,
            column,
            ..
        } = planned;
        self.bar.step(&format!("{environment} {column}"));
        let not_done = |outcome| (outcome, Default::default());
        let (outcome, facts) = match why_not(self.lab, self.size, environment, column) {
            Some(reason) => not_done(Outcome::Skipped(reason)),
            None => match self.build(environment, column) {
                Ok(built) => (Outcome::Done(done(&built)), built.facts),
                Err(error @ EnvError::Stopped) => return Err(error),
                Err(EnvError::Missing(reason)) => not_done(Outcome::Skipped(reason)),
                Err(error @ EnvError::Kernel(_)) => not_done(Outcome::Skipped(error.to_string())),
                Err(error) => not_done(Outcome::Failed(error.to_string())),
            },
        };
        Ok(Build {
            planned,
            outcome,
            facts,
        })
    }

    fn build(&mut self, environment: EnvironmentId, column: Column) -> Result<Built, EnvError> {
        let settings = self.lab.settings();
        let root = match self.root.take() {
            Some(root) => root,
            None => Root::prepared(settings, self.size, self.watch)?,
        };
        let built = kernel_build::build(settings, environment, &root, column, self.watch);
        self.root = Some(root);
        built
    }
}

fn done(built: &Built) -> Done {
    Done {
        own_ns: built.own_ns,
        took: built.took,
        objects: built.proof.objects,
        proof: built.proof.hash.clone(),
    }
}
