//! Transfers of workload `block`, as the Linux agent performs them.
//!
//! Buffers are filled before a request and verified after it, outside of the measured time. At
//! depths above 1 there are twice as many buffers as requests in flight: when a request completes, a
//! prepared one is submitted at once, and only then is the completed one verified.

use super::buffers::{Buffers, MAX_BUFFERS};
use super::disk::Disk;
use super::ring::{Kind, Request};
use super::transport::Access;
use trapline_abi::block::{Access as DiskAccess, DiskRequest, Transfer, LARGE};
use trapline_abi::Job;
use trapline_workloads::block::{generation, timed, Places, PREPARED};
use trapline_workloads::{ticks, Reason};

/// Maximum duration of a transfer, in ticks: 10 s at 3 GHz. A slow disk completes fewer requests.
const MAX_TICKS: u64 = 30_000_000_000;

const WRONG: Reason = "the data read is not the content of the disk at that place";

/// A disk and the memory of its requests.
pub struct Target<A> {
    disk: Disk<A>,
    memory: *mut u8,
    bytes: usize,
}

/// Returns the bytes of memory that the transfers of `job` need.
pub fn needed(job: &Job) -> usize {
    let selected = Transfer::ALL.into_iter();
    let selected = selected.filter(|transfer| job.selects(transfer.op));
    let bytes = selected.map(|transfer| buffers(&transfer) * transfer.bytes as usize);
    // The disk is filled by large requests.
    bytes.fold(LARGE as usize, usize::max)
}

fn buffers(transfer: &Transfer) -> usize {
    match transfer.depth {
        1 => 1,
        depth => (2 * depth as usize).min(MAX_BUFFERS),
    }
}

impl<A: Access> Target<A> {
    /// Fills the disk as [`trapline_workloads::System::open_disk`] requires.
    ///
    /// # Errors
    /// The disk is too small, or fails.
    ///
    /// # Safety
    /// `memory` is page-aligned and exclusive, has `bytes`, and its physical address is the same.
    pub unsafe fn new(
        disk: Disk<A>,
        memory: *mut u8,
        bytes: usize,
        job: &Job,
    ) -> Result<Self, Reason> {
        if u64::from(job.disk_mib) * u64::from(LARGE) > disk.bytes() {
            return Err("the disk is smaller than the part to be used");
        }
        // Populates the memory.
        // SAFETY: exclusive by contract.
        unsafe { memory.write_bytes(0, bytes) };
        let mut target = Self {
            disk,
            memory,
            bytes,
        };
        let mut buffers = target.buffers(LARGE);
        for place in 0..u64::from(job.disk_mib) {
            buffers.fill(0, place, PREPARED);
            let request = buffers.request(0, place, Kind::Write);
            target.disk.perform(request)?;
        }
        target.disk.flush()?;
        Ok(target)
    }

    /// Returns true if completions are polled.
    pub fn polls(&self) -> bool {
        self.disk.polls()
    }

    fn buffers(&mut self, bytes: u32) -> Buffers {
        // SAFETY: the memory is exclusive by the contract of `new`, and each transfer ends before the
        // next one has buffers.
        unsafe { Buffers::new(self.memory, self.bytes, bytes) }
    }

    fn run(&mut self, transfer: &Transfer, job: &Job) -> Run<'_, A> {
        Run {
            buffers: self.buffers(transfer.bytes),
            disk: &mut self.disk,
            transfer: *transfer,
            places: Places::new(transfer, transfer.places(job)),
            until: ticks().saturating_add(MAX_TICKS),
        }
    }

    /// See [`trapline_workloads::System::transfer`].
    pub fn transfer(
        &mut self,
        transfer: &Transfer,
        job: &Job,
        slots: &mut [DiskRequest],
    ) -> Result<usize, Reason> {
        let mut run = self.run(transfer, job);
        let made = run.perform(slots);
        // No request may be in flight when the next transfer begins.
        let drained = run.disk.drain();
        made.and_then(|made| drained.map(|()| made))
    }

    /// See [`trapline_workloads::System::read_back`].
    pub fn read_back(&mut self, transfer: &Transfer, job: &Job, made: usize) -> Result<(), Reason> {
        match transfer.access {
            DiskAccess::Read => Ok(()),
            DiskAccess::Write | DiskAccess::WriteSync => self.run(transfer, job).compare(made),
        }
    }
}

/// A transfer in progress.
struct Run<'a, A> {
    disk: &'a mut Disk<A>,
    buffers: Buffers,
    transfer: Transfer,
    places: Places,
    until: u64,
}

/// Queue of buffers.
struct Fifo {
    items: [u8; MAX_BUFFERS],
    first: usize,
    count: usize,
}

impl Fifo {
    const EMPTY: Self = Self {
        items: [0; MAX_BUFFERS],
        first: 0,
        count: 0,
    };

    fn push(&mut self, buffer: usize) {
        self.items[(self.first + self.count) % MAX_BUFFERS] = buffer as u8;
        self.count += 1;
    }

    fn pop(&mut self) -> Option<usize> {
        self.count = self.count.checked_sub(1)?;
        let buffer = self.items[self.first];
        self.first = (self.first + 1) % MAX_BUFFERS;
        Some(buffer.into())
    }
}

/// State of a transfer with several requests in flight.
struct Pipeline<'a> {
    slots: &'a mut [DiskRequest],
    /// Prepared buffers, and completed ones that are not verified.
    ready: Fifo,
    done: Fifo,
    /// Request of each buffer.
    index_of: [usize; MAX_BUFFERS],
    in_flight: u32,
    /// Next request to prepare.
    next: usize,
}

impl<A: Access> Run<'_, A> {
    fn place(&self, index: usize) -> u64 {
        self.places.place(index as u64)
    }

    fn has_time(&self) -> bool {
        ticks() < self.until
    }

    fn kind(&self) -> Kind {
        match self.transfer.access {
            DiskAccess::Read => Kind::Read,
            DiskAccess::Write | DiskAccess::WriteSync => Kind::Write,
        }
    }

    /// Prepares a buffer for request `index`.
    fn before(&mut self, buffer: usize, index: usize) {
        if self.kind() == Kind::Write {
            let place = self.place(index);
            let generation = generation(self.transfer.op);
            self.buffers.fill(buffer, place, generation);
        }
    }

    /// Verifies a buffer after request `index`. Verifying every byte of large requests would take as
    /// long as a fast disk.
    fn after(&self, buffer: usize, index: usize) -> Result<(), Reason> {
        let stamps_only = self.transfer.bytes == LARGE && self.transfer.depth > 1;
        let is_right = self.kind() == Kind::Write || {
            let place = self.place(index);
            self.buffers.hold(buffer, place, PREPARED, stamps_only)
        };
        is_right.then_some(()).ok_or(WRONG)
    }

    fn perform(&mut self, slots: &mut [DiskRequest]) -> Result<usize, Reason> {
        let made = match self.transfer.depth {
            1 => self.one_at_a_time(slots)?,
            _ => self.several(slots)?,
        };
        if self.transfer.access != DiskAccess::Read {
            self.disk.flush()?;
        }
        Ok(made)
    }

    fn one_at_a_time(&mut self, slots: &mut [DiskRequest]) -> Result<usize, Reason> {
        for (index, slot) in slots.iter_mut().enumerate() {
            if !self.has_time() {
                return Ok(index);
            }
            self.before(0, index);
            let request = self.buffers.request(0, self.place(index), self.kind());
            let (times, done) = timed(|| self.single(request));
            done?;
            *slot = times;
            self.after(0, index)?;
        }
        Ok(slots.len())
    }

    #[inline(always)]
    fn single(&mut self, request: Request) -> Result<(), Reason> {
        self.disk.perform(request)?;
        match self.transfer.access {
            DiskAccess::WriteSync => self.disk.flush(),
            _ => Ok(()),
        }
    }

    fn several(&mut self, slots: &mut [DiskRequest]) -> Result<usize, Reason> {
        let mut pipeline = Pipeline {
            slots,
            ready: Fifo::EMPTY,
            done: Fifo::EMPTY,
            index_of: [0; MAX_BUFFERS],
            in_flight: 0,
            next: 0,
        };
        for buffer in 0..buffers(&self.transfer) {
            self.prepare(&mut pipeline, buffer);
        }
        loop {
            let before = pipeline.in_flight;
            while pipeline.in_flight < self.transfer.depth && self.submit(&mut pipeline)? {}
            if pipeline.in_flight != before {
                self.disk.notify();
            }
            if pipeline.in_flight == 0 && pipeline.done.count == 0 {
                return Ok(pipeline.next);
            }
            if pipeline.done.count == 0 {
                self.disk.wait()?;
            }
            self.collect(&mut pipeline)?;
            if let Some(buffer) = pipeline.done.pop() {
                self.after(buffer, pipeline.index_of[buffer])?;
                self.prepare(&mut pipeline, buffer);
                self.collect(&mut pipeline)?;
            }
        }
    }

    /// Prepares a buffer for the next request, if there is one.
    fn prepare(&mut self, pipeline: &mut Pipeline<'_>, buffer: usize) {
        if pipeline.next < pipeline.slots.len() && self.has_time() {
            let index = pipeline.next;
            pipeline.next += 1;
            pipeline.index_of[buffer] = index;
            self.before(buffer, index);
            pipeline.ready.push(buffer);
        }
    }

    /// Submits a prepared request. Returns false if there is none.
    fn submit(&mut self, pipeline: &mut Pipeline<'_>) -> Result<bool, Reason> {
        let Some(buffer) = pipeline.ready.pop() else {
            return Ok(false);
        };
        let index = pipeline.index_of[buffer];
        let request = self.buffers.request(buffer, self.place(index), self.kind());
        pipeline.slots[index].start = ticks();
        self.disk.submit(&request)?;
        pipeline.in_flight += 1;
        Ok(true)
    }

    /// Records completions with one timestamp.
    fn collect(&mut self, pipeline: &mut Pipeline<'_>) -> Result<(), Reason> {
        let mut now = None;
        while let Some(tag) = self.disk.complete()? {
            let buffer = usize::from(tag);
            let index = pipeline.index_of[buffer];
            pipeline.slots[index].end = *now.get_or_insert_with(ticks);
            pipeline.done.push(buffer);
            pipeline.in_flight -= 1;
        }
        Ok(())
    }

    /// Compares the disk with what the first `made` requests have written.
    fn compare(&mut self, made: usize) -> Result<(), Reason> {
        for index in 0..made {
            let place = self.place(index);
            let request = self.buffers.request(0, place, Kind::Read);
            self.disk.perform(request)?;
            let generation = generation(self.transfer.op);
            if !self.buffers.hold(0, place, generation, false) {
                return Err("the disk does not have the written content");
            }
        }
        Ok(())
    }
}
