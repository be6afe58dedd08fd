//! Boot CPU and secondary CPUs as those that workloads `ipc` and `smp` measure.

use super::page;
use super::run_queue::{
    allocate_stack, join_second, run_task, set_task, start_second, Thread, ACTIVE, COUNT,
    USES_MWAIT, WAKES,
};
use super::start::{reset_last, restart_last};
use crate::interrupts::Apic;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use trapline_abi::job::{WakePolicy, MOST_CPUS};
use trapline_workloads::semaphore::{Cpu, Semaphore};
use trapline_workloads::{Cpus, Reason};

/// Bit of `monitor` and `mwait` in `ecx` of cpuid leaf 1.
const HAS_MONITOR: u32 = 1 << 3;

static STARTED: [Semaphore; MOST_CPUS as usize] = [const { Semaphore::new(0) }; MOST_CPUS as usize];
static FINISHED: Semaphore = Semaphore::new(0);

/// Returns the CPUs, all of which run. They wait as `policy` says.
///
/// # Errors
/// They have no `mwait`, or the policy is that of Linux.
pub fn cpus(_apic: &Apic, policy: WakePolicy) -> Result<&'static dyn Cpus, Reason> {
    if matches!(policy, WakePolicy::HaltPoll | WakePolicy::IdlePoll) {
        return Err("haltpoll and idle-poll are for Linux guests: choose poll:50 for the image");
    }
    let uses_mwait = policy == WakePolicy::Mwait;
    if uses_mwait && __cpuid(1).ecx & HAS_MONITOR == 0 {
        return Err("the CPU does not offer mwait to this machine");
    }
    USES_MWAIT.store(uses_mwait, SeqCst);
    Ok(&Running)
}

/// All CPUs that run.
struct Running;

impl Cpus for Running {
    fn count(&self) -> u32 {
        COUNT.load(SeqCst)
    }

    fn run_beside(
        &self,
        count: u32,
        others: &(dyn Fn(u32, &dyn Cpu) + Sync),
        first: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason> {
        let cpus = COUNT.load(SeqCst);
        if count > cpus && USES_MWAIT.load(SeqCst) {
            return Err("mwait waits for a write to one word, not for those of two threads");
        }
        let active = count.min(cpus);
        let seconds = 0..count - active;
        seconds.clone().try_for_each(allocate_stack)?;
        // SAFETY: the threads of the last task have ended, and those of this one have before this function returns.
        unsafe { set_task(others) };
        ACTIVE.store(active, SeqCst);
        seconds.for_each(start_second);
        let boot_thread = Thread::first(0);
        let started = &STARTED[1..active as usize];
        started.iter().for_each(|it| it.post(&boot_thread));
        first(&boot_thread);
        join_second(&boot_thread);
        started.iter().for_each(|_| FINISHED.wait(&boot_thread, 0));
        Ok(())
    }

    fn wakes(&self) -> u64 {
        WAKES.load(SeqCst)
    }

    fn page(&self) -> Result<&'static AtomicU64, Reason> {
        page::word()
    }

    fn remap(&self, value: u64) -> Result<(), Reason> {
        page::word()?;
        page::remap(value, 1..ACTIVE.load(SeqCst));
        Ok(())
    }

    #[inline(always)]
    fn interrupt(&self) {
        let count = COUNT.load(SeqCst);
        page::invalidate_on(count - 1..count);
    }

    fn interrupts(&self) -> Result<u64, Reason> {
        Ok(page::invalidations().into())
    }

    fn reset(&self) -> Result<(), Reason> {
        reset_last();
        Ok(())
    }

    #[inline(always)]
    fn restart(&self) -> Result<(), Reason> {
        restart_last()
    }
}

/// Runs the tasks of a secondary CPU.
pub fn serve(number: u32) -> ! {
    let first = Thread::first(number);
    loop {
        STARTED[number as usize].wait(&first, 0);
        run_task(&first);
        join_second(&first);
        FINISHED.post(&first);
    }
}
