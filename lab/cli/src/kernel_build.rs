//! `trapline kernel-build`: how long the kernel takes to build, by environment, number of
//! CPUs, and where those are.

use crate::args::{KernelBuildArgs, PlainFormat};
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::progress::Bar;
use crate::terminal;
use std::collections::BTreeMap;
use std::time::Duration;
use trapline_environments::kernel_build::{self, Built, Root};
use trapline_environments::{EnvError, Watch};
use trapline_plan::kernel_build::{Column, Size};
use trapline_plan::EnvironmentId;
use trapline_report::kernel_build::{json, table, Build, Done, Matrix, Outcome};

/// Builds, and shows.
///
/// # Errors
/// A part is missing, or output cannot be written.
pub fn kernel_build(args: &KernelBuildArgs) -> Result<Status, Failure> {
    let interrupt = Interrupt::watch()?;
    let lab = Lab::open(&args.simulated)?;
    let size: Size = args.size.into();
    let watch = Watch {
        patience: args
            .timeout
            .map_or_else(|| patience(size), Duration::from_secs),
        stop: interrupt.flag(),
    };
    let bar = Bar::new(planned(args), args.quiet);
    let mut work = Work {
        lab: &lab,
        size,
        watch: &watch,
        bar: &bar,
        root: None,
        facts: BTreeMap::new(),
    };
    let builds = work.all(args);
    let matrix = Matrix::new(size, builds, std::mem::take(&mut work.facts));
    bar.finish();
    match args.format {
        PlainFormat::Table => terminal::print_text(&table(&matrix, terminal::width()))?,
        PlainFormat::Json => terminal::print_json(&json(&matrix, env!("CARGO_PKG_VERSION")))?,
    }
    Ok(match interrupt.signal() {
        Some(signal) => Status::Interrupted(signal),
        None => status(&matrix),
    })
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

fn planned(args: &KernelBuildArgs) -> usize {
    let environments = args.environments();
    let builds = environments
        .iter()
        .map(|id| args.columns(*id).len() * args.boots(*id) as usize);
    builds.sum()
}

/// What is to be done, and with what.
struct Work<'a> {
    lab: &'a Lab,
    size: Size,
    watch: &'a Watch,
    bar: &'a Bar,
    /// Made when it is first needed.
    root: Option<Root>,
    facts: BTreeMap<String, String>,
}

impl Work<'_> {
    /// All builds, in rounds, so that a host that gets busy harms all alike; those that are
    /// done if somebody wants everything to stop.
    fn all(&mut self, args: &KernelBuildArgs) -> Vec<Build> {
        let environments = args.environments();
        let rounds = environments
            .iter()
            .map(|id| args.boots(*id))
            .max()
            .unwrap_or(0);
        let mut builds: Vec<Build> = Vec::new();
        for round in 0..rounds {
            for id in environments.iter().filter(|id| round < args.boots(**id)) {
                for column in args.columns(*id) {
                    let hopeless = |build: &Build| {
                        let same = (build.environment, build.column) == (*id, column);
                        same && !matches!(build.outcome, Outcome::Done(_))
                    };
                    if !builds.iter().any(hopeless) {
                        match self.one(*id, column) {
                            Ok(build) => builds.push(build),
                            Err(_stopped) => return builds,
                        }
                    }
                    self.bar.done();
                }
            }
        }
        builds
    }

    /// # Errors
    /// Somebody wants everything to stop.
    fn one(&mut self, environment: EnvironmentId, column: Column) -> Result<Build, EnvError> {
        self.bar.step(&format!("{environment} {column}"));
        let outcome = match self.why_not(environment, column) {
            Some(reason) => Outcome::Skipped(reason),
            None => match self.build(environment, column) {
                Ok(built) => Outcome::Done(self.note(environment, built)),
                Err(error @ EnvError::Stopped) => return Err(error),
                Err(EnvError::Missing(reason)) => Outcome::Skipped(reason),
                Err(error @ EnvError::Kernel(_)) => Outcome::Skipped(error.to_string()),
                Err(error) => Outcome::Failed(error.to_string()),
            },
        };
        Ok(Build {
            environment,
            column,
            outcome,
        })
    }

    fn why_not(&self, environment: EnvironmentId, column: Column) -> Option<String> {
        let misfit = kernel_build::misfit(environment, column);
        let not_ready = || self.lab.why_not(environment).map(str::to_owned);
        let root = || {
            let settings = self.lab.settings();
            let checked = kernel_build::check(&settings.cache, self.size);
            checked.err().map(|error| error.to_string())
        };
        misfit.or_else(not_ready).or_else(root)
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

    /// Keeps what is known about a build.
    fn note(&mut self, environment: EnvironmentId, built: Built) -> Done {
        let of_all = |name: &str| name.starts_with("build-");
        for (name, value) in built.facts {
            let name = match of_all(&name) {
                true => name,
                false => format!("{environment} {name}"),
            };
            self.facts.insert(name, value);
        }
        Done {
            own_ns: built.own_ns,
            took: built.took,
            objects: built.proof.objects,
            proof: built.proof.hash,
        }
    }
}
