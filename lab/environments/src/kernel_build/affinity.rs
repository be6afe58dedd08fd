//! CPU affinity of a build's processes on this host: each vCPU has its own CPU, and the other threads of the
//! VMM run on the first CPU.

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet, Pid};
use std::fs;
use std::io;
use std::time::{Duration, Instant};
use trapline_host::Error;
use trapline_model::kernel_build::Column;
use trapline_model::EnvironmentId;

/// Identification of vCPU threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VcpuThreads {
    /// None: all threads share all CPUs.
    Unknown,
    /// Names `CPU 0/…`.
    Qemu,
    /// The first thread is the first vCPU; the others have names, as `vcpu1`.
    Trapline,
}

impl VcpuThreads {
    /// Returns the identification for the VMM of an environment.
    pub fn of(environment: EnvironmentId) -> Self {
        match environment {
            id if id.has_qemu_vmm() => Self::Qemu,
            id if id.has_trapline_vmm() => Self::Trapline,
            _ => Self::Unknown,
        }
    }
}

/// CPUs of the threads of a build.
pub struct BuildAffinity {
    threads: VcpuThreads,
    /// CPU of each vCPU.
    vcpus: Vec<usize>,
    /// CPU of the other threads.
    others: usize,
    /// CPUs of this process.
    original: CpuSet,
}

/// Longest time until the threads of a process exist.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the reason why this host has too few CPUs for a column.
pub fn unsupported_reason(column: Column) -> Option<String> {
    let here = usable().ok()?.len();
    let needed = column.host_cpus() as usize;
    (here < needed)
        .then(|| format!("{column} needs {needed} CPUs, and this process may use {here}"))
}

impl BuildAffinity {
    /// Returns the affinity of a column.
    ///
    /// # Errors
    /// This host has too few CPUs.
    pub fn new(column: Column, threads: VcpuThreads) -> Result<Self, Error> {
        let original = sched_getaffinity(None);
        let original = original.map_err(|error| failed(error.into()))?;
        let usable = usable().map_err(failed)?;
        let cpu = |number: u32| {
            let reason = || Error::unavailable(unsupported_reason(column).unwrap_or_default());
            usable
                .get(column.cpu_of(number) as usize)
                .copied()
                .ok_or_else(reason)
        };
        let vcpus = (0..column.cpus).map(cpu).collect::<Result<_, _>>()?;
        Ok(Self {
            threads,
            vcpus,
            others: usable.first().copied().unwrap_or(0),
            original,
        })
    }

    /// Starts a process whose threads run where threads other than vCPUs do.
    pub fn start<T>(&self, start: impl FnOnce() -> T) -> T {
        let cpus = match self.threads {
            VcpuThreads::Unknown => set_of(&self.vcpus),
            VcpuThreads::Qemu | VcpuThreads::Trapline => set_of(&[self.others]),
        };
        // If a CPU was removed meanwhile, the process inherits our affinity.
        let _ = sched_setaffinity(None, &cpus);
        let started = start();
        let _ = sched_setaffinity(None, &self.original);
        started
    }

    /// Waits for the vCPU threads and sets their affinity.
    ///
    /// # Errors
    /// A thread does not start, or the kernel rejects the affinity.
    pub fn pin_vcpus(&self, pid: i32) -> Result<(), Error> {
        if self.threads == VcpuThreads::Unknown {
            return Ok(());
        }
        for (number, cpu) in self.vcpus.iter().enumerate() {
            let Some(thread) = self.find(pid, number)? else {
                // The process ended; its output and status are read later.
                return Ok(());
            };
            let set = sched_setaffinity(Pid::from_raw(thread), &set_of(&[*cpu]));
            set.map_err(|error| failed(error.into()))?;
        }
        Ok(())
    }

    /// Returns the thread of a vCPU, or `None` if the process ended.
    fn find(&self, pid: i32, number: usize) -> Result<Option<i32>, Error> {
        let since = Instant::now();
        let name = match (self.threads, number) {
            (VcpuThreads::Trapline, 0) => return Ok(Some(pid)),
            (VcpuThreads::Trapline, _) => format!("vcpu{number}"),
            _ => format!("CPU {number}/"),
        };
        loop {
            let threads = threads_of(pid);
            let found = threads.iter().find(|(_, own)| own.starts_with(&name));
            match found {
                Some((thread, _)) => return Ok(Some(*thread)),
                None if threads.is_empty() => return Ok(None),
                None if since.elapsed() > START_TIMEOUT => {
                    return Err(Error::unavailable(format!(
                        "there is no thread '{name}' of a vCPU"
                    )))
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Describes the affinity for the facts.
    pub fn describe(&self) -> String {
        let cpus: Vec<_> = self.vcpus.iter().map(ToString::to_string).collect();
        let cpus = cpus.join(",");
        match self.threads {
            VcpuThreads::Unknown => format!("all on CPU {cpus}"),
            _ => format!("virtual CPUs on CPU {cpus}, all else on {}", self.others),
        }
    }
}

/// Returns the CPUs that this process may use.
fn usable() -> io::Result<Vec<usize>> {
    let all = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| all.is_set(*cpu))
        .collect())
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

fn failed(error: io::Error) -> Error {
    Error::unavailable(format!("the affinity of vCPUs cannot be set: {error}"))
}

/// Returns ids and names of a process's threads.
fn threads_of(pid: i32) -> Vec<(i32, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some((id, name))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::kernel_build::Place;

    #[test]
    fn start_restores_the_own_affinity() {
        let original = sched_getaffinity(None).unwrap();
        let column = Column {
            cpus: 1,
            place: Place::Same,
        };
        let affinity = BuildAffinity::new(column, VcpuThreads::Unknown).unwrap();
        let there = affinity.start(|| sched_getaffinity(None).unwrap());
        assert_eq!(there.count(), 1);
        assert_eq!(sched_getaffinity(None).unwrap(), original);
        assert!(affinity.describe().starts_with("all on CPU "));
    }

    #[test]
    fn named_thread_is_pinned() {
        let column = Column {
            cpus: 1,
            place: Place::Disjoint,
        };
        if let Some(reason) = unsupported_reason(column) {
            return trapline_skip::skip("a pinned build", &format!("one CPU: {reason}"));
        }
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("CPU 0/TEST".to_owned());
        let thread = thread.spawn(move || stopped.recv().ok()).unwrap();
        let affinity = BuildAffinity::new(column, VcpuThreads::Qemu).unwrap();
        let pid = std::process::id() as i32;
        affinity.pin_vcpus(pid).unwrap();
        let found = affinity.find(pid, 0).unwrap();
        let cpus = sched_getaffinity(found.and_then(Pid::from_raw)).unwrap();
        assert_eq!(cpus, set_of(&affinity.vcpus));
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn too_few_cpus_are_reported() {
        let column = Column {
            cpus: 4096,
            place: Place::Same,
        };
        let reason = unsupported_reason(column).unwrap();
        assert!(reason.starts_with("4096(s) needs 4096 CPUs"), "{reason}");
    }
}
