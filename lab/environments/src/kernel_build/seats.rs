//! On which CPUs of this host who works: each virtual CPU on one of its own, and all other
//! threads of its VMM on the first. Set from outside, as for every other measurement.

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet, Pid};
use std::fs;
use std::io;
use std::time::{Duration, Instant};
use trapline_host::Error;
use trapline_model::kernel_build::Column;
use trapline_model::EnvironmentId;

/// What tells the threads of virtual CPUs from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Nothing: all work, on all CPUs that there are for it.
    Any,
    /// Their names: `CPU 0/…`.
    Qemus,
    /// The first virtual CPU is the first thread, and the others have names: `vcpu1`.
    Ours,
}

impl Threads {
    /// Those of the VMM of a guest on this host.
    pub fn of(environment: EnvironmentId) -> Self {
        match environment {
            id if id.has_qemu_vmm() => Self::Qemus,
            id if id.has_trapline_vmm() => Self::Ours,
            _ => Self::Any,
        }
    }
}

/// Who works where.
pub struct Seats {
    threads: Threads,
    /// The CPU of each virtual one.
    virtual_cpus: Vec<usize>,
    others: usize,
    before: CpuSet,
}

/// How long a process may take until its threads are there.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why this host has not CPUs enough, and what to do about that.
pub fn unsupported_reason(column: Column) -> Option<String> {
    let here = usable().ok()?.len();
    let needed = column.host_cpus() as usize;
    (here < needed)
        .then(|| format!("{column} needs {needed} CPUs, and this process may use {here}"))
}

impl Seats {
    /// The seats of a column.
    ///
    /// # Errors
    /// There are not CPUs enough.
    pub fn of(column: Column, threads: Threads) -> Result<Self, Error> {
        let before = sched_getaffinity(None);
        let before = before.map_err(|error| unplaced(error.into()))?;
        let usable = usable().map_err(unplaced)?;
        let cpu = |number: u32| {
            let reason = || Error::unavailable(unsupported_reason(column).unwrap_or_default());
            usable
                .get(column.cpu_of(number) as usize)
                .copied()
                .ok_or_else(reason)
        };
        let virtual_cpus = (0..column.cpus).map(cpu).collect::<Result<_, _>>()?;
        Ok(Self {
            threads,
            virtual_cpus,
            others: usable.first().copied().unwrap_or(0),
            before,
        })
    }

    /// Starts a process, all of whose threads are where those are that have no other place.
    pub fn start<T>(&self, start: impl FnOnce() -> T) -> T {
        let cpus = match self.threads {
            Threads::Any => set_of(&self.virtual_cpus),
            Threads::Qemus | Threads::Ours => set_of(&[self.others]),
        };
        // A CPU that was there a moment ago may be gone; then it runs where we do.
        let _stays = sched_setaffinity(None, &cpus);
        let started = start();
        let _stays = sched_setaffinity(None, &self.before);
        started
    }

    /// Lets the threads of virtual CPUs take their places, once they are there.
    ///
    /// # Errors
    /// They do not come, or the kernel refuses.
    pub fn take(&self, pid: i32) -> Result<(), Error> {
        if self.threads == Threads::Any {
            return Ok(());
        }
        for (number, cpu) in self.virtual_cpus.iter().enumerate() {
            let Some(thread) = self.find(pid, number)? else {
                // Whatever went wrong with it, hearing it will tell.
                return Ok(());
            };
            let placed = sched_setaffinity(Pid::from_raw(thread), &set_of(&[*cpu]));
            placed.map_err(|error| unplaced(error.into()))?;
        }
        Ok(())
    }

    /// The thread of a virtual CPU; `None` of a process that is gone.
    fn find(&self, pid: i32, number: usize) -> Result<Option<i32>, Error> {
        let since = Instant::now();
        let name = match (self.threads, number) {
            (Threads::Ours, 0) => return Ok(Some(pid)),
            (Threads::Ours, _) => format!("vcpu{number}"),
            _ => format!("CPU {number}/"),
        };
        loop {
            let threads = threads_of(pid);
            let found = threads.iter().find(|(_, own)| own.starts_with(&name));
            match found {
                Some((thread, _)) => return Ok(Some(*thread)),
                None if threads.is_empty() => return Ok(None),
                None if since.elapsed() > PATIENCE => {
                    return Err(Error::unavailable(format!(
                        "the thread '{name}' of a virtual CPU cannot be found"
                    )))
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Who works where, for the facts.
    pub fn describe(&self) -> String {
        let cpus: Vec<_> = self.virtual_cpus.iter().map(ToString::to_string).collect();
        let cpus = cpus.join(",");
        match self.threads {
            Threads::Any => format!("all on CPU {cpus}"),
            _ => format!("virtual CPUs on CPU {cpus}, all else on {}", self.others),
        }
    }
}

/// The CPUs that this process may use.
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

fn unplaced(error: io::Error) -> Error {
    Error::unavailable(format!("virtual CPUs cannot be given places: {error}"))
}

/// Numbers and names of a process's threads.
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
    fn who_starts_others_stays_where_it_was() {
        let before = sched_getaffinity(None).unwrap();
        let column = Column {
            cpus: 1,
            place: Place::Same,
        };
        let seats = Seats::of(column, Threads::Any).unwrap();
        let there = seats.start(|| sched_getaffinity(None).unwrap());
        assert_eq!(there.count(), 1);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(seats.describe().starts_with("all on CPU "));
    }

    #[test]
    fn a_named_thread_takes_its_seat() {
        let column = Column {
            cpus: 1,
            place: Place::Disjoint,
        };
        if let Some(reason) = unsupported_reason(column) {
            eprintln!("skipped: {reason}");
            return;
        }
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("CPU 0/TEST".to_owned());
        let thread = thread.spawn(move || stopped.recv().ok()).unwrap();
        let seats = Seats::of(column, Threads::Qemus).unwrap();
        let pid = std::process::id() as i32;
        seats.take(pid).unwrap();
        let found = seats.find(pid, 0).unwrap();
        let seat = sched_getaffinity(found.and_then(Pid::from_raw)).unwrap();
        assert_eq!(seat, set_of(&seats.virtual_cpus));
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn a_host_that_is_too_small_is_told_so() {
        let column = Column {
            cpus: 4096,
            place: Place::Same,
        };
        let reason = unsupported_reason(column).unwrap();
        assert!(reason.starts_with("4096(s) needs 4096 CPUs"), "{reason}");
    }
}
