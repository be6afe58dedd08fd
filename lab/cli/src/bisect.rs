//! `trapline bisect`: finds the commit that changed a figure.

use crate::args::{BisectArgs, EnvironmentOptions};
use crate::session::{open_store, Session};
use crate::{gate, terminal};
use std::path::{Component, Path, PathBuf};
use trapline_environments::{CustomVmm, Settings};
use trapline_gate::search::{Next, Trial};
use trapline_gate::Row;
use trapline_model::layers::OPTION_VMM;
use trapline_model::settings::Value;
use trapline_model::EnvironmentId;
use trapline_report::check as formats;
use trapline_runner::bisect::{Bench, Bisection, Commit, Repository, Step};
use trapline_runner::exact::require_exact;
use trapline_runner::{Failure, Inventory, Status};

/// Searches, and prints each step and the result.
///
/// # Errors
/// The range of commits is invalid, or its first or last commit cannot be measured.
pub fn bisect(args: &BisectArgs) -> Result<Status, Failure> {
    let environments = environments(args);
    let operations = match args.workloads.as_slice() {
        [] => gate::default_exits(&environments).into(),
        chosen => gate::operations(chosen),
    };
    require_exact(&environments, &operations)?;
    let parts = parts(args, &environments);
    if let Some(parts) = &parts {
        require_relative(parts)?;
    }
    let repository = Repository::open(&args.repo)?;
    let commits = repository.commits(&args.good, &args.bad)?;
    let options = &args.run_options;
    let session = Session::open(options, environment_options(args, None).inventory()?)?;
    let inventory = |worktree: &Path| inventory_of(args, worktree, parts.as_deref());
    let mut bench = Bench {
        worktree: repository.worktree(&commits[0])?,
        build: args.build.clone(),
        parts: parts.clone(),
        files: built_files(args, &environments),
        configs: operations.configs(&environments),
        operations,
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
            Step::Found(found) => return print_result(&search, &bench, &commits, &found),
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

/// Returns the environments to compare.
fn environments(args: &BisectArgs) -> Vec<EnvironmentId> {
    let has_vmm = args.environment_options.files.vmm.is_some();
    match (args.environments.as_slice(), has_vmm) {
        ([], true) => vec![EnvironmentId::SIM_CUSTOM],
        ([], false) => vec![EnvironmentId::SIM_KVM],
        (chosen, _) => chosen.to_vec(),
    }
}

/// Returns the directory of the parts in the worktree. `None` if commits build a VMM or a kernel only, which is then
/// measured with the parts of this program.
fn parts(args: &BisectArgs, environments: &[EnvironmentId]) -> Option<PathBuf> {
    let builds_vmm = environments.iter().any(|id| id.is_custom());
    let builds_kernel = kernel_files(args).next().is_some();
    let usual = || (!builds_vmm && !builds_kernel).then(|| PathBuf::from(PARTS));
    args.parts.clone().or_else(usual)
}

/// Returns the paths in the worktree that commands of custom VMMs and `--kernel` name. One that a build does not write is
/// missing then, and not that of an earlier commit.
fn built_files(args: &BisectArgs, environments: &[EnvironmentId]) -> Vec<PathBuf> {
    let vmms = environments.iter().filter_map(|id| match id.custom_vmm()? {
        OPTION_VMM => args.environment_options.files.vmm.clone(),
        name => CustomVmm::defined(name, id.stack().guest).ok(),
    });
    let of_vmms = vmms.flat_map(|vmm| vmm.relative_paths());
    of_vmms
        .chain(kernel_files(args).map(|(_, path)| path))
        .collect()
}

/// Returns the settings whose relative paths are those of each commit: the file of a kernel, which has a slash, unlike the
/// name of a package, and the directory of its modules.
fn kernel_files(args: &BisectArgs) -> impl Iterator<Item = (&'static str, PathBuf)> + '_ {
    let settings = &args.environment_options.files.machine.0;
    let text = |name| settings.text(name).unwrap_or_default();
    let names: &[&str] = if text("kernel").contains('/') {
        &["kernel", "modules"]
    } else {
        &[]
    };
    let paths = names
        .iter()
        .map(move |name| (*name, PathBuf::from(text(name))));
    paths.filter(|(_, path)| path.is_relative() && !path.as_os_str().is_empty())
}

/// Returns the environments with the parts under test and the VMMs of `worktree`.
fn inventory_of(
    args: &BisectArgs,
    worktree: &Path,
    parts: Option<&Path>,
) -> Result<Inventory, Failure> {
    environment_options(args, Some(worktree)).inventory_with(|settings| Settings {
        parts: match parts {
            Some(parts) => settings.parts.measuring(worktree.join(parts)),
            None => settings.parts,
        },
        vmm: args.environment_options.files.vmm.clone(),
        vmm_directory: worktree.to_owned(),
        ..settings
    })
}

/// Returns the options with the kernel of `worktree`, without the VMM. Neither exists before a commit is built.
fn environment_options(args: &BisectArgs, worktree: Option<&Path>) -> EnvironmentOptions {
    let mut options = args.environment_options.clone();
    options.files.vmm = None;
    for (name, path) in kernel_files(args) {
        let path = worktree.map(|worktree| worktree.join(path).display().to_string());
        options.files.machine.0.replace(name, path.map(Value::Text));
    }
    options
}

/// # Errors
/// `parts`, which is removed before each build, is not inside of the worktree.
fn require_relative(parts: &Path) -> Result<(), Failure> {
    let mut components = parts.components().peekable();
    let is_inside = components.peek().is_some()
        && components.all(|component| matches!(component, Component::Normal(_)));
    if is_inside {
        Ok(())
    } else {
        Err(Failure::usage(
            format!("--parts: not inside of the worktree: {}", parts.display()),
            "name a path like target/dist, from the top directory of the repository",
        ))
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
    bench: &Bench<'_>,
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
    terminal::print_text(&text)?;
    let Some(mut compared) = search.difference(from, to) else {
        return Ok(status);
    };
    if status == Status::Done {
        if let Err(failure) = search.explain(bench, (from, to), &mut compared) {
            let reason = failure.one_line();
            let note = "the functions that gained or lost are unknown";
            bench.context.note(&format!("{note}: {reason}"));
        }
    }
    let rows: Vec<&Row> = compared.changes().collect();
    terminal::print_text(&formats::figures(&rows))?;
    bench.context.interrupt.check()?;
    Ok(status)
}
