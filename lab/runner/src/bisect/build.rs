//! Builds a commit with the user's command, in a process group of its own that is killed on
//! cancellation, and when this process is killed.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use rustix::process::{kill_process_group, waitid, Pid, Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trapline_environments::{tool, Guard};

/// Interval at which a build is polled.
const POLL: Duration = Duration::from_millis(20);

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Number of last lines reported of a failed build.
const LAST_LINES: usize = 5;

/// Builds with `command` in `directory`, guarded by `agent`. Without one, a `kill -9` of this process leaves what the
/// shell has started. The inner error is the failure of the build.
///
/// # Errors
/// The shell or the guard cannot be started, or nothing can be written.
pub fn build(
    command: &str,
    directory: &Path,
    agent: Option<&Path>,
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
    let group = Pid::from_child(&child);
    let guard = agent.map(|agent| Guard::start(agent, group.as_raw_nonzero().get()));
    let waited = match guard.transpose() {
        Ok(guard) => wait(group, guard, interrupt),
        Err(error) => {
            // The group may have ended since.
            let _ = kill_process_group(group, Signal::KILL);
            Err(error)
        }
    };
    let status = child.wait().map_err(failed)?;
    waited.map_err(failed)?;
    if status.success() {
        return Ok(Ok(()));
    }
    let output = excerpt(&mut log).unwrap_or_default();
    Ok(Err(format!("build failed: {status}: {output}")))
}

/// Waits for the end of the leader of `group`, which is not reaped, and ends the guard.
fn wait(group: Pid, mut guard: Option<Guard>, interrupt: &Interrupt) -> io::Result<()> {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let mut requested: Option<Instant> = None;
    while waitid(WaitId::Pid(group), ended)?.is_none() {
        if interrupt.is_requested() {
            // It would kill the group at the first signal.
            guard = None;
            let since = *requested.get_or_insert_with(Instant::now);
            let signal = if since.elapsed() < GRACE {
                Signal::TERM
            } else {
                Signal::KILL
            };
            // The group may have ended since.
            let _ = kill_process_group(group, signal);
        }
        std::thread::sleep(POLL);
    }
    drop(guard);
    Ok(())
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
        build(command, directory.path(), None, interrupt).unwrap()
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
