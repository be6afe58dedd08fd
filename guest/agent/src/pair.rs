//! Two threads as the pair of CPUs of workload `ipc`, each pinned to a CPU. They block by futexes, as POSIX semaphores do.

use crate::cpu::{affinity, only, set_affinity};
use std::sync::atomic::AtomicU32;
use std::{ptr, thread};
use trapline_abi::job::WakePolicy;
use trapline_workloads::semaphore::Cpu;
use trapline_workloads::{CpuPair, Reason};

/// Returns the pair, whose threads wait as `policy` says.
///
/// # Errors
/// Threads cannot wait like that.
pub fn pair(policy: WakePolicy) -> Result<&'static dyn CpuPair, Reason> {
    match policy {
        WakePolicy::Mwait => Err("a Linux process cannot execute mwait"),
        WakePolicy::Halt | WakePolicy::Poll(_) => Ok(&Threads),
    }
}

/// Main thread and another one.
struct Threads;

impl CpuPair for Threads {
    /// Uses the first two CPUs of the affinity of this thread; one CPU if there is no other.
    fn run_beside(
        &self,
        second: &(dyn Fn(&dyn Cpu) + Sync),
        first: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason> {
        let before = affinity().ok_or("the affinity of this process cannot be read")?;
        // SAFETY: `CPU_ISSET` reads a set, and only within its size.
        let has = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &before) };
        let cpus: Vec<_> = (0..libc::CPU_SETSIZE as usize)
            .filter(has)
            .take(2)
            .collect();
        let (Some(one), Some(other)) = (cpus.first(), cpus.last()) else {
            return Err("this process has no CPU");
        };
        let is_pinned = set_affinity(&only(*one));
        let result = thread::scope(|scope| {
            let run = || {
                set_affinity(&only(*other));
                second(&Futex);
            };
            thread::Builder::new()
                .spawn_scoped(scope, run)
                .map_err(|_| "a second thread cannot be started")?;
            first(&Futex);
            Ok(())
        });
        set_affinity(&before);
        result.and(
            is_pinned
                .then_some(())
                .ok_or("threads cannot be pinned to CPUs"),
        )
    }
}

/// Thread that blocks by a futex.
struct Futex;

impl Cpu for Futex {
    fn block(&self, word: &AtomicU32, seen: u32) {
        futex(word, libc::FUTEX_WAIT, seen);
    }

    fn wake(&self, word: &AtomicU32) {
        futex(word, libc::FUTEX_WAKE, 1);
    }
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let timeout = ptr::null::<libc::timespec>();
    // SAFETY: an aligned word of this process, and no timeout (futex(2)). Failures are early returns.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            timeout,
        );
    }
}
