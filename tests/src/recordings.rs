//! Recorded output of the commands in the documentation.
//!
//! `docs/recordings` has for each page, by its path, what each command of a page printed, with the versions that determine it. Pages are
//! rendered from it, and compared with it by `make test`, which starts no machine. `make docs` records again.

use crate::examples::{examples, Example};
use crate::root;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A command and its output.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// The shell command.
    pub command: String,
    /// The versions that determine the output, by name, and its date.
    pub made: BTreeMap<String, String>,
    /// Lines of standard output.
    pub output: Vec<String>,
}

/// Returns README, CHANGELOG and all pages below `docs`.
///
/// # Panics
/// A directory cannot be read.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    for directory in ["docs", "docs/internals"] {
        let entries = fs::read_dir(root().join(directory)).expect("directory exists");
        let files = entries.map(|entry| entry.expect("file is readable").path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|name| name == "md")));
    }
    pages
}

/// Returns the pages that have examples, in order.
///
/// # Panics
/// A page cannot be read.
pub fn pages_with_examples() -> Vec<PathBuf> {
    let mut pages = pages();
    pages.retain(|page| !examples_of(page).is_empty());
    pages.sort();
    pages
}

/// Returns the examples of a page.
///
/// # Panics
/// The page cannot be read.
pub fn examples_of(page: &Path) -> Vec<Example> {
    examples(page, &fs::read_to_string(page).expect("readable page"))
}

/// Returns the file of a page's recordings.
fn file(page: &Path) -> PathBuf {
    let page = page
        .strip_prefix(root())
        .expect("a page of this repository");
    root()
        .join("docs/recordings")
        .join(page)
        .with_extension("json")
}

/// Returns the recordings of a page, in its order; none if it has no file.
///
/// # Panics
/// The file is damaged.
pub fn read(page: &Path) -> Vec<Recording> {
    let text = fs::read(file(page)).unwrap_or_else(|_| b"[]".to_vec());
    serde_json::from_slice(&text)
        .unwrap_or_else(|error| panic!("{}: {error}", file(page).display()))
}

/// Writes the recordings of a page, if it has any.
///
/// # Panics
/// The file cannot be written.
pub fn write(page: &Path, recordings: &[Recording]) {
    let file = file(page);
    if recordings.is_empty() {
        // Nothing is removed if there is no file.
        let _ = fs::remove_file(file);
        return;
    }
    let text = serde_json::to_string_pretty(recordings).expect("strings only");
    fs::create_dir_all(file.parent().expect("a directory")).expect("writable directory");
    fs::write(&file, text + "\n").unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Returns the text of a page with the lines of its recordings.
///
/// # Errors
/// The examples that do not fit, each with what was recorded, and the recordings that no example has.
///
/// # Panics
/// The page cannot be read.
pub fn render(page: &Path, recordings: &[Recording]) -> Result<String, Vec<String>> {
    let text = fs::read_to_string(page).expect("readable page");
    let mut lines: Vec<&str> = text.lines().collect();
    let (mut rendered, mut wrong) = (Vec::new(), Vec::new());
    let mut unused = recordings.iter();
    for example in examples_of(page)
        .into_iter()
        .filter(|it| !it.output.is_empty())
    {
        match unused.next().filter(|it| it.command == example.command) {
            None => return Err(vec![format!("not recorded: {}", example.command)]),
            Some(recording) => match example.rendered(&recording.output) {
                Some(output) => rendered.push((example.lines, output)),
                None => wrong.push(misfit(&example, recording)),
            },
        }
    }
    wrong.extend(unused.map(|it| format!("recorded, but not on the page: {}", it.command)));
    if !wrong.is_empty() {
        return Err(wrong);
    }
    for (places, output) in &rendered {
        lines.splice(places.clone(), output.iter().map(String::as_str));
    }
    Ok(lines.join("\n") + "\n")
}

fn misfit(example: &Example, recording: &Recording) -> String {
    format!(
        "the text of {} differs:\n{}\nrecorded:\n{}",
        example.command,
        example.output.join("\n"),
        recording.output.join("\n")
    )
}
