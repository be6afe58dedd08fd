//! CPU affinity and scheduling policy of guests on this host. Both are set on the running process
//! from outside, so that all VMMs are treated alike.

use crate::Error;
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet, Pid};
use std::fs;
use std::io;
use std::time::{Duration, Instant};
use trapline_model::{Pin, Sched, Unavailable};
use trapline_spawn::sched::{self, SchedPolicy};

/// Threads of a VMM's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Prefix of the vCPU thread's name; `None` for the first thread.
    pub vcpu: Option<&'static str>,
    /// Number of other threads started before the guest runs.
    pub helpers: usize,
}

impl Threads {
    /// The guest runs in the first thread.
    pub const FIRST: Self = Self {
        vcpu: None,
        helpers: 0,
    };
}

/// CPUs of guest, load programs and lab. Dropping it restores the affinity of this thread.
pub struct Affinity {
    pin: Pin,
    policy: Option<SchedPolicy>,
    guest: CpuSet,
    loads: CpuSet,
    lab: CpuSet,
    before: CpuSet,
}

/// Time limit for the start of a process's threads.
const THREAD_TIMEOUT: Duration = Duration::from_secs(10);

impl Affinity {
    /// Chooses CPUs and checks that the scheduling policy is allowed.
    ///
    /// # Errors
    /// There are not enough CPUs, or the policy is not allowed.
    pub fn choose(pin: Pin, sched: Sched) -> Result<Self, Error> {
        let before = sched_getaffinity(None).map_err(|error| {
            Error::unavailable(format!(
                "cannot read the CPU affinity of this process: {error}"
            ))
        })?;
        let policy = policy(sched);
        if let Some(policy) = policy {
            try_policy(policy).map_err(|error| refusal(sched, &error))?;
        }
        let all: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|cpu| before.is_set(*cpu))
            .collect();
        let (Some((&last, others)), true) = (all.split_last(), pin != Pin::Free) else {
            return Ok(Self::unpinned(pin, policy, before));
        };
        let (one, rest) = (set_of(&[last]), set_of(others));
        match (pin, others.is_empty()) {
            (Pin::Exclusive, true) => Err(Error::missing(
                "--pin exclusive needs a second CPU, and this process may use one",
                "allow more, as with 'taskset -c 0,1'",
            )),
            (Pin::Exclusive, false) => Ok(Self {
                pin,
                policy,
                guest: one,
                loads: rest,
                lab: rest,
                before,
            }),
            (_, alone) => Ok(Self {
                pin,
                policy,
                guest: one,
                loads: one,
                lab: if alone { before } else { rest },
                before,
            }),
        }
    }

    fn unpinned(pin: Pin, policy: Option<SchedPolicy>, before: CpuSet) -> Self {
        Self {
            pin,
            policy,
            guest: before,
            loads: before,
            lab: before,
            before,
        }
    }

    /// Moves this thread to the lab's CPUs until this is dropped.
    pub fn move_lab(&self) {
        move_to(self.lab);
    }

    /// Starts a process on the CPUs of load programs.
    pub fn start_load<T>(&self, start: impl FnOnce() -> T) -> T {
        self.start_on(self.loads, start)
    }

    /// Returns the CPUs on which threads of the guest may run.
    pub fn guest_cpus(&self) -> Vec<usize> {
        let cpus = match self.pin {
            Pin::Shared => &self.guest,
            Pin::Exclusive | Pin::Free => &self.before,
        };
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| cpus.is_set(*cpu))
            .collect()
    }

    /// Starts a process on one CPU.
    pub fn start_on_cpu<T>(&self, cpu: usize, start: impl FnOnce() -> T) -> T {
        self.start_on(set_of(&[cpu]), start)
    }

    /// Starts a VMM's process on the CPUs of its helper threads.
    pub fn start_guest<T>(&self, start: impl FnOnce() -> T) -> T {
        self.start_guest_of_several(0, start)
    }

    /// Starts the VMM's process of the guest with this number. Guests that share a CPU with their VMMs have different
    /// CPUs, as long as there are more.
    pub fn start_guest_of_several<T>(&self, number: usize, start: impl FnOnce() -> T) -> T {
        let helpers = match self.pin {
            Pin::Exclusive => self.lab,
            Pin::Shared => self.cpu_of(number),
            Pin::Free => self.guest,
        };
        self.start_on(helpers, start)
    }

    /// Returns the CPU of a guest, counted from the last.
    fn cpu_of(&self, number: usize) -> CpuSet {
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| self.before.is_set(*cpu));
        let cpus: Vec<usize> = cpus.collect();
        let cpu = cpus.iter().rev().cycle().nth(number);
        cpu.map_or(self.guest, |cpu| set_of(&[*cpu]))
    }

    /// Started processes inherit the affinity of this thread.
    fn start_on<T>(&self, cpus: CpuSet, start: impl FnOnce() -> T) -> T {
        move_to(cpus);
        let started = start();
        move_to(self.lab);
        started
    }

    /// Returns whether [`Self::apply`] has to find the thread of the vCPU.
    pub fn needs_vcpu_thread(&self) -> bool {
        self.pin == Pin::Exclusive || self.policy.is_some()
    }

    /// Sets affinity and policy of the vCPU thread of process `pid`. Waits for the helper threads
    /// first, because threads started later would inherit both.
    ///
    /// # Errors
    /// The thread does not exist, or the kernel refuses.
    pub fn apply(&self, pid: i32, threads: Threads) -> Result<(), Error> {
        if !self.needs_vcpu_thread() {
            return Ok(());
        }
        let thread = find_thread(pid, threads)?;
        let refused = |error: io::Error| {
            Error::unavailable(format!(
                "cannot set CPU or policy of the vCPU's thread: {error}"
            ))
        };
        if let Some(policy) = self.policy {
            sched::set(thread, policy).map_err(refused)?;
        }
        if self.pin == Pin::Exclusive {
            let placed = sched_setaffinity(Pid::from_raw(thread), &self.guest);
            placed.map_err(|error| refused(error.into()))?;
        }
        Ok(())
    }

    /// Describes the CPUs of guest, load programs and lab.
    pub fn describe(&self) -> String {
        match self.pin {
            Pin::Free => "anywhere".to_owned(),
            _ => format!(
                "guest on CPU {}, loads on {}, lab on {}",
                format_set(&self.guest),
                format_set(&self.loads),
                format_set(&self.lab)
            ),
        }
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        move_to(self.before);
    }
}

fn move_to(cpus: CpuSet) {
    // Fails if a CPU went offline; the thread keeps its affinity then.
    let _unchanged = sched_setaffinity(None, &cpus);
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

fn format_set(set: &CpuSet) -> String {
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let cpus: Vec<_> = cpus.map(|cpu| cpu.to_string()).collect();
    cpus.join(",")
}

fn policy(sched: Sched) -> Option<SchedPolicy> {
    match sched {
        Sched::Other | Sched::Xen(_) => None,
        Sched::Fifo(priority) => Some(SchedPolicy::Fifo(priority)),
        Sched::Deadline { runtime, period } => Some(SchedPolicy::Deadline {
            runtime: runtime.0,
            period: period.0,
        }),
    }
}

/// Sets the policy of a thread that ends at once.
fn try_policy(policy: SchedPolicy) -> io::Result<()> {
    let thread = std::thread::Builder::new().spawn(move || sched::set(0, policy))?;
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the test thread panicked")))
}

/// Returns why the kernel refuses `sched`.
fn refusal(sched: Sched, error: &io::Error) -> Unavailable {
    let capability = "sudo setcap cap_sys_nice+ep $(command -v trapline)";
    match (error.raw_os_error(), sched) {
        (Some(libc::EPERM), Sched::Fifo(priority)) => {
            Unavailable::new(format!("--sched {sched} is not permitted")).help(format!(
                "{capability}, or raise the limit: ulimit -r {priority}"
            ))
        }
        (Some(libc::EPERM), _) => Unavailable::new(format!(
            "--sched {sched} is not permitted, or not for a process restricted to some CPUs"
        ))
        .help(capability),
        (Some(libc::EBUSY), _) => {
            Unavailable::new(format!("the kernel does not admit --sched {sched}")).help(
                "request less runtime, end other deadline tasks, or raise \
                 /proc/sys/kernel/sched_rt_runtime_us",
            )
        }
        _ => Unavailable::new(format!("--sched {sched}: {error}")),
    }
}

/// Returns the id of the vCPU thread once all threads exist.
fn find_thread(pid: i32, threads: Threads) -> Result<i32, Error> {
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
            // The process ended: waiting for it reports why.
            _ if all.is_empty() => return Ok(pid),
            _ if since.elapsed() > THREAD_TIMEOUT => {
                return Err(Error::unavailable("cannot find the thread of the vCPU"))
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Returns ids and names of a process's threads.
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
    use expect_test::expect;
    use std::sync::mpsc::channel;

    #[test]
    fn lab_moves_and_returns_on_drop() {
        let before = sched_getaffinity(None).unwrap();
        if before.count() < 2 {
            return trapline_skip::skip("the lab beside a guest's CPU", "one CPU");
        }
        for pin in [Pin::Exclusive, Pin::Shared] {
            let affinity = Affinity::choose(pin, Sched::Other).unwrap();
            affinity.move_lab();
            let aside = sched_getaffinity(None).unwrap();
            assert_eq!(aside.count(), before.count() - 1);
            let here = || sched_getaffinity(None).unwrap();
            let loads = affinity.start_load(here);
            let guest = affinity.start_guest(here);
            let last = affinity.guest_cpus().pop().unwrap();
            assert!(affinity.guest.is_set(last));
            let on_last = affinity.start_on_cpu(last, here);
            assert_eq!(on_last, affinity.guest);
            assert_eq!(loads == aside, pin == Pin::Exclusive);
            assert_eq!(guest == aside, pin == Pin::Exclusive);
            assert_eq!(sched_getaffinity(None).unwrap(), aside);
            drop(affinity);
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        }
    }

    #[test]
    fn guests_with_a_cpu_each_use_all_cpus_in_turn() {
        let before = sched_getaffinity(None).unwrap();
        let affinity = Affinity::choose(Pin::Shared, Sched::Other).unwrap();
        let started =
            |number| affinity.start_guest_of_several(number, || sched_getaffinity(None).unwrap());
        let count = before.count() as usize;
        let all: Vec<CpuSet> = (0..count).map(started).collect();
        assert!(all.iter().all(|cpus| cpus.count() == 1));
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| all.iter().any(|one| one.is_set(*cpu)));
        assert_eq!(cpus.count(), count);
        assert_eq!(started(count), all[0]);
    }

    #[test]
    fn exclusive_cpu_needs_two_cpus() {
        std::thread::spawn(|| {
            let all = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
            move_to(set_of(&[first]));
            let refused = Affinity::choose(Pin::Exclusive, Sched::Other)
                .err()
                .unwrap();
            expect!["--pin exclusive needs a second CPU, and this process may use one: allow more, as with 'taskset -c 0,1'"].assert_eq(&refused.to_string());
            assert!(Affinity::choose(Pin::Shared, Sched::Other).is_ok());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn vcpu_thread_is_found_by_name_and_pinned() {
        let before = sched_getaffinity(None).unwrap();
        if before.count() < 2 {
            return trapline_skip::skip("a pinned vCPU", "one CPU");
        }
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name("CPU 0/TEST".to_owned());
        let thread = thread.spawn(move || stopped.recv().ok()).unwrap();
        let affinity = Affinity::choose(Pin::Exclusive, Sched::Other).unwrap();
        let threads = Threads {
            vcpu: Some("CPU 0/T"),
            helpers: 1,
        };
        let pid = std::process::id() as i32;
        affinity.apply(pid, threads).unwrap();
        let found = find_thread(pid, threads).unwrap();
        let put = sched_getaffinity(Pid::from_raw(found)).unwrap();
        assert_eq!(put, affinity.guest);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn refusal_has_a_remedy() {
        let refused = |(sched, code): (&str, i32)| {
            let error = io::Error::from_raw_os_error(code);
            refusal(sched.parse().unwrap(), &error).to_string()
        };
        let cases = [
            ("fifo:20", libc::EPERM),
            ("deadline:9ms/10ms", libc::EPERM),
            ("deadline:9ms/10ms", libc::EBUSY),
        ];
        expect![[r#"
            --sched fifo:20 is not permitted: sudo setcap cap_sys_nice+ep $(command -v trapline), or raise the limit: ulimit -r 20
            --sched deadline:9ms/10ms is not permitted, or not for a process restricted to some CPUs: sudo setcap cap_sys_nice+ep $(command -v trapline)
            the kernel does not admit --sched deadline:9ms/10ms: request less runtime, end other deadline tasks, or raise /proc/sys/kernel/sched_rt_runtime_us"#]].assert_eq(&cases.map(refused).join("\n"));
    }
}
