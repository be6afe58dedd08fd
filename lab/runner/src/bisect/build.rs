//! Builds a commit with the user's command, in a process group of its own that is killed on
//! cancellation.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use rustix::process::{kill_process_group, Pid, Signal};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use trapline_environments::tool;

/// Interval at which a build is polled.
const POLL: Duration = Duration::from_millis(20);

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Number of last lines reported of a failed build.
const LAST_LINES: usize = 5;

/// Builds with `command` in `directory`. The inner error is the failure of the build.
///
/// # Errors
/// The shell cannot be started, or nothing can be written.
pub fn build(
    command: &str,
    directory: &Path,
    interrupt: &Interrupt,
) -> Result<Result<(), String>, Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot start a build: {error}"));
    let mut log = tempfile::tempfile().map_err(failed)?;
    let both = || log.try_clone().map(Stdio::from);
    let mut shell = Command::new("sh");
    tool::die_with_parent(&mut shell);
    let mut child = shell
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
    let output = excerpt(&mut log).unwrap_or_default();
    Ok(Err(format!("build failed: {status}: {output}")))
}

fn wait(child: &mut Child, interrupt: &Interrupt) -> io::Result<ExitStatus> {
    let mut requested: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt.is_requested() {
            let since = *requested.get_or_insert_with(Instant::now);
            let signal = match since.elapsed() < GRACE {
                true => Signal::TERM,
                false => Signal::KILL,
            };
            // The group may have ended since.
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the first line with the word "error", in which compilers give the cause, and the last lines.
fn excerpt(log: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    log.rewind()?;
    log.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let (earlier, last) = lines.split_at(lines.len().saturating_sub(LAST_LINES));
    let is_error = |line: &&str| line.to_lowercase().contains("error");
    let cause = earlier.iter().copied().find(is_error);
    let shown: Vec<&str> = cause.into_iter().chain(last.iter().copied()).collect();
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    Ok(shown.join(" / ").chars().map(plain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(command: &str, interrupt: &Interrupt) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        build(command, directory.path(), interrupt).unwrap()
    }

    #[test]
    fn a_failed_build_is_reported_with_its_last_lines() {
        let interrupt = Interrupt::default();
        assert_eq!(built("test -d .", &interrupt), Ok(()));
        let failure = built("echo one; echo two >&2; exit 7", &interrupt).unwrap_err();
        assert_eq!(failure, "build failed: exit status: 7: one / two");
    }

    #[test]
    fn cause_of_a_failed_build_is_reported() {
        let command = "echo 'a.c:1: error: no such'; echo 'b.c:2: error: neither'; seq 9; exit 2";
        let failure = built(command, &Interrupt::default()).unwrap_err();
        let expected = "build failed: exit status: 2: a.c:1: error: no such / 5 / 6 / 7 / 8 / 9";
        assert_eq!(failure, expected);
    }

    #[test]
    fn cancellation_kills_the_process_group() {
        let interrupt = Interrupt::default();
        interrupt.request();
        let start = Instant::now();
        assert!(built("sleep 100 & sleep 100", &interrupt).is_err());
        assert!(start.elapsed() < GRACE);
    }
}
