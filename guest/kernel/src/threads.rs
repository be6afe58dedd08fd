//! Cooperative threads: a ring of runnable ones, and a switch between stacks.
//!
//! A thread that yields saves what the calling convention promises to keep, on
//! its own stack, and takes up what the next one saved. There is no scheduler to
//! ask: the next runnable thread is the next of the ring.

use crate::cpu::Global;
use crate::memory;
use core::arch::naked_asm;
use core::mem::MaybeUninit;
use core::ptr;
use trapline_workloads::{Block, Reason};

/// Bytes of a thread's stack.
const STACK: usize = 16 * 1024;

/// The process that all threads of the image belong to.
const PROCESS: u32 = 1;

/// One thread.
#[repr(C)]
struct Thread {
    /// Its stack pointer, while it does not run.
    stack: *mut u64,
    /// The next runnable thread; itself, if it is alone.
    next: *mut Thread,
    /// How often it was given a turn.
    turns: u64,
    /// Number of the process it belongs to.
    process: u32,
}

static BOOT_THREAD: Global<MaybeUninit<Thread>> = Global::new(MaybeUninit::uninit());
static CURRENT: Global<*mut Thread> = Global::new(ptr::null_mut());

/// Makes what runs now the first thread. Called once, before anything else here.
pub fn begin() {
    // SAFETY: nothing else has a reference to either yet; `BOOT_THREAD` is a
    // static, so the pointer stays good.
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

/// The process number of whoever asks. A real call each time, as a kernel's
/// programs make it: it must neither dissolve into its caller nor be made once
/// for many.
#[inline(never)]
pub fn process() -> u32 {
    // SAFETY: `begin` has set the current thread, and threads live as long as
    // they are in the ring.
    unsafe { (&raw const (**CURRENT.get()).process).read_volatile() }
}

/// Gives the next runnable thread its turn.
#[inline(never)]
pub fn yield_now() {
    // SAFETY: as in `process`; the next thread's stack pointer was saved by
    // `switch`, or laid out by `Peer::start`.
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

/// Saves the running thread's context on its stack and the stack pointer at
/// `from`, then takes up the context that lies on the stack `to`.
///
/// # Safety
/// `from` is the running thread's, and `to` was saved here by another thread.
#[unsafe(naked)]
unsafe extern "C" fn switch(from: *mut *mut u64, to: *mut u64) {
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

/// A thread that does nothing but yield. It lives at the top of its stack.
pub struct Peer {
    thread: *mut Thread,
    memory: Block,
}

impl Peer {
    /// Starts one.
    ///
    /// # Errors
    /// When there is no memory for its stack.
    pub fn start() -> Result<Peer, Reason> {
        let memory =
            memory::allocate_guarded(STACK).ok_or("there is no memory for a second stack")?;
        // SAFETY: the block is ours, aligned to pages and long enough for the
        // thread at its end and the seven words of a context below it; nobody
        // else changes the ring meanwhile.
        unsafe {
            let thread = memory
                .start
                .as_ptr()
                .add(memory.length)
                .cast::<Thread>()
                .sub(1);
            let context = thread.cast::<u64>().sub(8);
            ptr::write_bytes(context, 0, 8);
            context.add(6).write(run_peer as *const () as u64);
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

    /// How many turns it has had.
    #[inline(always)]
    pub fn turns(&self) -> u64 {
        // SAFETY: the thread lives until `stop`, which takes the peer.
        unsafe { (&raw const (*self.thread).turns).read_volatile() }
    }

    /// Ends it, where it stands. Called by the thread that started it.
    pub fn stop(self) {
        // SAFETY: the peer is suspended, for its starter runs; once out of the
        // ring it never runs again, and nothing else points at its stack.
        unsafe {
            (**CURRENT.get()).next = (*self.thread).next;
            memory::release(self.memory);
        }
    }
}

/// The peer's life.
extern "C" fn run_peer() -> ! {
    loop {
        // SAFETY: whoever runs is the current thread.
        unsafe { (**CURRENT.get()).turns += 1 };
        yield_now();
    }
}
