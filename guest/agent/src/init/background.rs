//! Background loads, and the scheduling policy of launched programs.
//!
//! A load must make progress before a program is launched, and must still run after it. Its work in
//! between is reported. It ends with the machine.

use super::script::{Load, WorkReport};
use crate::processes::program::in_memory;
use crate::sys::wait_readable;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use trapline_abi::job::LOAD_PREFIX;
use trapline_spawn::sched::{self, SchedPolicy};
use trapline_spawn::{Program, Started};

/// Running loads and the scheduling policy.
#[derive(Default)]
pub struct Background {
    loads: Vec<Running>,
    policy: Option<SchedPolicy>,
}

struct Running {
    name: String,
    unit: String,
    report: WorkReport,
    started: Started,
    /// Standard output, if it is the count.
    count: File,
    before: State,
}

#[derive(Clone, Copy, Default)]
struct State {
    done: u64,
    cpu_ns: u64,
}

/// Maximum number of checks for progress of a load, every 10 ms.
const MAX_CHECKS: u32 = 6000;

impl Background {
    /// Starts a load and waits until it makes progress.
    pub fn start(&mut self, load: &Load<'_>) -> io::Result<()> {
        let running = Running::start(load)?;
        running.wait_for_progress()?;
        self.loads.push(running);
        Ok(())
    }

    /// Sets the scheduling policy of programs launched later.
    pub fn set_policy(&mut self, policy: SchedPolicy) {
        self.policy = Some(policy);
    }

    /// Applies the policy to a launched program, and starts counting the work of the loads.
    pub fn begin(&mut self, started: &Started) -> io::Result<()> {
        for load in &mut self.loads {
            load.before = load.state();
        }
        match self.policy {
            Some(policy) => sched::set(started.pid, policy),
            None => Ok(()),
        }
    }

    /// Returns the work of each load since [`Self::begin`], one line per load.
    ///
    /// # Errors
    /// A load has exited, or made no progress.
    pub fn report(&self) -> io::Result<String> {
        let reports: io::Result<Vec<_>> = self.loads.iter().map(Running::describe).collect();
        let numbered = (0..).zip(reports?);
        let lines = numbered.map(|(number, report)| format!("{LOAD_PREFIX}{number}-{report}\n"));
        Ok(lines.collect())
    }
}

impl Running {
    fn start(load: &Load<'_>) -> io::Result<Self> {
        let mut program = Program::new(Path::new(load.program))?;
        for argument in &load.arguments {
            program.argument(argument)?;
        }
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let console = File::options().write(true).open("/dev/console")?;
        let count = match load.report {
            WorkReport::Count => in_memory(c"count", 0).ok_or_else(io::Error::last_os_error)?,
            WorkReport::Exits => null.try_clone()?,
        };
        for end in [&null, &count, &console, &null] {
            program.descriptor(end.as_fd())?;
        }
        Ok(Self {
            name: load.name.to_owned(),
            unit: load.unit.to_owned(),
            report: load.report,
            started: trapline_spawn::start(&program)?,
            count,
            before: State::default(),
        })
    }

    fn wait_for_progress(&self) -> io::Result<()> {
        for _ in 0..MAX_CHECKS {
            self.check()?;
            if self.done() > 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(self.failure("makes no progress"))
    }

    fn check(&self) -> io::Result<()> {
        if wait_readable(&[self.started.pidfd.as_fd()], 0)? {
            Err(self.failure("has exited"))
        } else {
            Ok(())
        }
    }

    fn failure(&self, what: &str) -> io::Error {
        io::Error::other(format!("load {} {what}", self.name))
    }

    fn done(&self) -> u64 {
        match self.report {
            WorkReport::Count => {
                let mut number = [0; 8];
                let read = self.count.read_exact_at(&mut number, 0);
                read.map_or(0, |()| u64::from_le_bytes(number))
            }
            WorkReport::Exits => exits_of(self.started.pid).unwrap_or(0),
        }
    }

    fn state(&self) -> State {
        State {
            done: self.done(),
            cpu_ns: cpu_ns(self.started.pid).unwrap_or(0),
        }
    }

    fn describe(&self) -> io::Result<String> {
        self.check()?;
        let State { done, cpu_ns } = self.state();
        let (done, us) = (
            done - self.before.done.min(done),
            (cpu_ns - self.before.cpu_ns.min(cpu_ns)) / 1000,
        );
        let Self { name, unit, .. } = self;
        match self.report {
            WorkReport::Exits if done == 0 => Err(self.failure("made no progress")),
            _ if us == 0 => Err(self.failure("made no progress")),
            _ => Ok(format!("{name} {done} {unit}, {us} us of CPU time")),
        }
    }
}

/// Reads the number of exits of a VMM's guest from KVM's debugfs.
fn exits_of(pid: i32) -> Option<u64> {
    let machines = fs::read_dir("/sys/kernel/debug/kvm").ok()?;
    let prefix = format!("{pid}-");
    let is_guest = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    let machine = machines.flatten().find(is_guest)?;
    let text = fs::read_to_string(machine.path().join("exits")).ok()?;
    text.trim().parse().ok()
}

/// Returns the CPU time of a process and its running children, in nanoseconds.
fn cpu_ns(pid: i32) -> Option<u64> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let of_children = children.split_ascii_whitespace();
    let of_children = of_children.filter_map(|child| run_ns(child.parse().ok()?));
    Some(run_ns(pid)? + of_children.sum::<u64>())
}

/// Returns the CPU time of a process: the first number (Documentation/scheduler/sched-stats.rst).
fn run_ns(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(script: &'static str, report: WorkReport) -> Load<'static> {
        Load {
            name: "cpu",
            unit: "turns",
            report,
            program: "/bin/sh",
            arguments: vec!["-c", script],
        }
    }

    #[test]
    fn work_is_counted_and_an_exited_load_is_an_error() {
        let busy = "printf 12345678; while :; do :; done";
        let running = Running::start(&load(busy, WorkReport::Count)).unwrap();
        running.wait_for_progress().unwrap();
        assert_eq!(running.done(), u64::from_le_bytes(*b"12345678"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(running.describe().unwrap().starts_with("cpu "));
        running.started.kill_group();
        running.started.reap().unwrap();
        let error = running.describe().unwrap_err().to_string();
        assert_eq!(error, "load cpu has exited");
    }

    #[test]
    fn a_load_without_progress_is_an_error() {
        let running = Running::start(&load("exit 1", WorkReport::Exits)).unwrap();
        let error = running.wait_for_progress().unwrap_err().to_string();
        assert_eq!(error, "load cpu has exited");
        running.started.reap().unwrap();
    }
}
