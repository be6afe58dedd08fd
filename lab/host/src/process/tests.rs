use super::*;
use std::os::fd::AsRawFd;
use std::time::Instant;
use trapline_protocol::UsageProbe;

/// Longer than any of this takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a shell that hangs once it has written, as often as needed with more time to write before its time limit ends.
/// Returns it with what it wrote, and the error.
fn hang(command: &Command) -> (Process, Vec<u8>, Error) {
    let mut timeout = Duration::from_millis(300);
    loop {
        let mut process = Process::start(command).unwrap();
        let mut output = Recorder::default();
        let error = process.wait(&mut output, &Limits::timeout(timeout));
        if !output.console.is_empty() || timeout > PATIENCE {
            return (process, output.console, error.unwrap_err());
        }
        timeout *= 4;
    }
}

#[derive(Default)]
struct Recorder {
    console: Vec<u8>,
    errors: Vec<u8>,
    events: Vec<u8>,
    limit: Option<usize>,
}

impl OutputHandler for Recorder {
    fn console(&mut self, bytes: &[u8], _: u64, _: &mut dyn UsageProbe) {
        self.console.extend(bytes);
    }
    fn errors(&mut self, bytes: &[u8]) {
        self.errors.extend(bytes);
    }
    fn events(&mut self, bytes: &[u8]) {
        self.events.extend(bytes);
    }
    fn check(&mut self) -> Result<(), Error> {
        match self.limit {
            Some(limit) if self.console.len() > limit => Err(Error::Flooded {
                output: String::new(),
            }),
            _ => Ok(()),
        }
    }
    fn last_output(&self) -> String {
        String::from_utf8_lossy(&self.console).into_owned()
    }
}

fn shell(script: &str) -> Process {
    let command = Command::new("/bin/sh").arg("-c").arg(script);
    Process::start(&command).unwrap()
}

/// Returns whether a process is running or a zombie.
fn exists(pid: i32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn output_and_status_are_read() {
    let mut process = shell("printf out; printf err >&2; printf ev >&3; exit 33");
    let mut recorder = Recorder::default();
    let limits = Limits::timeout(PATIENCE);
    let exited = process.wait(&mut recorder, &limits).unwrap();
    let output = (
        &recorder.console[..],
        &recorder.errors[..],
        &recorder.events[..],
    );
    assert_eq!(output, (&b"out"[..], &b"err"[..], &b"ev"[..]));
    assert_eq!(exited.status.code(), Some(33));
    assert!(process.exec() < exited.end);
    assert!(!exists(process.started.pid), "not reaped");
}

#[test]
fn hanging_process_is_killed_and_its_last_output_reported() {
    let script = "printf working; exec sleep 1000";
    let (process, _, error) = hang(&Command::new("/bin/sh").arg("-c").arg(script));
    let pid = process.started.pid;
    let error = error.to_string();
    let (first, output) = error.split_once('\n').unwrap();
    assert!(first.starts_with("guest timed out after "), "{first}");
    assert!(
        first.ends_with(" s and was killed; last output:"),
        "{first}"
    );
    assert_eq!(output, "  working");
    drop(process);
    assert!(!exists(pid));
}

#[test]
fn emulator_may_wait_longer_than_its_time_limit() {
    let command = Command::new("/bin/sh").arg("-c").arg("sleep 0.5; exit 5");
    let mut process = Process::start(&command.as_emulator()).unwrap();
    let limits = Limits::timeout(Duration::from_millis(300));
    let exited = process.wait(&mut Recorder::default(), &limits).unwrap();
    assert_eq!(exited.status.code(), Some(5));
}

#[test]
fn stop_request_ends_the_wait() {
    let mut process = shell("exec sleep 1000");
    let limits = Limits::timeout(Duration::from_secs(1000));
    limits
        .stop
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let error = process.wait(&mut Recorder::default(), &limits).unwrap_err();
    assert!(matches!(error, Error::Stopped));
}

#[test]
fn failing_handler_ends_the_wait() {
    let mut process = shell("exec yes");
    let mut recorder = Recorder {
        limit: Some(1 << 20),
        ..Recorder::default()
    };
    let limits = Limits::timeout(Duration::from_secs(60));
    let error = process.wait(&mut recorder, &limits).unwrap_err();
    assert!(matches!(error, Error::Flooded { .. }));
}

#[test]
fn closed_streams_do_not_end_the_wait() {
    let mut process = shell("exec >&- 2>&-; sleep 0.3; exit 5");
    let limits = Limits::timeout(PATIENCE);
    let exited = process.wait(&mut Recorder::default(), &limits).unwrap();
    assert_eq!(exited.status.code(), Some(5));
}

#[test]
fn signal_of_a_killed_process_is_reported() {
    let mut process = shell("kill -SEGV $$");
    let limits = Limits::timeout(PATIENCE);
    let exited = process.wait(&mut Recorder::default(), &limits).unwrap();
    assert_eq!(exited.status.signal(), Some(libc::SIGSEGV));
}

#[test]
fn terminate_returns_when_the_process_ends() {
    let mut process = shell("exec sleep 1000");
    let start = Instant::now();
    process.terminate(PATIENCE);
    assert!(start.elapsed() < PATIENCE);
    assert!(process.started.pidfd.as_raw_fd() > 2);
}

#[test]
fn passed_file_is_readable_by_its_descriptor() {
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, b"contents").unwrap();
    let command = Command::new("/bin/cat").arg_file(file.into());
    let mut process = Process::start(&command).unwrap();
    let mut recorder = Recorder::default();
    let limits = Limits::timeout(PATIENCE);
    process.wait(&mut recorder, &limits).unwrap();
    assert_eq!(recorder.console, b"contents");
}

#[test]
fn processes_that_left_the_group_are_killed_with_a_foreign_program() {
    let script = "setsid sleep 1000 & echo $!; wait";
    let command = Command::new("/bin/sh").arg("-c").arg(script).as_foreign();
    let (process, output, error) = hang(&command);
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let text = String::from_utf8(output).unwrap();
    let pid: i32 = text.trim().parse().unwrap();
    assert!(exists(pid));
    drop(process);
    let deadline = Instant::now() + PATIENCE;
    while runs(pid) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!runs(pid));
}

/// Returns whether a process runs and is no zombie.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}
