//! Run queues: the threads of a CPU, of which one runs until it blocks.
//!
//! A CPU has up to two threads. A thread is runnable unless it is blocked at a word. Any CPU makes a blocked thread runnable
//! again, but only the thread's own CPU runs it; a CPU without a runnable thread halts until an interrupt.

use crate::cpu::Global;
use crate::interrupts::send_wake;
use crate::memory;
use crate::threads;
use core::arch::{asm, naked_asm};
use core::mem;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst};
use trapline_abi::job::MOST_CPUS;
use trapline_workloads::semaphore::{Cpu, Semaphore};
use trapline_workloads::Reason;

const CPUS: usize = MOST_CPUS as usize;
const THREADS: usize = 2 * CPUS;

/// Function that threads run, with their number.
type Task<'a> = dyn Fn(u32, &dyn Cpu) + Sync + 'a;

static TASK: Global<Option<&'static Task<'static>>> = Global::new(None);

/// CPUs wait with `mwait` instead of `hlt`.
pub static USES_MWAIT: AtomicBool = AtomicBool::new(false);

/// Number of CPUs, the boot CPU included. Set before a secondary CPU starts.
pub static COUNT: AtomicU32 = AtomicU32::new(1);

/// Number of threads that run the task.
pub static ACTIVE: AtomicU32 = AtomicU32::new(1);

/// Interrupts that were sent to halted CPUs.
pub static WAKES: AtomicU64 = AtomicU64::new(0);

/// Words at which threads are blocked; null if they are runnable.
static BLOCKED_AT: [AtomicPtr<AtomicU32>; THREADS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; THREADS];

/// CPUs that are halted, or are about to halt.
static IS_HALTED: [AtomicBool; CPUS] = [const { AtomicBool::new(false) }; CPUS];

/// Stack pointers of threads that do not run.
static SUSPENDED: [AtomicPtr<u64>; THREADS] = [const { AtomicPtr::new(ptr::null_mut()) }; THREADS];

/// Stacks of the second threads, which are never released.
static STACKS: [AtomicPtr<u8>; CPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; CPUS];

/// Posted by the second thread of a CPU at its end.
static ENDED: [Semaphore; CPUS] = [const { Semaphore::new(0) }; CPUS];

/// Thread with this number. Number `n` is the first thread of CPU `n`, and `COUNT + n` the second one.
#[derive(Clone, Copy)]
pub struct Thread(pub u32);

impl Cpu for Thread {
    /// Runs the other thread of this CPU until a wake-up, or halts.
    fn block(&self, word: &AtomicU32, seen: u32) {
        if USES_MWAIT.load(SeqCst) {
            return wait_for_write(word, seen);
        }
        let blocked_at = &BLOCKED_AT[self.0 as usize];
        blocked_at.store(ptr::from_ref(word).cast_mut(), SeqCst);
        if word.load(SeqCst) != seen {
            return blocked_at.store(ptr::null_mut(), SeqCst);
        }
        while !self.is_runnable() {
            match self.other() {
                Some(other) if other.is_runnable() => self.switch_to(other),
                other => self.halt(other),
            }
        }
    }

    /// Makes one thread runnable. Sends an interrupt if its CPU is halted, one per halt.
    fn wake(&self, word: &AtomicU32) {
        let word = ptr::from_ref(word).cast_mut();
        for (number, blocked_at) in (0..ACTIVE.load(SeqCst)).zip(&BLOCKED_AT) {
            let is_woken = blocked_at.load(SeqCst) == word
                && blocked_at
                    .compare_exchange(word, ptr::null_mut(), SeqCst, SeqCst)
                    .is_ok();
            if is_woken {
                let cpu = Thread(number).cpu();
                if IS_HALTED[cpu as usize].swap(false, SeqCst) {
                    WAKES.fetch_add(1, SeqCst);
                    send_wake(cpu);
                }
                return;
            }
        }
    }
}

impl Thread {
    fn cpu(self) -> u32 {
        let count = COUNT.load(SeqCst);
        self.0.checked_sub(count).unwrap_or(self.0)
    }

    /// Returns the other thread of this CPU.
    fn other(self) -> Option<Self> {
        let count = COUNT.load(SeqCst);
        let other = self.0.checked_sub(count).unwrap_or(self.0 + count);
        (other < ACTIVE.load(SeqCst)).then_some(Self(other))
    }

    fn is_runnable(self) -> bool {
        BLOCKED_AT[self.0 as usize].load(SeqCst).is_null()
    }

    /// Halts until an interrupt, unless this thread or the other one is runnable.
    fn halt(self, other: Option<Self>) {
        let is_halted = &IS_HALTED[self.cpu() as usize];
        // SAFETY: the interrupt table and its handlers are in place; interrupts are enabled at the end, as before.
        // `sti` enables them after the next instruction, so that an interrupt after the comparison ends the halt.
        unsafe {
            asm!("cli", options(nostack));
            is_halted.store(true, SeqCst);
            if self.is_runnable() || other.is_some_and(Self::is_runnable) {
                asm!("sti", options(nostack));
            } else {
                asm!("sti", "hlt", options(nostack));
            }
        }
        is_halted.store(false, SeqCst);
    }

    /// Runs the other thread of this CPU until it switches back.
    fn switch_to(self, other: Self) {
        let to = SUSPENDED[other.0 as usize].load(SeqCst);
        // SAFETY: both belong to this CPU, and the other one was suspended here, or prepared by `start_second`.
        unsafe { threads::switch(SUSPENDED[self.0 as usize].as_ptr(), to) };
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

/// Sets what the threads of an operation run. Called by the boot CPU, before it starts them.
///
/// # Safety
/// No thread runs the last task any more, and none runs this one when its lifetime ends.
pub unsafe fn set_task(task: &Task<'_>) {
    // SAFETY: by contract, no other CPU accesses the task now, nor uses it for longer.
    unsafe { *TASK.get() = Some(mem::transmute::<&Task<'_>, &'static Task<'static>>(task)) };
}

/// Runs the task in a thread that was started.
pub fn run_task(thread: &Thread) {
    // SAFETY: the boot CPU does not write it while threads run.
    if let Some(task) = unsafe { *TASK.get() } {
        task(thread.0, thread);
    }
}

/// Makes the second thread of a CPU runnable, which runs the task. Called by the boot CPU, while that thread has ended.
///
/// # Errors
/// Memory is exhausted.
pub fn start_second(cpu: u32) -> Result<(), Reason> {
    let stack = &STACKS[cpu as usize];
    if stack.load(SeqCst).is_null() {
        let block = memory::allocate_guarded(threads::STACK);
        let block = block.ok_or("not enough memory for the stack of a second thread")?;
        stack.store(block.start.as_ptr(), SeqCst);
    }
    let number = COUNT.load(SeqCst) + cpu;
    let stack = NonNull::new(stack.load(SeqCst)).ok_or("there is no stack")?;
    // SAFETY: the stack is exclusive, aligned and as long as that, and the thread does not run.
    let context = unsafe {
        let end = stack.as_ptr().add(threads::STACK).cast::<u64>();
        threads::prepare(end, enter_second, number.into())
    };
    SUSPENDED[number as usize].store(context, SeqCst);
    BLOCKED_AT[number as usize].store(ptr::null_mut(), SeqCst);
    Ok(())
}

/// First function of a second thread, with its number in `rbx`.
#[unsafe(naked)]
unsafe extern "C" fn enter_second() {
    naked_asm!("mov edi, ebx", "jmp {run}", run = sym run_second)
}

extern "C" fn run_second(number: u32) -> ! {
    let thread = Thread(number);
    run_task(&thread);
    let first = Thread(thread.cpu());
    let ended = &ENDED[first.0 as usize];
    ended.post(&thread);
    // No post wakes a thread here, where no thread waits.
    BLOCKED_AT[number as usize].store(NonNull::dangling().as_ptr(), SeqCst);
    loop {
        thread.switch_to(first);
    }
}

/// Waits until the second thread of this CPU, whose first thread is `first`, has ended.
pub fn join_second(first: &Thread) {
    // Second threads have the last numbers.
    if first.other().is_some() {
        ENDED[first.0 as usize].wait(first, 0);
    }
}
