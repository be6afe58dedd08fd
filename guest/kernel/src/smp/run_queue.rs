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
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Release, SeqCst},
};
use trapline_abi::job::MOST_CPUS;
use trapline_workloads::semaphore::{Cpu, Semaphore};
use trapline_workloads::Reason;

/// Function that threads run, with their number.
type Task<'a> = dyn Fn(u32, &dyn Cpu) + Sync + 'a;

static TASK: Global<Option<&'static Task<'static>>> = Global::new(None);

/// CPUs wait with `mwait` instead of `hlt`.
pub static USES_MWAIT: AtomicBool = AtomicBool::new(false);

/// Number of CPUs, the boot CPU included. Set before a secondary CPU starts.
pub static COUNT: AtomicU32 = AtomicU32::new(1);

/// Number of CPUs whose threads run the task.
pub static ACTIVE: AtomicU32 = AtomicU32::new(1);

/// Interrupts that were sent to halted CPUs.
pub static WAKES: AtomicU64 = AtomicU64::new(0);

/// Word at which a thread is blocked that does not exist: no post wakes it.
const NEVER: *mut AtomicU32 = NonNull::dangling().as_ptr();

/// Threads of a CPU, the first and the second one.
#[repr(align(128))]
struct RunQueue {
    /// Words at which they are blocked; null if they are runnable.
    blocked_at: [AtomicPtr<AtomicU32>; 2],
    /// The CPU is halted, or is about to halt.
    is_halted: AtomicBool,
    /// Stack pointers, while they do not run.
    suspended: [AtomicPtr<u64>; 2],
    /// Stack of the second one, which is never released.
    stack: AtomicPtr<u8>,
    /// There is a second one.
    has_second: AtomicBool,
    /// Posted by the second one at its end.
    ended: Semaphore,
}

static QUEUES: [RunQueue; MOST_CPUS as usize] = [const {
    RunQueue {
        blocked_at: [AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(NEVER)],
        is_halted: AtomicBool::new(false),
        suspended: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
        stack: AtomicPtr::new(ptr::null_mut()),
        has_second: AtomicBool::new(false),
        ended: Semaphore::new(0),
    }
}; MOST_CPUS as usize];

/// Thread of a CPU.
#[derive(Clone, Copy)]
pub struct Thread {
    cpu: u32,
    queue: &'static RunQueue,
    is_second: bool,
}

impl Cpu for Thread {
    /// Runs the other thread of this CPU until a wake-up, or halts.
    fn block(&self, word: &AtomicU32, seen: u32) {
        if USES_MWAIT.load(SeqCst) {
            return wait_for_write(word, seen);
        }
        let blocked_at = self.blocked_at();
        blocked_at.store(ptr::from_ref(word).cast_mut(), SeqCst);
        if word.load(SeqCst) != seen {
            return blocked_at.store(ptr::null_mut(), SeqCst);
        }
        while !self.is_runnable() {
            if self.other().is_runnable() {
                self.switch_to_other()
            } else {
                self.halt()
            }
        }
    }

    /// Makes one thread runnable. Sends an interrupt if its CPU is halted, one per halt.
    fn wake(&self, word: &AtomicU32) {
        let word = ptr::from_ref(word).cast_mut();
        for (cpu, queue) in (0..ACTIVE.load(SeqCst)).zip(&QUEUES) {
            for blocked_at in &queue.blocked_at {
                let is_woken = blocked_at.load(SeqCst) == word
                    && blocked_at
                        .compare_exchange(word, ptr::null_mut(), SeqCst, SeqCst)
                        .is_ok();
                if is_woken {
                    if queue.is_halted.swap(false, SeqCst) {
                        WAKES.fetch_add(1, SeqCst);
                        send_wake(cpu);
                    }
                    return;
                }
            }
        }
    }
}

impl Thread {
    /// Returns the first thread of a CPU.
    pub fn first(cpu: u32) -> Self {
        Self {
            cpu,
            queue: &QUEUES[cpu as usize],
            is_second: false,
        }
    }

    fn other(self) -> Self {
        Self {
            is_second: !self.is_second,
            ..self
        }
    }

    fn blocked_at(self) -> &'static AtomicPtr<AtomicU32> {
        &self.queue.blocked_at[usize::from(self.is_second)]
    }

    fn suspended(self) -> &'static AtomicPtr<u64> {
        &self.queue.suspended[usize::from(self.is_second)]
    }

    fn is_runnable(self) -> bool {
        self.blocked_at().load(SeqCst).is_null()
    }

    /// Halts until an interrupt, unless a thread of this CPU is runnable.
    fn halt(self) {
        let is_halted = &self.queue.is_halted;
        // SAFETY: the interrupt table and its handlers are in place; interrupts are enabled at the end, as before.
        // `sti` enables them after the next instruction, so that an interrupt after the comparison ends the halt.
        unsafe {
            asm!("cli", options(nostack));
            is_halted.store(true, SeqCst);
            if self.is_runnable() || self.other().is_runnable() {
                asm!("sti", options(nostack));
            } else {
                asm!("sti", "hlt", options(nostack));
            }
        }
        is_halted.store(false, Release);
    }

    /// Runs the other thread until it switches back.
    fn switch_to_other(self) {
        let to = self.other().suspended().load(SeqCst);
        // SAFETY: both belong to this CPU, and the other one was suspended here, or prepared by `start_second`.
        unsafe { threads::switch(self.suspended().as_ptr(), to) };
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
    let first = if thread.is_second {
        COUNT.load(SeqCst)
    } else {
        0
    };
    // SAFETY: the boot CPU does not write it while threads run.
    if let Some(task) = unsafe { *TASK.get() } {
        task(first + thread.cpu, thread);
    }
}

/// Allocates the stack of a CPU's second thread, unless it has one. Called by the boot CPU.
///
/// # Errors
/// Memory is exhausted.
pub fn allocate_stack(cpu: u32) -> Result<(), Reason> {
    let stack = &QUEUES[cpu as usize].stack;
    if stack.load(SeqCst).is_null() {
        let block = memory::allocate_guarded(threads::STACK);
        let block = block.ok_or("not enough memory for the stack of a second thread")?;
        stack.store(block.start.as_ptr(), SeqCst);
    }
    Ok(())
}

/// Makes the second thread of a CPU runnable, which runs the task. Called by the boot CPU, after [`allocate_stack`] and
/// [`set_task`], while that thread does not exist.
pub fn start_second(cpu: u32) {
    let thread = Thread::first(cpu).other();
    let queue = thread.queue;
    // SAFETY: the stack is exclusive, aligned and as long as that, and no thread runs on it.
    let context = unsafe {
        let end = queue.stack.load(SeqCst).add(threads::STACK).cast::<u64>();
        threads::prepare(end, enter_second, cpu.into())
    };
    thread.suspended().store(context, SeqCst);
    queue.has_second.store(true, SeqCst);
    thread.blocked_at().store(ptr::null_mut(), SeqCst);
}

/// First function of a second thread, with the number of its CPU in `rbx`.
#[unsafe(naked)]
unsafe extern "C" fn enter_second() {
    naked_asm!("mov edi, ebx", "jmp {run}", run = sym run_second)
}

extern "C" fn run_second(cpu: u32) -> ! {
    let thread = Thread::first(cpu).other();
    run_task(&thread);
    thread.queue.ended.post(&thread);
    thread.blocked_at().store(NEVER, SeqCst);
    loop {
        thread.switch_to_other();
    }
}

/// Waits until the second thread of this CPU, whose first thread is `first`, has ended.
pub fn join_second(first: &Thread) {
    if first.queue.has_second.swap(false, SeqCst) {
        first.queue.ended.wait(first, 0);
    }
}
