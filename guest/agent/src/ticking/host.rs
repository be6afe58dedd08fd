//! Structure of a virtual machine without a hypervisor: a process waits for a timer in a blocking call
//! and interrupts another one by a signal. They share a page with the layout of the VMM's timer.

use super::signal::{self, Signal};
use crate::clock::{monotonic_ns, sleep_until, TickClock};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use trapline_abi::platform::PAGE;
use trapline_abi::ticker::{at, slot};
use trapline_abi::Interrupt;
use trapline_workloads::irq::{Arrival, InterruptLog, TimerWindow};
use trapline_workloads::{ticks, Reason};

/// Handles the expiries of one window.
///
/// # Errors
/// A second process cannot be started.
pub fn run(
    clock: &TickClock,
    window: &TimerWindow,
    log: &mut InterruptLog<'_>,
) -> Result<(), Reason> {
    let page = Page::new().map_err(|_| "no page can be shared with another process")?;
    // SAFETY: the page is valid until the end of this function; the signal is dropped before it.
    let mut signal = unsafe { Signal::open(page.word(at::RAISED)) }
        .map_err(|_| "the handler of a signal cannot be set")?;
    let timer = TimerProcess::start(clock, window, &page)
        .map_err(|_| "no second process can be started")?;
    let mut last = 0;
    while last < u64::from(window.expiries) {
        let seen = signal.wait(window.wait_mode);
        if seen.raised > last {
            log.push(page.interrupt(window.first, seen.raised, &seen.arrival));
        }
        last = last.max(seen.raised);
    }
    drop(timer);
    Ok(())
}

/// Page shared by two processes.
struct Page(*mut u8);

impl Page {
    fn new() -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Self(start.cast())),
        }
    }

    fn word(&self, offset: usize) -> *mut AtomicU64 {
        self.0.wrapping_add(offset).cast()
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offsets of the layout are aligned and within the page.
        unsafe { &*self.word(offset) }
    }

    /// Returns the interrupt of the expiry with this number.
    fn interrupt(&self, first: u64, raised: u64, arrival: &Arrival) -> Interrupt {
        let slot = slot(raised);
        let read = |offset| self.at(slot + offset).load(Ordering::Relaxed);
        Interrupt {
            sequence: first + raised - 1,
            due: read(at::DUE),
            uncertainty: 0,
            woke: Some(read(at::WOKE)),
            marked: Some(read(at::MARKED)),
            entered: arrival.entered,
            done: arrival.done,
            resumed: arrival.resumed,
            found: arrival.found,
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, no longer used.
        unsafe { libc::munmap(self.0.cast(), PAGE as usize) };
    }
}

/// Process with the timer. Dropping it waits for its exit.
struct TimerProcess(libc::pid_t);

impl TimerProcess {
    fn start(clock: &TickClock, window: &TimerWindow, page: &Page) -> io::Result<Self> {
        let waiting = Thread::this();
        // SAFETY: this process has one thread; the child makes system calls only and
        // never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => run_timer_process(clock, window, page, &waiting),
            child => Ok(Self(child)),
        }
    }
}

impl Drop for TimerProcess {
    fn drop(&mut self) {
        // SAFETY: a child of this process that no other code waits for.
        unsafe { libc::waitpid(self.0, ptr::null_mut(), 0) };
    }
}

/// Thread of a process.
struct Thread {
    process: libc::pid_t,
    thread: libc::pid_t,
}

impl Thread {
    fn this() -> Self {
        // SAFETY: take no arguments.
        let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
        Self { process, thread }
    }

    /// Sends the signal. Returns false if the thread has exited.
    fn interrupt(&self) -> bool {
        // SAFETY: numbers only.
        unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.thread, signal::NUMBER) == 0 }
    }
}

/// Runs in the child: raises every expiry and exits, at the latest with its parent.
fn run_timer_process(clock: &TickClock, window: &TimerWindow, page: &Page, waiting: &Thread) -> ! {
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let period_ns = clock.ns(window.period);
    let begun = monotonic_ns();
    for number in 1..=u64::from(window.expiries) {
        let due_ns = begun + number * period_ns;
        sleep_until(due_ns);
        let woke = ticks();
        let late = clock.ticks(monotonic_ns().saturating_sub(due_ns));
        let slot = slot(number);
        let write = |offset, value| page.at(slot + offset).store(value, Ordering::Relaxed);
        write(at::DUE, woke - late);
        write(at::WOKE, woke);
        write(at::MARKED, ticks());
        page.at(at::RAISED).store(number, Ordering::Release);
        if !waiting.interrupt() {
            break;
        }
    }
    // SAFETY: the child of a fork exits without the exit handlers of its parent.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_interrupts;
    use super::*;
    use trapline_workloads::irq::TimerSource;

    #[test]
    fn timestamps_are_in_order() {
        check_interrupts(TimerSource::Host, 7, run, |_, interrupt| {
            let times = [
                interrupt.due,
                interrupt.woke.unwrap(),
                interrupt.marked.unwrap(),
                interrupt.entered,
                interrupt.done,
                interrupt.resumed,
            ];
            assert!(times.is_sorted(), "{interrupt:?}");
        });
    }
}
