//! Threads as the CPUs of workloads `ipc` and `smp`, each pinned to one. They block by futexes, as POSIX semaphores do.

use crate::cpu::{affinity, only, set_affinity};
use crate::{idle, shared_page};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::{ptr, thread};
use trapline_abi::job::{WakePolicy, MOST_CPUS};
use trapline_workloads::semaphore::Cpu;
use trapline_workloads::{Cpus, Reason};

/// Waiting threads that a system call has woken.
static WAKES: AtomicU64 = AtomicU64::new(0);

/// Returns the CPUs, whose threads wait as `policy` says. `is_init` says that this process is the init of a guest.
///
/// # Errors
/// Threads, or the kernel, cannot wait like that.
pub fn cpus(policy: WakePolicy, is_init: bool) -> Result<&'static dyn Cpus, Reason> {
    match policy {
        WakePolicy::Mwait => Err("a Linux process cannot execute mwait"),
        WakePolicy::Halt | WakePolicy::Poll(_) => Ok(THREADS),
        WakePolicy::HaltPoll | WakePolicy::IdlePoll if !is_init => {
            Err("haltpoll and idle-poll are for kernels of Linux guests")
        }
        WakePolicy::HaltPoll => idle::check_haltpoll().map(|()| THREADS),
        WakePolicy::IdlePoll => idle::check_polling().map(|()| THREADS),
    }
}

/// Main thread and others, on the CPUs of the affinity of this process.
struct Threads;

const THREADS: &dyn Cpus = &Threads;

/// Returns the CPUs of an affinity, at most [`MOST_CPUS`].
pub fn allowed(cpus: &libc::cpu_set_t) -> Vec<usize> {
    // SAFETY: `CPU_ISSET` reads a set, and only within its size.
    let has = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, cpus) };
    let all = (0..libc::CPU_SETSIZE as usize).filter(has);
    all.take(MOST_CPUS as usize).collect()
}

impl Cpus for Threads {
    fn count(&self) -> u32 {
        affinity().map_or(1, |cpus| allowed(&cpus).len() as u32)
    }

    fn run_beside(
        &self,
        count: u32,
        others: &(dyn Fn(u32, &dyn Cpu) + Sync),
        first: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason> {
        let before = affinity().ok_or("the affinity of this process cannot be read")?;
        let cpus = allowed(&before);
        let cpu_of = |number: u32| cpus.get(number as usize % cpus.len().max(1)).copied();
        let mut is_pinned = pin(cpu_of(0));
        let result = thread::scope(|scope| {
            let mut all = Vec::new();
            for number in 1..count {
                // A thread does nothing until all have started.
                let (go, wait) = mpsc::channel::<()>();
                let run = move || {
                    let is_pinned = pin(cpu_of(number));
                    if wait.recv().is_ok() {
                        others(number, &Futex);
                    }
                    is_pinned
                };
                let started = thread::Builder::new().spawn_scoped(scope, run);
                let thread = started.map_err(|_| "another thread cannot be started")?;
                all.push((go, thread));
            }
            for (go, _) in &all {
                let _runs = go.send(());
            }
            first(&Futex);
            for (_, thread) in all {
                is_pinned &= thread.join().unwrap_or(false);
            }
            Ok(())
        });
        set_affinity(&before);
        result.and(
            is_pinned
                .then_some(())
                .ok_or("threads cannot be pinned to CPUs"),
        )
    }

    fn wakes(&self) -> u64 {
        WAKES.load(Relaxed)
    }

    fn page(&self) -> Result<&'static AtomicU64, Reason> {
        shared_page::word()
    }

    fn remap(&self, value: u64) -> Result<(), Reason> {
        shared_page::remap(value)
    }
}

/// Pins this thread. Returns true on success.
fn pin(cpu: Option<usize>) -> bool {
    cpu.is_some_and(|cpu| set_affinity(&only(cpu)))
}

/// Thread that blocks by a futex.
struct Futex;

impl Cpu for Futex {
    fn block(&self, word: &AtomicU32, seen: u32) {
        // Another value, a signal or an early return: the caller looks again.
        let _result = futex(word, libc::FUTEX_WAIT, seen);
    }

    fn wake(&self, word: &AtomicU32) {
        let woken = futex(word, libc::FUTEX_WAKE, 1);
        WAKES.fetch_add(u64::try_from(woken).unwrap_or(0), Relaxed);
    }
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) -> libc::c_long {
    let timeout = ptr::null::<libc::timespec>();
    // SAFETY: an aligned word of this process, and no timeout (futex(2)). Failures are early returns.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            timeout,
        )
    }
}
