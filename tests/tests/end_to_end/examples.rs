//! The commands of the documentation print what its pages show.
//!
//! `TRAPLINE_BLESS=1` writes the digits printed now into the pages. An example that differs is skipped if this machine
//! lacks one of its environments, or has another kernel, QEMU or toolchain than the baselines of
//! Debian 12, where the pages were made.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use tempfile::TempDir;
use trapline_model::EXACT_BOOTS;
use trapline_tests::examples::{examples, Difference, Example};
use trapline_tests::{has_qemu, parts, root, skip};

/// Runs the commands of one page in order, in a directory with the plans of the repository and a store of their own.
struct Shell {
    directory: TempDir,
}

impl Shell {
    fn new() -> Self {
        // The path of a VMM on the simulated machine is that of the host, and figures depend on it.
        let directory = TempDir::new_in("/tmp").expect("temporary directory");
        let link = |target: PathBuf, name: &str| {
            std::os::unix::fs::symlink(target, directory.path().join(name)).expect("new link");
        };
        link(root().join("plans"), "plans");
        fs::create_dir(directory.path().join("target")).expect("new directory");
        link(parts(), "target/dist");
        Self { directory }
    }

    /// Runs the command of an example. Only output that names the number of boots needs the usual number: that boots
    /// have the same digits is tested for each emulator, and documented digits are those of an earlier boot.
    fn run_example(&self, example: &Example) -> Output {
        let names_boots = example.output.iter().any(|line| line.contains("boots"));
        let boots = if names_boots { EXACT_BOOTS } else { 1 };
        self.run(&format!(
            "export TRAPLINE_EXACT_BOOTS={boots}; {}",
            example.command
        ))
    }

    fn run(&self, command: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let parts = self.directory.path().join("target/dist");
        let path = format!("{}:{path}", parts.display());
        Command::new("bash")
            .args(["-c", command])
            .current_dir(self.directory.path())
            .env("PATH", path)
            .env("XDG_DATA_HOME", self.directory.path())
            .env("COLUMNS", "80")
            .stdin(Stdio::null())
            .output()
            .expect("bash starts")
    }

    /// Returns the JSON that a command prints.
    fn json(&self, command: &str) -> Option<Value> {
        serde_json::from_slice(&self.run(command).stdout).ok()
    }
}

/// Returns an environment of the example that cannot be measured on this machine, with the reason.
fn missing_environment(example: &Example) -> Option<String> {
    let list = Shell::new().json("trapline list --format json")?;
    let environments = list["environments"].as_array()?;
    let missing = environments.iter().find(|environment| {
        let name = environment["name"].as_str().unwrap_or_default();
        environment["ready"] == false && !name.ends_with("custom") && example.names(name)
    })?;
    Some(format!("{}: {}", missing["name"], missing["reason"]))
}

/// Returns the reason why output differs from the repository's on this machine, if there is one: another kernel, QEMU or
/// toolchain.
fn other_surroundings() -> Option<String> {
    let baseline = root().join("baselines/debian-12/sim-kvm.json");
    let check = format!(
        "trapline check --format json --baseline {}",
        baseline.display()
    );
    let json = Shell::new().json(&check)?;
    let causes = json["causes"].as_array()?;
    let cause = causes.iter().find(|cause| cause["around"] == true)?;
    Some(format!(
        "the documentation was made with another {}",
        cause["fact"]
    ))
}

/// Checks all examples of a page. Returns what is wrong with them.
fn check(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("readable page");
    let all = examples(page, &text);
    assert!(!all.is_empty(), "{} has no example", page.display());
    let shell = Shell::new();
    let (mut updates, mut wrong) = (BTreeMap::new(), Vec::new());
    println!("{}", page.display());
    for example in all {
        let start = Instant::now();
        let output = shell.run_example(&example);
        let printed = String::from_utf8_lossy(&output.stdout);
        let seconds = start.elapsed().as_secs_f64();
        let (figures, command) = (example.figures(), &example.command);
        println!("{figures} figures, {seconds:.1} s: {command}");
        if example.output.is_empty() {
            wrong.extend(failure(&example, &output));
        } else if let Err(difference) = example.check(&printed) {
            match differs(&example, difference, &printed) {
                Ok(update) => updates.extend(update),
                Err(message) => wrong.push(message),
            }
        }
    }
    if !updates.is_empty() {
        write(page, &text, updates);
    }
    wrong
}

/// Checks the exit status of an example without output. Returns what is wrong with it.
fn failure(example: &Example, output: &Output) -> Option<String> {
    if output.status.success() {
        return None;
    }
    let Some(reason) = missing_environment(example) else {
        return Some(format!("{} failed: {output:?}", example.command));
    };
    skip(&example.command, &reason);
    None
}

/// Handles an example whose output differs. Returns its new lines if they are to be written.
///
/// # Errors
/// It differs, with the example and the output.
fn differs(
    example: &Example,
    difference: Difference,
    printed: &str,
) -> Result<Option<(usize, Vec<String>)>, String> {
    if let Some(reason) = missing_environment(example) {
        skip(&example.command, &reason);
        return Ok(None);
    }
    if std::env::var_os("TRAPLINE_BLESS").is_some() {
        let updated = example.updated(printed);
        let updated =
            updated.map_err(|_| format!("edit the text of {example:#?}, printed:\n{printed}"))?;
        return Ok(Some((example.lines.start, updated)));
    }
    if let Some(reason) = other_surroundings() {
        skip(&example.command, &reason);
        return Ok(None);
    }
    Err(format!(
        "{difference:?} differ from {example:#?}, printed:\n{printed}"
    ))
}

fn assert_right(pages: &[PathBuf]) {
    let found = |wrong: &String| {
        // At once, and not only if all other tests end: these take minutes.
        let _ = writeln!(std::io::stderr(), "{wrong}");
    };
    let wrong = pages.iter().flat_map(|page| check(page)).inspect(found);
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn write(page: &Path, text: &str, updates: BTreeMap<usize, Vec<String>>) {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (start, output) in updates {
        lines.splice(start..start + output.len(), output.iter().cloned());
    }
    fs::write(page, lines.join("\n") + "\n").expect("writable page");
}

/// Returns the pages of a directory that have examples.
fn pages_with_examples(directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(directory)).expect("directory of pages");
    let pages = entries.map(|entry| entry.expect("readable entry").path());
    let pages = pages.filter(|page| page.extension().is_some_and(|it| it == "md"));
    let has_examples = |page: &PathBuf| {
        let text = fs::read_to_string(page).expect("readable page");
        !examples(page, &text).is_empty()
    };
    pages.filter(has_examples).collect()
}

#[test]
fn commands_of_the_readme_print_what_it_shows() {
    if has_qemu("commands of the README") {
        assert_right(&[root().join("README.md")]);
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn commands_of_pages_print_what_they_show() {
    if has_qemu("commands of the documentation") {
        assert_right(&pages_with_examples("docs"));
    }
}
