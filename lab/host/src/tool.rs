//! Runs tools of the host, such as apt-get, so that they end with this process.
//!
//! A tool leads a process group. The kernel kills it when this process dies, and a requested stop kills the
//! group.

use crate::{memory_file, Error};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{
    getppid, kill_process_group, pidfd_open, set_parent_process_death_signal, Pid, PidfdFlags,
    Signal,
};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The stop request of this process, if it handles signals.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Interval of checks for a stop request.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Makes all tools end when `stop` is set. Only the first call of a process has an effect.
pub fn end_on(stop: Arc<AtomicBool>) {
    let _ = STOP.set(stop);
}

fn is_stopped() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// A running tool. Dropping it kills its group.
struct Tool(Child);

impl Drop for Tool {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Runs a tool without input, and returns its output.
///
/// # Errors
/// [`Error::Stopped`], or the tool cannot be run.
pub fn output(command: &mut Command) -> Result<Output, Error> {
    output_with_input(command, "")
}

/// Runs a tool without input, and returns its output. Kills it after `limit`.
///
/// # Errors
/// See [`output`]; also [`Error::TimedOut`].
pub fn output_within(command: &mut Command, limit: Duration) -> Result<Output, Error> {
    collect(command, "", Some(limit))
}

/// Runs a tool with `input` on standard input, and returns its output.
///
/// # Errors
/// See [`output`].
pub fn output_with_input(command: &mut Command, input: &str) -> Result<Output, Error> {
    collect(command, input, None)
}

fn collect(command: &mut Command, input: &str, limit: Option<Duration>) -> Result<Output, Error> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut stdin = memory_file("stdin", input.as_bytes())?;
    stdin.rewind().map_err(Error::file("stdin"))?;
    command.stdin(stdin);
    let mut files = [memory_file("stdout", &[])?, memory_file("stderr", &[])?];
    let program = command.get_program().to_owned();
    let started = |error| Error::start(&program)(error);
    for (number, file) in files.iter().enumerate() {
        let file = file.try_clone().map_err(started)?;
        match number {
            0 => command.stdout(file),
            _ => command.stderr(file),
        };
    }
    let status = Tool::start(command).and_then(|mut tool| tool.wait(deadline));
    let status = status.map_err(started)?.ok_or(match limit {
        Some(after) if !is_stopped() => Error::TimedOut {
            after,
            output: String::new(),
        },
        _ => Error::Stopped,
    })?;
    let [stdout, stderr] = files.each_mut().map(read);
    Ok(Output {
        status,
        stdout: stdout.map_err(Error::file(&program))?,
        stderr: stderr.map_err(Error::file(&program))?,
    })
}

/// Runs two tools, the output of one being the input of the other. Returns status and errors of the one that
/// failed, or of the second.
///
/// # Errors
/// See [`output`].
pub fn pipe(from: &mut Command, to: &mut Command) -> Result<Output, Error> {
    let programs = [&*from, &*to].map(|it| it.get_program().to_owned());
    let failed = |error| Error::start(&programs[0])(error);
    let mut stderr = memory_file("stderr", &[])?;
    let (reader, writer) = io::pipe().map_err(failed)?;
    let errors = || stderr.try_clone().map_err(failed);
    from.stdin(Stdio::null()).stdout(writer).stderr(errors()?);
    to.stdin(reader).stdout(Stdio::null()).stderr(errors()?);
    let mut first = Tool::start(from).map_err(failed)?;
    let mut second = Tool::start(to).map_err(Error::start(&programs[1]))?;
    // Their ends of the pipe are closed, so that either one notices the end of the other.
    from.stdout(Stdio::null());
    to.stdin(Stdio::null());
    let written = first.wait(None).map_err(failed)?.ok_or(Error::Stopped)?;
    let read = second.wait(None).map_err(failed)?.ok_or(Error::Stopped)?;
    Ok(Output {
        status: if written.success() { read } else { written },
        stdout: Vec::new(),
        stderr: self::read(&mut stderr).map_err(Error::file(&programs[0]))?,
    })
}

impl Tool {
    /// Starts a tool as leader of a process group.
    fn start(command: &mut Command) -> io::Result<Self> {
        command.process_group(0);
        die_with_parent(command);
        command.spawn().map(Self)
    }

    /// Waits for its end; `None` after a stop request or the deadline.
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<Option<ExitStatus>> {
        if has_ended(&self.0, deadline)? {
            self.0.wait().map(Some)
        } else {
            Ok(None)
        }
    }
}

/// Makes the kernel kill the process of `command` when the calling thread ends.
pub fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let die = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::ErrorKind::Interrupted.into())
        }
    };
    // SAFETY: the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(die) };
}

/// Waits for the end of a tool. Returns false after a stop request or the deadline.
fn has_ended(tool: &Child, deadline: Option<Instant>) -> io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(tool), PidfdFlags::empty())?;
    while !is_stopped() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut ended, Some(&POLL_INTERVAL)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn output_and_status_are_returned() {
        let script = "printf out; printf err >&2; exit 3";
        let output = output(Command::new("/bin/sh").args(["-c", script])).unwrap();
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"out"[..], &b"err"[..])
        );
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn output_of_one_tool_is_input_of_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("copy");
        let run = |from: &str, to: &str| {
            let shell = |script: &str| {
                let mut command = Command::new("/bin/sh");
                command.args(["-c", script]).current_dir(directory.path());
                command
            };
            pipe(&mut shell(from), &mut shell(to)).unwrap()
        };
        assert!(run("echo text", "cat > copy").status.success());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text\n");
        let failed = run("echo bad >&2; exit 3", "cat");
        assert_eq!(
            (failed.status.code(), &failed.stderr[..]),
            (Some(3), &b"bad\n"[..])
        );
        assert_eq!(run("echo text", "cat; exit 4").status.code(), Some(4));
    }

    #[test]
    fn tool_is_killed_after_its_limit() {
        let script = "sleep 60 & echo $!; wait";
        let mut command = Command::new("/bin/sh");
        let start = Instant::now();
        let result = output_within(command.args(["-c", script]), Duration::from_millis(50));
        assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn missing_tool_is_an_error() {
        let error = output(&mut Command::new("/nonexistent/tool")).unwrap_err();
        expect!["cannot start /nonexistent/tool: No such file or directory (os error 2)"]
            .assert_eq(&error.to_string());
    }
}
