//! `trapline bisect`: finds the commit that changed a figure.

use crate::args::{BisectArgs, EnvironmentOptions};
use crate::session::{open_store, Session};
use crate::{gate, terminal};
use std::path::{Component, Path, PathBuf};
use trapline_environments::Settings;
use trapline_gate::search::{Next, Trial};
use trapline_gate::{forms, Comparison, Row};
use trapline_runner::bisect::{Bench, Bisection, Commit, Repository, Step};
use trapline_runner::exact::require_exact;
use trapline_runner::{Failure, Inventory, Status};

/// Searches, and prints each step and the result.
///
/// # Errors
/// The range of commits is invalid, or its first or last commit cannot be measured.
pub fn bisect(args: &BisectArgs) -> Result<Status, Failure> {
    require_exact(&args.environments)?;
    let parts = parts(args);
    if let Some(parts) = &parts {
        require_relative(parts)?;
    }
    let repository = Repository::open(&args.repo)?;
    let commits = repository.commits(&args.good, &args.bad)?;
    let options = &args.run_options;
    // The VMM does not exist before a commit is built.
    let session = Session::open(options, environment_options(args, None).inventory()?)?;
    let inventory = |worktree: &Path| inventory_of(args, worktree, parts.as_deref());
    let mut bench = Bench {
        worktree: repository.worktree(&commits[0])?,
        build: args.build.clone(),
        parts: parts.clone(),
        environments: args.environments.clone(),
        operations: gate::operations(&args.workloads),
        store: open_store(options)?,
        inventory: &inventory,
        context: session.context(),
    };
    let mut search = Bisection::start(&mut bench, &commits, args.tolerances.tolerances())?;
    print_ends(&commits, search.sought().len())?;
    if search.sought().is_empty() {
        terminal::print_text("no figure differs between these two: nothing to find\n")?;
        return Ok(Status::Failed);
    }
    loop {
        match search.step(&mut bench)? {
            Step::Found(found) => return print_result(&search, &commits, &found),
            Step::Tested {
                commit,
                trial,
                reason,
            } => print_step(commit, trial, &reason)?,
        }
    }
}

/// Default directory of the parts in the worktree.
const PARTS: &str = "target/dist";

/// Returns the directory of the parts in the worktree. `None` if commits build a VMM only, which is then
/// measured with the parts of this program.
fn parts(args: &BisectArgs) -> Option<PathBuf> {
    let builds_vmm = args.run_options.environment_options.vmm.is_some();
    let usual = || (!builds_vmm).then(|| PathBuf::from(PARTS));
    args.parts.clone().or_else(usual)
}

/// Returns the environments with the parts under test and the VMM of `worktree`.
fn inventory_of(
    args: &BisectArgs,
    worktree: &Path,
    parts: Option<&Path>,
) -> Result<Inventory, Failure> {
    let options = environment_options(args, Some(worktree));
    options.inventory_with(|settings| match parts {
        Some(parts) => Settings {
            parts: settings.parts.measuring(worktree.join(parts)),
            ..settings
        },
        None => settings,
    })
}

/// Returns the options with the VMM of `worktree`; without one there is no VMM.
fn environment_options(args: &BisectArgs, worktree: Option<&Path>) -> EnvironmentOptions {
    let options = &args.run_options.environment_options;
    let vmm = options.vmm.as_ref().zip(worktree);
    EnvironmentOptions {
        vmm: vmm.map(|(vmm, worktree)| vmm.in_directory(worktree)),
        ..options.clone()
    }
}

/// # Errors
/// `parts`, which is removed before each build, is not inside of the worktree.
fn require_relative(parts: &Path) -> Result<(), Failure> {
    let mut components = parts.components().peekable();
    let is_inside = components.peek().is_some()
        && components.all(|component| matches!(component, Component::Normal(_)));
    match is_inside {
        true => Ok(()),
        false => Err(Failure::usage(
            format!("--parts: not inside of the worktree: {}", parts.display()),
            "name a path like target/dist, from the top directory of the repository",
        )),
    }
}

fn print_ends(commits: &[Commit], changed: usize) -> Result<(), Failure> {
    let (from, to) = (&commits[0], &commits[commits.len() - 1]);
    let between = commits.len().saturating_sub(2);
    let figures = if changed == 1 { "figure" } else { "figures" };
    terminal::print_text(&format!(
        "good     {}  {}\nbad      {}  {}\n{changed} {figures} changed, {between} commits between\n",
        from.short(),
        from.subject,
        to.short(),
        to.subject,
    ))
}

fn print_step(commit: &Commit, trial: Trial, reason: &str) -> Result<(), Failure> {
    let word = match trial {
        Trial::Unchanged => "good",
        Trial::Changed => "bad",
        Trial::Untestable => "skipped",
    };
    let because = match reason {
        "" => String::new(),
        reason => format!("\n         {reason}"),
    };
    let (short, subject) = (commit.short(), &commit.subject);
    terminal::print_text(&format!("{word:<8} {short}  {subject}{because}\n"))
}

fn print_result(
    search: &Bisection<'_>,
    commits: &[Commit],
    found: &Next,
) -> Result<Status, Failure> {
    let (text, from, to, status) = match found {
        Next::FirstChanged(index) => {
            let commit = &commits[*index];
            let text = format!("\nfound: {}  {}\n", commit.hash, commit.subject);
            (text, index - 1, *index, Status::Done)
        }
        Next::Range(range) => {
            let (from, to) = (*range.start(), *range.end());
            let lines = commits[from..=to].iter();
            let lines = lines.map(|it| format!("  {}  {}\n", it.short(), it.subject));
            let title = "one of these, of which only the last can be measured";
            let text = format!("\n{title}:\n{}", lines.collect::<String>());
            (text, from - 1, to, Status::Failed)
        }
        Next::Try(_) => return Err(Failure::new("the search ended without a result")),
    };
    let compared = search.difference(from, to);
    let rows: Vec<&Row> = compared.iter().flat_map(Comparison::changes).collect();
    terminal::print_text(&format!("{text}{}", forms::figures(&rows)))?;
    Ok(status)
}
