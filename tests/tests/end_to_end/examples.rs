//! The commands of the documentation print what its pages show.
//!
//! `TRAPLINE_BLESS=1` writes the digits printed now into the pages.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use trapline_tests::examples::{examples, Difference, Example};
use trapline_tests::{has_qemu, parts, root, skip};

/// Runs the commands of one page in order, in a directory with the plans of the repository and a store of their own.
struct Shell {
    directory: TempDir,
}

impl Shell {
    fn new() -> Self {
        let directory = TempDir::new().expect("temporary directory");
        let link = |target: PathBuf, name: &str| {
            std::os::unix::fs::symlink(target, directory.path().join(name)).expect("new link");
        };
        link(root().join("plans"), "plans");
        fs::create_dir(directory.path().join("target")).expect("new directory");
        link(parts(), "target/dist");
        Self { directory }
    }

    fn run(&self, command: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", parts().display());
        let output = Command::new("bash")
            .args(["-c", command])
            .current_dir(self.directory.path())
            .env("PATH", path)
            .env("XDG_DATA_HOME", self.directory.path())
            .env("COLUMNS", "80")
            .output()
            .expect("bash starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Returns the reason why digits differ from the repository's on this machine, if there is one: another kernel, QEMU or
/// toolchain.
fn other_surroundings() -> Option<String> {
    let baseline = root().join("baselines/sim-kvm.json");
    let check = format!(
        "trapline check --format json --baseline {}",
        baseline.display()
    );
    let json: Value = serde_json::from_str(&Shell::new().run(&check)).ok()?;
    let causes = json["causes"].as_array()?;
    let cause = causes.iter().find(|cause| cause["around"] == true)?;
    Some(format!(
        "the documentation was made with another {}",
        cause["fact"]
    ))
}

/// Checks all examples of a page.
fn check(page: &Path) {
    let text = fs::read_to_string(page).expect("readable page");
    let all = examples(page, &text);
    assert!(!all.is_empty(), "{} has no example", page.display());
    let shell = Shell::new();
    let mut updates = BTreeMap::new();
    for example in all {
        let printed = shell.run(&example.command);
        match example.check(&printed) {
            Ok(()) => println!("{} figures: {}", example.figures(), example.command),
            Err(difference) => updates.extend(differs(&example, difference, &printed)),
        }
    }
    if !updates.is_empty() {
        write(page, &text, updates);
    }
}

/// Handles an example whose output differs. Returns its new lines if they are to be written.
fn differs(
    example: &Example,
    difference: Difference,
    printed: &str,
) -> Option<(usize, Vec<String>)> {
    if std::env::var_os("TRAPLINE_BLESS").is_some() {
        let updated = example.updated(printed);
        let updated =
            updated.unwrap_or_else(|_| panic!("edit the text of {example:?}:\n{printed}"));
        return Some((example.lines.start, updated));
    }
    if difference == Difference::Digits {
        if let Some(reason) = other_surroundings() {
            skip(&example.command, &reason);
            return None;
        }
    }
    panic!("{difference:?} differ from {example:#?}, printed:\n{printed}");
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
        check(&root().join("README.md"));
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn commands_of_pages_print_what_they_show() {
    if has_qemu("commands of the documentation") {
        pages_with_examples("docs")
            .iter()
            .for_each(|page| check(page));
    }
}
