//! Concurrent requests by io_uring.
//!
//! There are twice as many buffers as requests in flight: when a request completes, a prepared one is
//! submitted at once, and only then is the completed buffer verified and filled again. The ring is
//! polled between these steps, so that completions are stamped in time.

use super::{Buffers, Requests, FAILED, NO_MEMORY};
use io_uring::{opcode, squeue, types, IoUring};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use trapline_abi::block::{Access, DiskRequest};
use trapline_workloads::{ticks, Reason};

/// Returns true if io_uring is available.
pub fn is_available() -> bool {
    IoUring::new(1).is_ok()
}

/// Buffer and its request.
#[derive(Clone, Copy)]
struct Slot {
    slot: usize,
    index: usize,
}

struct Engine<'a> {
    requests: &'a Requests<'a>,
    times: &'a mut [DiskRequest],
    /// Dropped before the buffers, so that no request is in flight when they are freed.
    ring: IoUring,
    buffers: Buffers,
    /// Prepared requests.
    ready: VecDeque<Slot>,
    /// Completed requests that are not verified.
    done: VecDeque<Slot>,
    /// Request index of each buffer.
    index_of: Vec<usize>,
    in_flight: usize,
    /// Next request to prepare.
    next: usize,
}

/// Performs one request per slot, or as many as time allows. Returns their number.
pub fn run(requests: &Requests<'_>, slots: &mut [DiskRequest]) -> Result<usize, Reason> {
    let depth = requests.transfer.depth as usize;
    let buffers = Buffers::new(2 * depth, requests.transfer.bytes).ok_or(NO_MEMORY)?;
    let mut engine = Engine {
        requests,
        times: slots,
        ring: IoUring::new(depth as u32).map_err(|_| "io_uring is no longer available")?,
        buffers,
        ready: VecDeque::new(),
        done: VecDeque::new(),
        index_of: vec![0; 2 * depth],
        in_flight: 0,
        next: 0,
    };
    for slot in 0..2 * depth {
        engine.prepare(slot);
    }
    let made = engine.run(depth);
    // No request may be in flight when the buffers are freed.
    engine.drain();
    made
}

impl Engine<'_> {
    fn run(&mut self, depth: usize) -> Result<usize, Reason> {
        loop {
            while self.in_flight < depth && self.submit_next()? {}
            if self.in_flight == 0 && self.done.is_empty() {
                return Ok(self.next);
            }
            self.enter()?;
            self.collect()?;
            if let Some(Slot { slot, index }) = self.done.pop_front() {
                self.requests.after(&self.buffers, slot, index)?;
                self.prepare(slot);
                self.collect()?;
            }
        }
    }

    /// Prepares the buffer in `slot` for the next request, if there is one.
    fn prepare(&mut self, slot: usize) {
        if self.requests.continues_at(self.next) {
            let index = self.next;
            self.next += 1;
            self.index_of[slot] = index;
            self.requests.before(&mut self.buffers, slot, index);
            self.ready.push_back(Slot { slot, index });
        }
    }

    /// Submits a prepared request. Returns false if there is none.
    fn submit_next(&mut self) -> Result<bool, Reason> {
        let Some(Slot { slot, index }) = self.ready.pop_front() else {
            return Ok(false);
        };
        let entry = self.entry(slot, index);
        self.times[index].start = ticks();
        // SAFETY: the file and the buffer are valid until the request completes, which `drain` waits for.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| FAILED)?;
        self.in_flight += 1;
        Ok(true)
    }

    fn entry(&self, slot: usize, index: usize) -> squeue::Entry {
        let file = types::Fd(self.requests.file.as_raw_fd());
        let (address, bytes) = (self.buffers.address(slot), self.requests.transfer.bytes);
        let at = self.requests.offset(index);
        let entry = match self.requests.transfer.access {
            Access::Read => opcode::Read::new(file, address, bytes).offset(at).build(),
            Access::Write | Access::WriteSync => {
                opcode::Write::new(file, address, bytes).offset(at).build()
            }
        };
        entry.user_data(slot as u64)
    }

    /// Passes submissions to the kernel, and waits for a completion if there is nothing else to do.
    fn enter(&mut self) -> Result<(), Reason> {
        let is_idle = self.done.is_empty();
        let has_submissions = !self.ring.submission().is_empty();
        if !is_idle && !has_submissions {
            return Ok(());
        }
        let entered = self.ring.submit_and_wait(usize::from(is_idle));
        match entered {
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(FAILED),
            _ => Ok(()),
        }
    }

    /// Records completions with one timestamp.
    fn collect(&mut self) -> Result<(), Reason> {
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
            self.done.push_back(Slot { slot, index });
            self.in_flight -= 1;
            refused |= entry.result() != self.requests.transfer.bytes as i32;
        }
        (!refused).then_some(()).ok_or(FAILED)
    }

    /// Waits for all requests in flight.
    fn drain(&mut self) {
        while self.in_flight > 0 {
            // An interrupted wait is repeated.
            let _ = self.ring.submit_and_wait(1);
            self.in_flight -= (&mut self.ring.completion()).count();
        }
    }
}
