//! Building a commit: a command of the user's, in a process group of its own, so
//! that all of it ends when the search is ended.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use rustix::process::{kill_process_group, Pid, Signal};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a build is looked after.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a build that was asked to end may take to do so.
const GRACE: Duration = Duration::from_secs(5);

/// Last lines of a failed build that are told.
const LAST_LINES: usize = 5;

/// Builds with `command` in `directory`; `Err` with why it did not, inside.
///
/// # Errors
/// The shell cannot be started, or nothing can be written.
pub fn build(
    command: &str,
    directory: &Path,
    interrupt: &Interrupt,
) -> Result<Result<(), String>, Failure> {
    let failed = |error: io::Error| Failure::new(format!("a build cannot be started: {error}"));
    let mut log = tempfile::tempfile().map_err(failed)?;
    let both = || log.try_clone().map(Stdio::from);
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(both().map_err(failed)?)
        .stderr(both().map_err(failed)?)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let status = wait(&mut child, interrupt).map_err(failed)?;
    if status.success() {
        return Ok(Ok(()));
    }
    let words = last_lines(&mut log).unwrap_or_default();
    Ok(Err(format!("it does not build ({status}): {words}")))
}

fn wait(child: &mut Child, interrupt: &Interrupt) -> io::Result<ExitStatus> {
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt.is_asked() {
            let since = *asked.get_or_insert_with(Instant::now);
            let signal = match since.elapsed() < GRACE {
                true => Signal::TERM,
                false => Signal::KILL,
            };
            // It may have ended since; then there is nobody to tell.
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
        std::thread::sleep(GLANCE);
    }
}

fn last_lines(log: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    log.rewind()?;
    log.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    Ok(last.join(" / ").chars().map(plain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(command: &str, interrupt: &Interrupt) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        build(command, directory.path(), interrupt).unwrap()
    }

    #[test]
    fn a_build_that_fails_is_told_with_its_last_words() {
        let interrupt = Interrupt::default();
        assert_eq!(built("test -d .", &interrupt), Ok(()));
        let told = built("echo one; echo two >&2; exit 7", &interrupt).unwrap_err();
        assert_eq!(told, "it does not build (exit status: 7): one / two");
    }

    #[test]
    fn a_build_ends_with_the_search_and_so_does_what_it_started() {
        let interrupt = Interrupt::default();
        interrupt.ask();
        let start = Instant::now();
        assert!(built("sleep 100 & sleep 100", &interrupt).is_err());
        assert!(start.elapsed() < GRACE);
    }
}
