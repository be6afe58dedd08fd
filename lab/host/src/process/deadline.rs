//! Deadlines of processes: by wall time, or by the CPU time that an emulator consumes.
//!
//! An emulated machine takes its CPU time, however long a loaded host makes it wait for that. Wall time only
//! detects an emulator that does not run at all.

use crate::usage::family_cpu_ns;
use crate::{Error, Limits};
use std::time::{Duration, Instant};

/// Wall time without progress after which an emulator has hung.
const HANG_TIMEOUT: Duration = Duration::from_secs(150);

/// Smallest CPU time that is progress. An idle emulator consumes less in [`HANG_TIMEOUT`].
const PROGRESS: Duration = Duration::from_millis(50);

/// A deadline that begins when it is created.
#[derive(Debug)]
pub struct Deadline {
    since: Instant,
    emulator: Option<Progress>,
}

/// CPU time of an emulator.
#[derive(Debug)]
struct Progress {
    pid: i32,
    /// CPU time at the creation of the deadline.
    start: Duration,
    /// CPU time at the last progress.
    last: Duration,
    /// Time of the last progress.
    at: Instant,
    hang_timeout: Duration,
}

impl Deadline {
    /// Returns a deadline by wall time.
    pub fn wall() -> Self {
        Self {
            since: Instant::now(),
            emulator: None,
        }
    }

    /// Returns a deadline by the CPU time of process `pid` and its children.
    pub fn cpu(pid: i32) -> Self {
        Self::with_hang_timeout(pid, HANG_TIMEOUT)
    }

    fn with_hang_timeout(pid: i32, hang_timeout: Duration) -> Self {
        let start = cpu_time(pid);
        let since = Instant::now();
        Self {
            since,
            emulator: Some(Progress {
                pid,
                start,
                last: start,
                at: since,
                hang_timeout,
            }),
        }
    }

    /// Returns the wall time since its creation.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::TimedOut`] with `output`, or the emulator has hung.
    pub fn check(&mut self, limits: &Limits, output: impl Fn() -> String) -> Result<(), Error> {
        match &mut self.emulator {
            None => limits.check(self.since.elapsed(), output),
            Some(progress) => {
                let consumed = progress.sample();
                limits.check(consumed.saturating_sub(progress.start), &output)?;
                progress.check(&output())
            }
        }
    }
}

impl Progress {
    fn sample(&mut self) -> Duration {
        let now = cpu_time(self.pid);
        if now >= self.last + PROGRESS {
            (self.last, self.at) = (now, Instant::now());
        }
        now
    }

    fn check(&self, output: &str) -> Result<(), Error> {
        if self.at.elapsed() < self.hang_timeout {
            return Ok(());
        }
        let seconds = self.hang_timeout.as_secs();
        let reason = format!("the emulator has hung: it consumed no CPU time for {seconds} s");
        Err(Error::Machine(
            [&reason, output.trim()].join("\n").trim_end().to_owned(),
        ))
    }
}

fn cpu_time(pid: i32) -> Duration {
    Duration::from_nanos(family_cpu_ns(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::process::{Child, Command};

    /// A shell that is killed when dropped.
    struct Shell(Child);

    impl Shell {
        fn run(script: &str) -> Self {
            let mut command = Command::new("/bin/sh");
            Self(command.args(["-c", script]).spawn().unwrap())
        }

        fn pid(&self) -> i32 {
            self.0.id() as i32
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Returns the error that ends the wait for a process.
    fn end(deadline: &mut Deadline, timeout: Duration) -> Error {
        let limits = Limits::timeout(timeout);
        loop {
            if let Err(error) = deadline.check(&limits, || "last words".to_owned()) {
                return error;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn busy_emulator_times_out_by_its_cpu_time() {
        let busy = Shell::run("while :; do :; done");
        let timeout = Duration::from_millis(300);
        let error = end(&mut Deadline::cpu(busy.pid()), timeout);
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(cpu_time(busy.pid()) >= timeout);
    }

    #[test]
    fn sleeping_emulator_has_hung() {
        let sleeping = Shell::run("exec sleep 1000");
        let mut deadline = Deadline::with_hang_timeout(sleeping.pid(), Duration::from_secs(1));
        let error = end(&mut deadline, Duration::from_millis(10)).to_string();
        expect![[r#"
            simulated machine failed: the emulator has hung: it consumed no CPU time for 1 s
            last words"#]]
        .assert_eq(&error);
        assert!(deadline.elapsed() >= Duration::from_secs(1));
    }

    #[test]
    fn wall_time_limits_other_processes() {
        let error = end(&mut Deadline::wall(), Duration::from_millis(20));
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    }
}
