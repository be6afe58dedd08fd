//! The structure of a virtual machine without one: a process that waits for a timer
//! in a blocking call and interrupts another by a signal, and shares a page with it,
//! laid out as that of a VMM's timer.

use super::signal::{self, Signal};
use crate::clock::{monotonic_ns, sleep_until, TickClock};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use trapline_abi::platform::PAGE;
use trapline_abi::ticker::{at, slot};
use trapline_abi::Interrupt;
use trapline_workloads::irq::{Arrival, Taken, Ticking};
use trapline_workloads::{ticks, Reason};

/// Takes the expiries of one window.
///
/// # Errors
/// There can be no second process.
pub fn tick(clock: &TickClock, ticking: &Ticking, taken: &mut Taken<'_>) -> Result<(), Reason> {
    let page = Page::new().map_err(|_| "no page can be shared with another process")?;
    // SAFETY: the page lives until the end of this function, and so does the signal,
    // which is dropped before it.
    let mut signal = unsafe { Signal::open(page.word(at::RAISED)) }
        .map_err(|_| "a signal's handler cannot be set")?;
    let keeper =
        Keeper::start(clock, ticking, &page).map_err(|_| "no second process can be started")?;
    let mut last = 0;
    while last < u64::from(ticking.expiries) {
        let seen = signal.wait(ticking.between);
        if seen.raised > last {
            taken.put(page.told(ticking.first, seen.raised, &seen.arrival));
        }
        last = last.max(seen.raised);
    }
    drop(keeper);
    Ok(())
}

/// A page that two processes share.
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
        // SAFETY: offsets are those of the page's layout: aligned, and within it.
        unsafe { &*self.word(offset) }
    }

    /// The interrupt of the expiry that was raised under this number.
    fn told(&self, first: u64, raised: u64, arrival: &Arrival) -> Interrupt {
        let slot = slot(raised);
        let read = |offset| self.at(slot + offset).load(Ordering::Relaxed);
        Interrupt {
            sequence: first + raised - 1,
            due: read(at::DUE),
            doubt: 0,
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
        // SAFETY: mapped in `new`, and used no more.
        unsafe { libc::munmap(self.0.cast(), PAGE as usize) };
    }
}

/// The process that keeps time. Dropping it waits for its end.
struct Keeper(libc::pid_t);

impl Keeper {
    fn start(clock: &TickClock, ticking: &Ticking, page: &Page) -> io::Result<Self> {
        let waiting = Thread::this();
        // SAFETY: this process has one thread; the child makes system calls only and
        // never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => keep_time(clock, ticking, page, &waiting),
            child => Ok(Self(child)),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // SAFETY: a child of ours that nobody else waits for.
        unsafe { libc::waitpid(self.0, ptr::null_mut(), 0) };
    }
}

/// A thread of some process.
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

    /// Interrupts it; false if it is there no more.
    fn interrupt(&self) -> bool {
        // SAFETY: numbers only.
        unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.thread, signal::NUMBER) == 0 }
    }
}

/// The child's life: it raises every expiry and ends, with its parent if that ends
/// before.
fn keep_time(clock: &TickClock, ticking: &Ticking, page: &Page, waiting: &Thread) -> ! {
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let period_ns = clock.ns(ticking.period);
    let begun = monotonic_ns();
    for number in 1..=u64::from(ticking.expiries) {
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
    // SAFETY: the child of a fork ends without what its parent would do at its end.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::take_some;
    use super::*;
    use trapline_workloads::irq::Source;

    #[test]
    fn the_points_of_the_way_come_in_order() {
        take_some(Source::Host, 7, tick, |_, told| {
            let way = [told.woke, told.marked].map(Option::unwrap);
            let way = [
                told.due,
                way[0],
                way[1],
                told.entered,
                told.done,
                told.resumed,
            ];
            assert!(way.is_sorted(), "{told:?}");
        });
    }
}
