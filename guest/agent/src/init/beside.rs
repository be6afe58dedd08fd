//! What runs beside the programs that are launched, and by which rules those get the
//! machine's processor.
//!
//! A load is shown to work before anything is launched, and must still be there when
//! that has ended; what it did meanwhile is told with it. It ends with the machine.

use super::guest::ready;
use super::script::{Load, Telling};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use trapline_abi::job::LOAD_PREFIX;
use trapline_spawn::sched::{self, Rules};
use trapline_spawn::{Program, Started};

/// All that runs beside, and the rules for what is launched.
#[derive(Default)]
pub struct Beside {
    loads: Vec<Running>,
    rules: Option<Rules>,
}

struct Running {
    name: String,
    unit: String,
    telling: Telling,
    started: Started,
    /// Its standard output, where that is its count.
    count: File,
    before: State,
}

#[derive(Clone, Copy, Default)]
struct State {
    done: u64,
    cpu_ns: u64,
}

/// How often is looked whether a load works, a hundredth of a second apart.
const LOOKS: u32 = 6000;

impl Beside {
    /// Starts a load and waits until it works.
    pub fn start(&mut self, load: &Load<'_>) -> io::Result<()> {
        let running = Running::start(load)?;
        running.await_work()?;
        self.loads.push(running);
        Ok(())
    }

    /// From here on programs are launched under these rules.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = Some(rules);
    }

    /// Puts a program that was launched under the rules. From here on loads count.
    pub fn begin(&mut self, started: &Started) -> io::Result<()> {
        for load in &mut self.loads {
            load.before = load.state();
        }
        match self.rules {
            Some(rules) => sched::set(started.pid, rules),
            None => Ok(()),
        }
    }

    /// What the loads have done since, a line each.
    ///
    /// # Errors
    /// One has ended, or did nothing.
    pub fn told(&self) -> io::Result<String> {
        let told: io::Result<Vec<_>> = self.loads.iter().map(Running::told).collect();
        let numbered = (0..).zip(told?);
        let lines = numbered.map(|(number, told)| format!("{LOAD_PREFIX}{number}-{told}\n"));
        Ok(lines.collect())
    }
}

impl Running {
    fn start(load: &Load<'_>) -> io::Result<Self> {
        let mut program = Program::new(Path::new(load.program))?;
        for argument in &load.arguments {
            program.argument(argument)?;
        }
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        let console = File::options().write(true).open("/dev/console")?;
        let count = match load.telling {
            Telling::Count => in_memory()?,
            Telling::Exits => nothing.try_clone()?,
        };
        for end in [&nothing, &count, &console, &nothing] {
            program.descriptor(end.as_fd())?;
        }
        Ok(Self {
            name: load.name.to_owned(),
            unit: load.unit.to_owned(),
            telling: load.telling,
            started: trapline_spawn::start(&program)?,
            count,
            before: State::default(),
        })
    }

    fn await_work(&self) -> io::Result<()> {
        for _ in 0..LOOKS {
            self.check()?;
            if self.done() > 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(self.failure("has done nothing"))
    }

    fn check(&self) -> io::Result<()> {
        match ready(&[self.started.pidfd.as_fd()], 0)? {
            false => Ok(()),
            true => Err(self.failure("has ended by itself")),
        }
    }

    fn failure(&self, what: &str) -> io::Error {
        io::Error::other(format!("load {} {what}", self.name))
    }

    fn done(&self) -> u64 {
        match self.telling {
            Telling::Count => {
                let mut number = [0; 8];
                let told = self.count.read_exact_at(&mut number, 0);
                told.map_or(0, |()| u64::from_le_bytes(number))
            }
            Telling::Exits => exits_of(self.started.pid).unwrap_or(0),
        }
    }

    fn state(&self) -> State {
        State {
            done: self.done(),
            cpu_ns: cpu_ns(self.started.pid).unwrap_or(0),
        }
    }

    fn told(&self) -> io::Result<String> {
        self.check()?;
        let State { done, cpu_ns } = self.state();
        let (done, us) = (
            done - self.before.done.min(done),
            (cpu_ns - self.before.cpu_ns.min(cpu_ns)) / 1000,
        );
        let Self { name, unit, .. } = self;
        match self.telling {
            Telling::Exits if done == 0 => Err(self.failure("did nothing")),
            _ if us == 0 => Err(self.failure("did nothing")),
            _ => Ok(format!("{name} {done} {unit}, {us} us of CPU time")),
        }
    }
}

/// A file without a name.
fn in_memory() -> io::Result<File> {
    // SAFETY: a name, and a flag.
    let made = unsafe { libc::memfd_create(c"count".as_ptr(), libc::MFD_CLOEXEC) };
    match made {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: made just now, and nobody else knows it.
        fd => Ok(unsafe { File::from_raw_fd(fd) }),
    }
}

/// What KVM's debugfs counts of the guest of a VMM.
fn exits_of(pid: i32) -> Option<u64> {
    let machines = fs::read_dir("/sys/kernel/debug/kvm").ok()?;
    let prefix = format!("{pid}-");
    let its = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    let machine = machines.flatten().find(its)?;
    let text = fs::read_to_string(machine.path().join("exits")).ok()?;
    text.trim().parse().ok()
}

/// CPU time of a process, and of those that it has started and that run now.
fn cpu_ns(pid: i32) -> Option<u64> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let of_children = children.split_ascii_whitespace();
    let of_children = of_children.filter_map(|child| run_ns(child.parse().ok()?));
    Some(run_ns(pid)? + of_children.sum::<u64>())
}

/// The first number is what it ran (Documentation/scheduler/sched-stats.rst).
fn run_ns(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(script: &'static str, telling: Telling) -> Load<'static> {
        Load {
            name: "cpu",
            unit: "turns",
            telling,
            program: "/bin/sh",
            arguments: vec!["-c", script],
        }
    }

    #[test]
    fn what_a_load_counts_is_read_and_one_that_ends_is_missed() {
        let busy = "printf 12345678; while :; do :; done";
        let running = Running::start(&load(busy, Telling::Count)).unwrap();
        running.await_work().unwrap();
        assert_eq!(running.done(), u64::from_le_bytes(*b"12345678"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(running.told().unwrap().starts_with("cpu "));
        running.started.kill_group();
        running.started.reap().unwrap();
        let error = running.told().unwrap_err().to_string();
        assert_eq!(error, "load cpu has ended by itself");
    }

    #[test]
    fn one_that_never_works_is_told() {
        let running = Running::start(&load("exit 1", Telling::Exits)).unwrap();
        let error = running.await_work().unwrap_err().to_string();
        assert_eq!(error, "load cpu has ended by itself");
        running.started.reap().unwrap();
    }
}
