//! Boot CPU and secondary CPUs as those that workloads `ipc` and `smp` measure.

use super::page;
use crate::cpu::Global;
use crate::interrupts::{send_wake, Apic};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst};
use trapline_abi::job::{WakePolicy, MOST_CPUS};
use trapline_workloads::semaphore::{Cpu, Semaphore};
use trapline_workloads::{Cpus, Reason};

/// Bit of `monitor` and `mwait` in `ecx` of cpuid leaf 1.
const HAS_MONITOR: u32 = 1 << 3;

/// Function that secondary CPUs run, with their number.
type Task = &'static (dyn Fn(u32, &dyn Cpu) + Sync);

/// Set by the boot CPU before it posts [`STARTED`], read by secondary CPUs after that.
static TASK: Global<Option<Task>> = Global::new(None);
static STARTED: [Semaphore; MOST_CPUS as usize] = [const { Semaphore::new(0) }; MOST_CPUS as usize];
static FINISHED: Semaphore = Semaphore::new(0);

/// CPUs wait with `mwait` instead of `hlt`.
static USES_MWAIT: AtomicBool = AtomicBool::new(false);

/// Words at which CPUs are halted, or are about to halt; null otherwise.
static HALTED_AT: [AtomicPtr<AtomicU32>; MOST_CPUS as usize] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST_CPUS as usize];

/// Number of CPUs, the boot CPU included.
static COUNT: AtomicU32 = AtomicU32::new(1);

/// Number of those that run the task.
static ACTIVE: AtomicU32 = AtomicU32::new(1);

/// Interrupts that were sent to halted CPUs.
static WAKES: AtomicU64 = AtomicU64::new(0);

/// CPU with this number.
struct NumberedCpu(u32);

impl Cpu for NumberedCpu {
    fn block(&self, word: &AtomicU32, seen: u32) {
        if USES_MWAIT.load(SeqCst) {
            return wait_for_write(word, seen);
        }
        let halted_at = &HALTED_AT[self.0 as usize];
        halted_at.store(ptr::from_ref(word).cast_mut(), SeqCst);
        // SAFETY: the interrupt table and its handlers are in place; interrupts are enabled at the end, as before.
        // `sti` enables them after the next instruction, so that an interrupt after the comparison ends the halt.
        unsafe {
            asm!("cli", options(nostack));
            if word.load(SeqCst) == seen {
                asm!("sti", "hlt", options(nostack));
            } else {
                asm!("sti", options(nostack));
            }
        }
        halted_at.store(ptr::null_mut(), SeqCst);
    }

    /// Sends one interrupt per halt.
    fn wake(&self, word: &AtomicU32) {
        let word = ptr::from_ref(word).cast_mut();
        for (number, halted_at) in (0..ACTIVE.load(SeqCst)).zip(&HALTED_AT) {
            let is_halted = halted_at.load(SeqCst) == word
                && halted_at
                    .compare_exchange(word, ptr::null_mut(), SeqCst, SeqCst)
                    .is_ok();
            if is_halted {
                WAKES.fetch_add(1, SeqCst);
                return send_wake(number);
            }
        }
    }
}

/// Waits for a write to `word` while it is `seen`.
fn wait_for_write(word: &AtomicU32, seen: u32) {
    // SAFETY: `cpus` has found the instructions; `monitor` only reads the address.
    unsafe {
        asm!("monitor", in("rax") word.as_ptr(), in("ecx") 0, in("edx") 0, options(nostack));
        if word.load(SeqCst) == seen {
            asm!("mwait", in("eax") 0, in("ecx") 0, options(nostack));
        }
    }
}

/// Returns the CPUs, all `count` of which run. They wait as `policy` says.
///
/// # Errors
/// They have no `mwait`, or the policy is that of Linux.
pub fn cpus(_apic: &Apic, count: u32, policy: WakePolicy) -> Result<&'static dyn Cpus, Reason> {
    if matches!(policy, WakePolicy::HaltPoll | WakePolicy::IdlePoll) {
        return Err("haltpoll and idle-poll are for Linux guests: choose poll:50 for the image");
    }
    let uses_mwait = policy == WakePolicy::Mwait;
    if uses_mwait && __cpuid(1).ecx & HAS_MONITOR == 0 {
        return Err("the CPU does not offer mwait to this machine");
    }
    USES_MWAIT.store(uses_mwait, SeqCst);
    COUNT.store(count, SeqCst);
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
        let boot_cpu = NumberedCpu(0);
        // SAFETY: the other CPUs have finished with it before this function returns. They read the task only after the
        // posts.
        unsafe {
            *TASK.get() = Some(mem::transmute::<&(dyn Fn(u32, &dyn Cpu) + Sync), Task>(
                others,
            ));
        }
        ACTIVE.store(count, SeqCst);
        let started = &STARTED[1..count as usize];
        started.iter().for_each(|it| it.post(&boot_cpu));
        first(&boot_cpu);
        started.iter().for_each(|_| FINISHED.wait(&boot_cpu, 0));
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
}

/// Runs the tasks of a secondary CPU.
pub fn serve(number: u32) -> ! {
    let cpu = NumberedCpu(number);
    loop {
        STARTED[number as usize].wait(&cpu, 0);
        // SAFETY: the boot CPU has written it before its post, and writes it again only when this CPU has finished.
        if let Some(task) = unsafe { *TASK.get() } {
            task(number, &cpu);
        }
        FINISHED.post(&cpu);
    }
}
