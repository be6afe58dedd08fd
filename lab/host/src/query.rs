//! Programs that report versions, capabilities or packages and exit. Each query is run once per process,
//! since every environment needs the same answers.

use crate::Error;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Program and arguments.
type Query = (PathBuf, Vec<String>);

static OUTPUTS: Mutex<BTreeMap<Query, Output>> = Mutex::new(BTreeMap::new());

/// Returns the output of `program` with `arguments` and `input` on standard input.
///
/// # Errors
/// It does not start.
pub fn output(program: &Path, arguments: &[&str], input: &str) -> Result<Output, Error> {
    let words = arguments.iter().map(|word| (*word).to_owned());
    let query = (program.to_owned(), words.collect());
    let mut outputs = OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = outputs.get(&query) {
        return Ok(known.clone());
    }
    let output = run(program, arguments, input).map_err(|source| Error::Start {
        program: program.to_owned(),
        source,
    })?;
    outputs.insert(query, output.clone());
    Ok(output)
}

fn run(program: &Path, arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        // Bochs would look for its plugins there.
        .env_remove("LTDL_LIBRARY_PATH")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Fails if the program exited already; the caller checks its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_run_once() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let script = format!("echo run >> {}; cat", log.display());
        let ask = |argument| output(Path::new("/bin/sh"), &["-c", &script, argument], "input\n");
        assert_eq!(ask("a").unwrap().stdout, b"input\n");
        assert_eq!(ask("a").unwrap().stdout, b"input\n");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "run\n");
        ask("b").unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "run\nrun\n");
    }
}
