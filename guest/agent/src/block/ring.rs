//! Many requests at a time through io_uring.
//!
//! There are twice as many buffers as requests under way: when one is done, another that
//! is ready takes its place at once, and only then is looked at what was read, or made
//! what will be written. Between any two of these the ring is looked at, so that a
//! request is not taken for late because somebody was busy.

use super::{Buffers, Requests, FAILED, NO_MEMORY};
use io_uring::{opcode, squeue, types, IoUring};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use trapline_abi::block::{Kind, Request};
use trapline_workloads::{ticks, Reason};

/// Whether the kernel lets this process have one.
pub fn is_there() -> bool {
    IoUring::new(1).is_ok()
}

/// A buffer, and the request that it is for.
#[derive(Clone, Copy)]
struct Job {
    slot: usize,
    index: usize,
}

struct Engine<'a> {
    requests: &'a Requests<'a>,
    times: &'a mut [Request],
    /// Dropped before the buffers: nothing is under way any more when it is gone.
    ring: IoUring,
    buffers: Buffers,
    /// Not made yet.
    ready: VecDeque<Job>,
    /// Done, and not looked at.
    done: VecDeque<Job>,
    /// The request of each buffer.
    index_of: Vec<usize>,
    under_way: usize,
    /// The next request that nobody has prepared.
    next: usize,
}

/// Makes requests, as many as there are slots or time.
pub fn make(requests: &Requests<'_>, slots: &mut [Request]) -> Result<usize, Reason> {
    let depth = requests.transfer.depth as usize;
    let buffers = Buffers::new(2 * depth, requests.transfer.bytes).ok_or(NO_MEMORY)?;
    let mut engine = Engine {
        requests,
        times: slots,
        ring: IoUring::new(depth as u32).map_err(|_| "io_uring is there no more")?,
        buffers,
        ready: VecDeque::new(),
        done: VecDeque::new(),
        index_of: vec![0; 2 * depth],
        under_way: 0,
        next: 0,
    };
    for slot in 0..2 * depth {
        engine.prepare(slot);
    }
    let made = engine.run(depth);
    // Nothing may be written to the buffers when they are gone.
    engine.drain();
    made
}

impl Engine<'_> {
    fn run(&mut self, depth: usize) -> Result<usize, Reason> {
        loop {
            while self.under_way < depth && self.make_next()? {}
            if self.under_way == 0 && self.done.is_empty() {
                return Ok(self.next);
            }
            self.enter()?;
            self.take_done()?;
            if let Some(Job { slot, index }) = self.done.pop_front() {
                self.requests.after(&self.buffers, slot, index)?;
                self.prepare(slot);
                self.take_done()?;
            }
        }
    }

    /// Makes the buffer in `slot` ready for the next request, if there is one.
    fn prepare(&mut self, slot: usize) {
        if self.requests.goes_on(self.next) {
            let index = self.next;
            self.next += 1;
            self.index_of[slot] = index;
            self.requests.before(&mut self.buffers, slot, index);
            self.ready.push_back(Job { slot, index });
        }
    }

    /// Makes a request that is ready; whether there was one.
    fn make_next(&mut self) -> Result<bool, Reason> {
        let Some(Job { slot, index }) = self.ready.pop_front() else {
            return Ok(false);
        };
        let entry = self.entry(slot, index);
        self.times[index].start = ticks();
        // SAFETY: the file is open and the buffer there until the request is done, which
        // `drain` waits for.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| FAILED)?;
        self.under_way += 1;
        Ok(true)
    }

    fn entry(&self, slot: usize, index: usize) -> squeue::Entry {
        let file = types::Fd(self.requests.file.as_raw_fd());
        let (address, bytes) = (self.buffers.address(slot), self.requests.transfer.bytes);
        let at = self.requests.offset(index);
        let entry = match self.requests.transfer.kind {
            Kind::Read => opcode::Read::new(file, address, bytes).offset(at).build(),
            Kind::Write | Kind::WriteSync => {
                opcode::Write::new(file, address, bytes).offset(at).build()
            }
        };
        entry.user_data(slot as u64)
    }

    /// Gives the kernel what was made, and waits if there is nothing else to do.
    fn enter(&mut self) -> Result<(), Reason> {
        let is_idle = self.done.is_empty();
        let has_made = !self.ring.submission().is_empty();
        if !is_idle && !has_made {
            return Ok(());
        }
        let entered = self.ring.submit_and_wait(usize::from(is_idle));
        match entered {
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(FAILED),
            _ => Ok(()),
        }
    }

    /// Notes what is done, at one moment.
    fn take_done(&mut self) -> Result<(), Reason> {
        let mut completion = self.ring.completion();
        if completion.is_empty() {
            return Ok(());
        }
        let now = ticks();
        let mut refused = false;
        for entry in &mut completion {
            let slot = entry.user_data() as usize;
            let index = self.index_of[slot];
            self.times[index].end = now;
            self.done.push_back(Job { slot, index });
            self.under_way -= 1;
            refused |= entry.result() != self.requests.transfer.bytes as i32;
        }
        (!refused).then_some(()).ok_or(FAILED)
    }

    /// Waits for all that is under way.
    fn drain(&mut self) {
        while self.under_way > 0 {
            // A wait that was interrupted is begun again.
            let _ = self.ring.submit_and_wait(1);
            self.under_way -= (&mut self.ring.completion()).count();
        }
    }
}
