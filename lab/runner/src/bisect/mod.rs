//! Finds the commit that changed an exact figure. Each commit is checked out into a worktree of its own,
//! built, and measured once with this lab and the commit's parts; figures are exact, so once suffices.

mod build;
mod repository;

pub use repository::{Commit, Repository, Worktree};

use crate::context::RunContext;
use crate::event::RunEvent;
use crate::exact;
use crate::failure::{Failure, Status};
use crate::inventory::Inventory;
use crate::profiles::{Profiler, Profiles};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trapline_environments::Part;
use trapline_gate::search::{Next, Search, Trial};
use trapline_gate::{compare, Baseline, Comparison, Row, Tolerances, Verdict};
use trapline_model::{Aim, Config, Operations, EXACT_BOOTS};
use trapline_stats::Summary;
use trapline_store::Store;

/// Builds and measures commits.
pub struct Bench<'a> {
    /// Directory of the commit under test.
    pub worktree: Worktree<'a>,
    /// Shell command that builds the parts.
    pub build: String,
    /// Directory of the parts, relative to the worktree; `None` if commits do not build them.
    pub parts: Option<PathBuf>,
    /// Files that commits build besides the parts, relative to the worktree.
    pub files: Vec<PathBuf>,
    /// Configurations to measure.
    pub configs: Vec<Config>,
    /// Operations to measure.
    pub operations: Operations,
    /// Receives the observations.
    pub store: Store,
    /// Returns the environments with the programs of a worktree.
    pub inventory: &'a dyn Fn(&Path) -> Result<Inventory, Failure>,
    /// Cancellation and progress.
    pub context: RunContext<'a>,
}

impl Bench<'_> {
    /// Returns the figures of a commit. The inner error is the reason why it has none.
    fn figures(&mut self, commit: &Commit) -> Result<Result<Summary, Failure>, Failure> {
        match self.build(commit)? {
            Ok(inventory) => self.measure(&inventory),
            Err(failure) => Ok(Err(failure.status(Status::Unmeasured))),
        }
    }

    /// Checks a commit out, builds it, and returns the environments with its programs. The inner error is the reason
    /// why there are none.
    fn build(&self, commit: &Commit) -> Result<Result<Inventory, Failure>, Failure> {
        self.remove_products()?;
        self.worktree.check_out(commit)?;
        let directory = self.worktree.path();
        let task = format!("building {}", commit.short());
        self.context.events.handle(RunEvent::TaskStarted(&task));
        let parts = &self.context.inventory.settings().parts;
        let agent = parts.get(Part::Agent).ok();
        let built = build::build(
            &self.build,
            &directory,
            agent.as_deref(),
            self.context.interrupt,
        );
        self.context.events.handle(RunEvent::Finished);
        let built = built?;
        self.context.interrupt.check()?;
        Ok(match built {
            Ok(()) => (self.inventory)(&directory),
            Err(reason) => Err(Failure::new(reason)),
        })
    }

    /// Removes what an earlier commit has built, which must not be measured. Files of the repository come back with
    /// the next commit.
    fn remove_products(&self) -> Result<(), Failure> {
        let inside = |path: &PathBuf| self.worktree.path().join(path);
        let files = self.files.iter().map(inside);
        for file in files.filter(|file| file.is_file()) {
            removed(&file, std::fs::remove_file(&file))?;
        }
        let parts = self.parts.iter().map(inside);
        for parts in parts.filter(|parts| parts.exists()) {
            removed(&parts, std::fs::remove_dir_all(&parts))?;
        }
        Ok(())
    }

    fn measure(&mut self, inventory: &Inventory) -> Result<Result<Summary, Failure>, Failure> {
        let context = RunContext {
            inventory,
            ..self.context
        };
        match exact::measure(
            &mut self.store,
            Aim::Report,
            &self.configs,
            &self.operations,
            None,
            &context,
        ) {
            Err(failure) if failure.status == Status::Unmeasured => Ok(Err(failure)),
            Err(failure) => Err(failure),
            Ok(run) => Ok(Ok(trapline_stats::summarise(&run.observations))),
        }
    }

    /// Returns the figures of the first or last commit, which must have some.
    fn figures_of_end(&mut self, commit: &Commit) -> Result<Summary, Failure> {
        let about_commit = |failure: Failure| failure.about(commit.short());
        let summary = self.figures(commit)?.map_err(about_commit)?;
        exact::require_figures(&summary, &self.configs).map_err(about_commit)?;
        Ok(summary)
    }

    /// Builds a commit and returns the profiles of `configs`.
    fn profiles(&self, commit: &Commit, configs: &[Config]) -> Result<Profiles, Failure> {
        let inventory = self.build(commit)??;
        let profiler = Profiler {
            context: RunContext {
                inventory: &inventory,
                ..self.context
            },
            stacks: false,
            lines: false,
            boots: EXACT_BOOTS,
        };
        Ok(profiler.profile(configs, self.operations.guest)?.profiles)
    }
}

/// A search in progress.
pub struct Bisection<'a> {
    commits: &'a [Commit],
    tolerances: Tolerances,
    /// Figures of the first commit.
    first: Baseline,
    /// Differences between the first and the last commit: the subject of the search.
    sought: Vec<Row>,
    /// Figures by index of the commit.
    known: BTreeMap<usize, Summary>,
    search: Search,
}

/// One step of a search.
pub enum Step<'a> {
    /// A commit was tested.
    Tested {
        /// The commit.
        commit: &'a Commit,
        /// The result.
        trial: Trial,
        /// Why the result is unknown; else empty.
        reason: String,
    },
    /// The search is over.
    Found(Next),
}

impl<'a> Bisection<'a> {
    /// Measures the first and the last commit.
    ///
    /// # Errors
    /// One of them cannot be measured, there is only one commit, or both have the same programs.
    pub fn start(
        bench: &mut Bench<'_>,
        commits: &'a [Commit],
        tolerances: Tolerances,
    ) -> Result<Self, Failure> {
        let last = commits.len() - 1;
        let search = Search::new(commits.len())
            .ok_or_else(|| Failure::new("there is only one commit").status(Status::Usage))?;
        let before = bench.figures_of_end(&commits[0])?;
        let after = bench.figures_of_end(&commits[last])?;
        let first = baseline(&before);
        let compared = compare(&first, &after, &tolerances);
        if compared.causes.is_empty() {
            return Err(same_programs(&commits[0], &commits[last]));
        }
        Ok(Self {
            commits,
            tolerances,
            first,
            sought: compared.changes().cloned().collect(),
            known: BTreeMap::from([(0, before), (last, after)]),
            search,
        })
    }

    /// Returns the figures that differ between the first and the last commit.
    pub fn sought(&self) -> &[Row] {
        &self.sought
    }

    /// Tests the next commit, if one is left.
    ///
    /// # Errors
    /// Building or measuring is impossible, or cancelled.
    pub fn step(&mut self, bench: &mut Bench<'_>) -> Result<Step<'a>, Failure> {
        let index = match self.search.next() {
            Next::Try(index) => index,
            found => return Ok(Step::Found(found)),
        };
        let commit = &self.commits[index];
        let (trial, reason) = match bench.figures(commit)? {
            Err(failure) => (Trial::Untestable, failure.to_string()),
            Ok(summary) => {
                let result = self.compare_with_first(&summary);
                self.known.insert(index, summary);
                result
            }
        };
        self.search.record(index, trial);
        Ok(Step::Tested {
            commit,
            trial,
            reason,
        })
    }

    /// Returns whether the sought figures of a commit equal those of the first.
    fn compare_with_first(&self, summary: &Summary) -> (Trial, String) {
        let compared = compare(&self.first, summary, &self.tolerances);
        let mut result = (Trial::Unchanged, String::new());
        for sought in &self.sought {
            let is_same =
                |row: &&Row| row.config == sought.config && row.operation == sought.operation;
            match trial(sought, compared.rows.iter().find(is_same)) {
                (Trial::Changed, reason) => return (Trial::Changed, reason),
                (Trial::Untestable, reason) => result = (Trial::Untestable, reason),
                (Trial::Unchanged, _) => {}
            }
        }
        result
    }

    /// Returns the differences between two measured commits.
    pub fn difference(&self, before: usize, after: usize) -> Option<Comparison> {
        let (before, after) = (self.known.get(&before)?, self.known.get(&after)?);
        Some(compare(&baseline(before), after, &self.tolerances))
    }

    /// Adds to the differences between two measured commits the functions that gained or lost instructions. Builds and
    /// measures both again, while instructions are counted.
    ///
    /// # Errors
    /// A profile cannot be made.
    pub fn explain(
        &self,
        bench: &Bench<'_>,
        (before, after): (usize, usize),
        compared: &mut Comparison,
    ) -> Result<(), Failure> {
        let explained = compared.changes().filter(|row| exact::has_profile(row));
        let configs: BTreeSet<_> = explained.map(|row| row.config.clone()).collect();
        let configs: Vec<_> = configs.into_iter().collect();
        if configs.is_empty() {
            return Ok(());
        }
        let mut baseline = baseline(&self.known[&before]);
        baseline.add_profiles(&bench.profiles(&self.commits[before], &configs)?);
        compared.explain(&baseline, &bench.profiles(&self.commits[after], &configs)?);
        Ok(())
    }
}

fn removed(path: &Path, result: std::io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| Failure::new(format!("cannot remove {}: {error}", path.display())))
}

fn same_programs(first: &Commit, last: &Commit) -> Failure {
    let (first, last) = (first.short(), last.short());
    Failure::usage(
        format!("the measured programs of {first} and {last} are identical"),
        "--build has to write the programs that are measured: those in --parts, or the VMM or --kernel, whose path \
         is relative to the top directory and has a slash, as ./my-vmm",
    )
}

fn baseline(summary: &Summary) -> Baseline {
    Baseline::new(summary, &Operations::default(), env!("CARGO_PKG_VERSION"))
}

fn trial(sought: &Row, row: Option<&Row>) -> (Trial, String) {
    let reason = |row: &Row| row.reason.clone().unwrap_or_default();
    match row {
        // Like the first commit, it has no such figure.
        None => (Trial::Unchanged, String::new()),
        Some(row) => match row.verdict {
            Verdict::Same | Verdict::Tolerated | Verdict::Skipped => {
                (Trial::Unchanged, String::new())
            }
            Verdict::Undetermined => (Trial::Untestable, reason(row)),
            // A temporary failure is not the sought change.
            Verdict::Vanished if sought.verdict != Verdict::Vanished => {
                (Trial::Untestable, reason(row))
            }
            _ => (Trial::Changed, String::new()),
        },
    }
}
