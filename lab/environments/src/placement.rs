//! Which CPU a guest's virtual CPU gets on this host, and by which rules: set from
//! outside, on a process that has started, so that every VMM is treated alike.

use crate::error::EnvError;
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet, Pid};
use std::fs;
use std::io;
use std::time::{Duration, Instant};
use trapline_model::{Pin, Sched};
use trapline_spawn::sched::{self, Rules};

/// Which threads of a process there will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// What the name of the virtual CPU's begins with; `None` for the first thread.
    pub vcpu: Option<&'static str>,
    /// How many others there are before the guest runs.
    pub helpers: usize,
}

impl Threads {
    /// A process that is the guest, or runs it in its first thread.
    pub const FIRST: Self = Self {
        vcpu: None,
        helpers: 0,
    };
}

/// Where everybody runs.
pub struct Placement {
    pin: Pin,
    rules: Option<Rules>,
    guest: CpuSet,
    loads: CpuSet,
    lab: CpuSet,
    before: CpuSet,
}

/// How long a process may take until its threads are there.
const PATIENCE: Duration = Duration::from_secs(10);

impl Placement {
    /// Chooses CPUs, and asks the kernel whether the rules are allowed.
    ///
    /// # Errors
    /// There are not enough CPUs, or the rules are not allowed; with what would mend it.
    pub fn choose(pin: Pin, how: Sched) -> Result<Self, EnvError> {
        let before = sched_getaffinity(None).map_err(|error| unknown(error.into()))?;
        let rules = rules(how);
        if let Some(rules) = rules {
            allowed(rules).map_err(|error| EnvError::Missing(refusal(how, &error)))?;
        }
        let all: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|cpu| before.is_set(*cpu))
            .collect();
        let (Some((&last, others)), true) = (all.split_last(), pin != Pin::Free) else {
            return Ok(Self::anywhere(pin, rules, before));
        };
        let (one, rest) = (set_of(&[last]), set_of(others));
        match (pin, others.is_empty()) {
            (Pin::Exclusive, true) => Err(EnvError::Missing(ONE_CPU.to_owned())),
            (Pin::Exclusive, false) => Ok(Self {
                pin,
                rules,
                guest: one,
                loads: rest,
                lab: rest,
                before,
            }),
            (_, alone) => Ok(Self {
                pin,
                rules,
                guest: one,
                loads: one,
                lab: if alone { before } else { rest },
                before,
            }),
        }
    }

    fn anywhere(pin: Pin, rules: Option<Rules>, before: CpuSet) -> Self {
        Self {
            pin,
            rules,
            guest: before,
            loads: before,
            lab: before,
            before,
        }
    }

    /// Moves whoever measures out of the way, until this is dropped.
    pub fn step_aside(&self) {
        move_to(self.lab);
    }

    /// Starts a load where loads run.
    pub fn start_load<T>(&self, start: impl FnOnce() -> T) -> T {
        self.start_on(self.loads, start)
    }

    /// Starts the guest's process where the threads run that it starts by itself.
    pub fn start_guest<T>(&self, start: impl FnOnce() -> T) -> T {
        let helpers = match self.pin {
            Pin::Exclusive => self.lab,
            Pin::Shared | Pin::Free => self.guest,
        };
        self.start_on(helpers, start)
    }

    /// What is started inherits where this thread may run.
    fn start_on<T>(&self, cpus: CpuSet, start: impl FnOnce() -> T) -> T {
        move_to(cpus);
        let started = start();
        move_to(self.lab);
        started
    }

    /// Whether the thread of a virtual CPU has to be found.
    pub fn needs_thread(&self) -> bool {
        self.pin == Pin::Exclusive || self.rules.is_some()
    }

    /// Puts the virtual CPU's thread of process `pid` in its place. Waits for the other
    /// threads first: those that it starts later would be where it is.
    ///
    /// # Errors
    /// It is not there, or the kernel refuses.
    pub fn put(&self, pid: i32, threads: Threads) -> Result<(), EnvError> {
        if !self.needs_thread() {
            return Ok(());
        }
        let thread = find(pid, threads)?;
        let refused = |error: io::Error| {
            EnvError::Missing(format!(
                "the virtual CPU's thread cannot be placed: {error}"
            ))
        };
        if let Some(rules) = self.rules {
            sched::set(thread, rules).map_err(refused)?;
        }
        if self.pin == Pin::Exclusive {
            let placed = sched_setaffinity(Pid::from_raw(thread), &self.guest);
            placed.map_err(|error| refused(error.into()))?;
        }
        Ok(())
    }

    /// Where the guest and the loads run, for the facts.
    pub fn describe(&self) -> String {
        match self.pin {
            Pin::Free => "anywhere".to_owned(),
            _ => format!(
                "guest on CPU {}, loads on {}, lab on {}",
                list(&self.guest),
                list(&self.loads),
                list(&self.lab)
            ),
        }
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        move_to(self.before);
    }
}

/// A CPU that was there a moment ago may be gone; then this thread stays where it is.
fn move_to(cpus: CpuSet) {
    let _stays = sched_setaffinity(None, &cpus);
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

fn list(set: &CpuSet) -> String {
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let cpus: Vec<_> = cpus.map(|cpu| cpu.to_string()).collect();
    cpus.join(",")
}

fn rules(how: Sched) -> Option<Rules> {
    match how {
        Sched::Other | Sched::Xen(_) => None,
        Sched::Fifo(priority) => Some(Rules::Fifo(priority)),
        Sched::Deadline { runtime, period } => Some(Rules::Deadline {
            runtime: runtime.0,
            period: period.0,
        }),
    }
}

/// Tries the rules on a thread that ends at once.
fn allowed(rules: Rules) -> io::Result<()> {
    let tried = std::thread::spawn(move || sched::set(0, rules)).join();
    tried.unwrap_or_else(|_| Err(io::Error::other("the thread that tried it has panicked")))
}

const ONE_CPU: &str = "--pin exclusive needs a second CPU for everybody else, and this process \
                       may use one: give it more, as with 'taskset -c 0,1'";

/// Why `how` is refused, and what mends it.
fn refusal(how: Sched, error: &io::Error) -> String {
    let capability = "sudo setcap cap_sys_nice+ep $(command -v trapline)";
    match (error.raw_os_error(), how) {
        (Some(libc::EPERM), Sched::Fifo(priority)) => format!(
            "--sched {how} is not allowed here: {capability}, or raise the limit: \
             ulimit -r {priority}"
        ),
        (Some(libc::EPERM), _) => format!(
            "--sched {how} is not allowed here, or not to a process that may not use all \
             CPUs: {capability}"
        ),
        (Some(libc::EBUSY), _) => format!(
            "the kernel does not admit --sched {how}: ask for less runtime, end what else has \
             deadlines, or raise /proc/sys/kernel/sched_rt_runtime_us"
        ),
        _ => format!("--sched {how}: {error}"),
    }
}

fn unknown(error: io::Error) -> EnvError {
    EnvError::Missing(format!("the CPUs of this process cannot be read: {error}"))
}

/// The number of the virtual CPU's thread, once all are there.
fn find(pid: i32, threads: Threads) -> Result<i32, EnvError> {
    let since = Instant::now();
    loop {
        let all = threads_of(pid);
        let found = match threads.vcpu {
            None => Some(pid),
            Some(name) => all
                .iter()
                .find(|(_, own)| own.starts_with(name))
                .map(|(id, _)| *id),
        };
        match found {
            Some(thread) if all.len() > threads.helpers => return Ok(thread),
            // Whatever went wrong with it, hearing it will tell.
            _ if all.is_empty() => return Ok(pid),
            _ if since.elapsed() > PATIENCE => {
                return Err(EnvError::Missing(
                    "the thread of the virtual CPU cannot be found".to_owned(),
                ))
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Numbers and names of a process's threads.
fn threads_of(pid: i32) -> Vec<(i32, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let entries = entries.flatten().filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some((id, name.trim_end().to_owned()))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_measures_steps_aside_and_comes_back() {
        let before = sched_getaffinity(None).unwrap();
        if before.count() < 2 {
            eprintln!("skipped: one CPU");
            return;
        }
        for pin in [Pin::Exclusive, Pin::Shared] {
            let placement = Placement::choose(pin, Sched::Other).unwrap();
            placement.step_aside();
            let aside = sched_getaffinity(None).unwrap();
            assert_eq!(aside.count(), before.count() - 1);
            let here = || sched_getaffinity(None).unwrap();
            let loads = placement.start_load(here);
            let guest = placement.start_guest(here);
            assert_eq!(loads == aside, pin == Pin::Exclusive);
            assert_eq!(guest == aside, pin == Pin::Exclusive);
            assert_eq!(sched_getaffinity(None).unwrap(), aside);
            drop(placement);
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        }
    }

    #[test]
    fn one_cpu_is_nobodys_alone() {
        std::thread::spawn(|| {
            let all = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
            move_to(set_of(&[first]));
            let refused = Placement::choose(Pin::Exclusive, Sched::Other)
                .err()
                .unwrap();
            assert!(refused.to_string().contains("taskset -c 0,1"), "{refused}");
            assert!(Placement::choose(Pin::Shared, Sched::Other).is_ok());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_is_found_by_its_name_and_put_in_its_place() {
        let before = sched_getaffinity(None).unwrap();
        if before.count() < 2 {
            eprintln!("skipped: one CPU");
            return;
        }
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name("CPU 0/TEST".to_owned());
        let thread = thread.spawn(move || stopped.recv().ok()).unwrap();
        let placement = Placement::choose(Pin::Exclusive, Sched::Other).unwrap();
        let threads = Threads {
            vcpu: Some("CPU 0/T"),
            helpers: 1,
        };
        let pid = std::process::id() as i32;
        placement.put(pid, threads).unwrap();
        let found = find(pid, threads).unwrap();
        let put = sched_getaffinity(Pid::from_raw(found)).unwrap();
        assert_eq!(put, placement.guest);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn a_refusal_says_what_mends_it() {
        let told = |how: &str, code| {
            let how = how.parse().unwrap();
            refusal(how, &io::Error::from_raw_os_error(code))
        };
        assert!(told("fifo:20", libc::EPERM).ends_with("ulimit -r 20"));
        let deadline = "deadline:9ms/10ms";
        assert!(told(deadline, libc::EPERM).contains("setcap cap_sys_nice+ep"));
        assert!(told(deadline, libc::EBUSY).contains("ask for less runtime"));
    }
}
