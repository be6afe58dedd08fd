//! Cooperative threads: a ring of runnable threads, and a switch between stacks.
//!
//! A yielding thread saves its callee-saved registers on its stack and restores those of the next
//! thread of the ring.

use crate::cpu::Global;
use crate::memory;
use core::arch::naked_asm;
use core::mem::MaybeUninit;
use core::ptr;
use trapline_workloads::{Block, Reason};

/// Size of a stack, in bytes.
pub const STACK: usize = 16 * 1024;

/// Process number of all threads of the image.
const PROCESS: u32 = 1;

/// Thread.
#[repr(C)]
struct Thread {
    /// Stack pointer, while the thread is suspended.
    stack: *mut u64,
    /// Next runnable thread; itself if it is the only one.
    next: *mut Thread,
    /// Number of turns.
    turns: u64,
    /// Process number.
    process: u32,
}

static BOOT_THREAD: Global<MaybeUninit<Thread>> = Global::new(MaybeUninit::uninit());
static CURRENT: Global<*mut Thread> = Global::new(ptr::null_mut());

/// Makes the running code the first thread. Called once, before all other functions.
pub fn begin() {
    // SAFETY: no other references exist yet; `BOOT_THREAD` is a static, so the pointer stays valid.
    unsafe {
        let boot = BOOT_THREAD.get().as_mut_ptr();
        boot.write(Thread {
            stack: ptr::null_mut(),
            next: boot,
            turns: 0,
            process: PROCESS,
        });
        *CURRENT.get() = boot;
    }
}

/// Returns the process number of the current thread. Not inlined, and read as volatile, so that it
/// is a real call each time.
#[inline(never)]
pub fn process() -> u32 {
    // SAFETY: `begin` has set the current thread, and threads are valid while they are in the ring.
    unsafe { (&raw const (**CURRENT.get()).process).read_volatile() }
}

/// Switches to the next runnable thread.
#[inline(never)]
pub fn yield_now() {
    // SAFETY: as in `process`; the stack pointer of the next thread was saved by `switch`, or
    // prepared by `Peer::start`.
    unsafe {
        let current = *CURRENT.get();
        let next = (*current).next;
        if next == current {
            return;
        }
        *CURRENT.get() = next;
        switch(&raw mut (*current).stack, (*next).stack);
    }
}

/// Saves the context of the running thread on its stack and the stack pointer at `from`, then
/// restores the context on the stack `to`.
///
/// # Safety
/// `from` belongs to the running thread, and `to` was saved here by another thread.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(from: *mut *mut u64, to: *mut u64) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// Writes the context of a thread that calls `entry`, with `argument` in `rbx`, below the end of its stack. Returns its stack
/// pointer.
///
/// # Safety
/// `end` is aligned to 16 bytes, and eight words below it are writable and exclusive.
pub unsafe fn prepare(end: *mut u64, entry: unsafe extern "C" fn(), argument: u64) -> *mut u64 {
    // SAFETY: by contract. The last word stands for a return address, so that the stack is aligned as after a call.
    unsafe {
        let context = end.sub(8);
        ptr::write_bytes(context, 0, 8);
        context.add(5).write(argument);
        context.add(6).write(entry as *const () as u64);
        context
    }
}

/// Thread that only yields. Its [`Thread`] is at the top of its stack.
pub struct Peer {
    thread: *mut Thread,
    memory: Block,
}

impl Peer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn start() -> Result<Peer, Reason> {
        let memory =
            memory::allocate_guarded(STACK).ok_or("not enough memory for a second stack")?;
        // SAFETY: the block is exclusive, page-aligned and long enough for the thread at its end and
        // the context below it; no other code changes the ring meanwhile.
        unsafe {
            let thread = memory
                .start
                .as_ptr()
                .add(memory.length)
                .cast::<Thread>()
                .sub(1);
            let context = prepare(thread.cast(), run_peer, 0);
            let current = *CURRENT.get();
            thread.write(Thread {
                stack: context,
                next: (*current).next,
                turns: 0,
                process: PROCESS,
            });
            (*current).next = thread;
            Ok(Peer { thread, memory })
        }
    }

    /// Returns the number of turns.
    #[inline(always)]
    pub fn turns(&self) -> u64 {
        // SAFETY: the thread is valid until `stop`, which consumes the peer.
        unsafe { (&raw const (*self.thread).turns).read_volatile() }
    }

    /// Ends the thread. Called by the thread that started it.
    pub fn stop(self) {
        // SAFETY: the peer is suspended, because its starter runs; outside of the ring it never runs
        // again, and nothing else refers to its stack.
        unsafe {
            (**CURRENT.get()).next = (*self.thread).next;
            memory::release(self.memory);
        }
    }
}

/// Yields forever.
extern "C" fn run_peer() {
    loop {
        // SAFETY: the running thread is the current thread.
        unsafe { (**CURRENT.get()).turns += 1 };
        yield_now();
    }
}
