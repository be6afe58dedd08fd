//! Boot CPU and first secondary CPU as the pair that workload `ipc` measures.

use crate::cpu::{pause, Global};
use crate::interrupts::{send_wake, Apic};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::SeqCst};
use trapline_abi::job::WakePolicy;
use trapline_workloads::semaphore::{Cpu, Semaphore};
use trapline_workloads::{CpuPair, Reason};

/// Number of the secondary CPU of the pair.
const SECOND: u32 = 1;

/// Bit of `monitor` and `mwait` in `ecx` of cpuid leaf 1.
const HAS_MONITOR: u32 = 1 << 3;

/// Function that the second CPU runs.
type Task = &'static (dyn Fn(&dyn Cpu) + Sync);

/// Set by the boot CPU before it posts [`STARTED`], read by the second CPU after that.
static TASK: Global<Option<Task>> = Global::new(None);
static STARTED: Semaphore = Semaphore::new(0);
static FINISHED: Semaphore = Semaphore::new(0);

/// CPUs wait with `mwait` instead of `hlt`.
static USES_MWAIT: AtomicBool = AtomicBool::new(false);

/// Words at which the CPUs of the pair are halted, or are about to halt; null otherwise.
static HALTED_AT: [AtomicPtr<AtomicU32>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

/// CPU of the pair.
struct PairCpu {
    number: u32,
}

const BOOT_CPU: PairCpu = PairCpu { number: 0 };
const SECOND_CPU: PairCpu = PairCpu { number: SECOND };

impl Cpu for PairCpu {
    fn block(&self, word: &AtomicU32, seen: u32) {
        if USES_MWAIT.load(SeqCst) {
            return wait_for_write(word, seen);
        }
        let halted_at = &HALTED_AT[self.number as usize];
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
        let other = SECOND - self.number;
        let halted_at = &HALTED_AT[other as usize];
        let word = ptr::from_ref(word).cast_mut();
        let is_halted = halted_at.compare_exchange(word, ptr::null_mut(), SeqCst, SeqCst);
        if is_halted.is_ok() {
            send_wake(other);
        }
    }
}

/// Waits for a write to `word` while it is `seen`.
fn wait_for_write(word: &AtomicU32, seen: u32) {
    // SAFETY: `pair` has found the instructions; `monitor` only reads the address.
    unsafe {
        asm!("monitor", in("rax") word.as_ptr(), in("ecx") 0, in("edx") 0, options(nostack));
        if word.load(SeqCst) == seen {
            asm!("mwait", in("eax") 0, in("ecx") 0, options(nostack));
        }
    }
}

/// Returns the pair, which runs. Its CPUs wait as `policy` says.
///
/// # Errors
/// The CPUs have no `mwait`.
pub fn pair(_apic: &Apic, policy: WakePolicy) -> Result<&'static dyn CpuPair, Reason> {
    let uses_mwait = policy == WakePolicy::Mwait;
    if uses_mwait && __cpuid(1).ecx & HAS_MONITOR == 0 {
        return Err("the CPU does not offer mwait to this machine");
    }
    USES_MWAIT.store(uses_mwait, SeqCst);
    Ok(&Pair)
}

struct Pair;

impl CpuPair for Pair {
    fn run_beside(
        &self,
        second: &(dyn Fn(&dyn Cpu) + Sync),
        first: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason> {
        // SAFETY: the second CPU has finished with it before this function returns. It reads the task only after the
        // post.
        unsafe {
            *TASK.get() = Some(mem::transmute::<&(dyn Fn(&dyn Cpu) + Sync), Task>(second));
        }
        STARTED.post(&BOOT_CPU);
        first(&BOOT_CPU);
        FINISHED.wait(&BOOT_CPU, 0);
        Ok(())
    }
}

/// Runs the tasks of the pair. CPUs beyond it halt.
pub fn serve(number: u32) -> ! {
    while number == SECOND {
        STARTED.wait(&SECOND_CPU, 0);
        // SAFETY: the boot CPU has written it before its post, and writes it again only after the next one.
        if let Some(task) = unsafe { *TASK.get() } {
            task(&SECOND_CPU);
        }
        FINISHED.post(&SECOND_CPU);
    }
    loop {
        // SAFETY: halts this CPU, which has nothing to do.
        unsafe { asm!("hlt", options(nomem, nostack)) };
        pause();
    }
}
