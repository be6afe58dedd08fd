//! Write-back of dirty pages.
//!
//! A write changes pages of the cache only. Dirty pages are written to the disk when a call asks for it ([`Cache::sync`]),
//! when there are [`MAX_DIRTY`], and when the clock would replace one: the writer or reader that causes this submits them in
//! the order of their sectors. Pages with adjacent frames and sectors are one request.
//!
//! A writer waits while its page is being written, as Linux does for disks that need stable pages
//! (mm/page-writeback.c, `folio_wait_stable`). So the disk never gets a part of a write to a page.
//!
//! After an error the driver resets the disk, and all later requests fail. What was being written is dirty again, and no
//! later [`Cache::sync`] succeeds.

use super::{Cache, Key, Source, State, FRAMES, PAGE, SECTORS};
use crate::files::read_ahead::LARGEST;
use crate::virtio::{Access, Disk, Kind, Request, SECTOR};
use core::ops::Range;
use trapline_workloads::Reason;

/// Number of dirty pages at which the writer writes them back: a quarter of the cache. It first waits for what is being
/// written, so that dirty pages and those being written are half of the cache at most, and half is left to readers.
pub const MAX_DIRTY: usize = FRAMES / 4;

/// Sectors of all files.
pub const ALL: Range<u64> = 0..u64::MAX;

/// Maximum number of pages of a request, as of one that reads ahead.
const MAX_RUN: usize = LARGEST as usize;

/// Sectors of a page on the disk. The last page of a file may have fewer than the others.
#[derive(Clone, Copy)]
struct Place {
    sector: u64,
    count: u64,
}

impl Place {
    fn of(source: &Source, page: u64) -> Self {
        let before = page * SECTORS;
        let left = source.extent.bytes.div_ceil(SECTOR) - before;
        Self {
            sector: source.extent.sector + before,
            count: left.min(SECTORS),
        }
    }

    fn end(self) -> u64 {
        self.sector + self.count
    }
}

/// Memory of the tables. All zero is valid.
pub struct Tables {
    /// Places of the pages in frames that are dirty or being written.
    places: [Place; FRAMES],
    /// The dirty frames, in the order of their sectors. The data of a file is contiguous, and so are its frames here.
    frames: [u16; FRAMES],
}

/// Dirty pages of a cache.
pub struct DirtyPages<'a> {
    tables: &'a mut Tables,
    /// Their number.
    count: usize,
    /// Pages written back so far.
    pub written: u64,
}

impl<'a> DirtyPages<'a> {
    /// Creates an empty set.
    pub fn new(tables: &'a mut Tables) -> Self {
        Self {
            tables,
            count: 0,
            written: 0,
        }
    }

    fn insert(&mut self, frame: usize) {
        let at = self.index(self.place(frame).sector);
        self.tables.frames.copy_within(at..self.count, at + 1);
        self.tables.frames[at] = frame as u16;
        self.count += 1;
    }

    /// Returns the index of the first page from `sector` on.
    fn index(&self, sector: u64) -> usize {
        let frames = &self.tables.frames[..self.count];
        frames.partition_point(|frame| self.place((*frame).into()).sector < sector)
    }

    fn place(&self, frame: usize) -> Place {
        self.tables.places[frame]
    }

    /// Returns first frame and number of the pages that are one request: adjacent ones from index `start`, before `end`.
    fn run(&self, start: usize, end: usize) -> (usize, usize) {
        let frames = &self.tables.frames[start..end];
        let is_next = |pair: &[u16]| {
            let [one, next] = [pair[0], pair[1]].map(usize::from);
            next == one + 1 && self.place(next).sector == self.place(one).end()
        };
        let further = frames.windows(2).take(MAX_RUN - 1);
        (
            frames[0].into(),
            1 + further.take_while(|pair| is_next(pair)).count(),
        )
    }
}

impl Cache<'_> {
    /// Overwrites a part of a page from byte `start`, and counts a hit or a miss. A page of which only a part is overwritten
    /// is read before.
    ///
    /// # Errors
    /// The disk fails. The page may be changed nevertheless, and is then dirty.
    pub fn write<A: Access>(
        &mut self,
        disk: &mut Disk<A>,
        source: &Source,
        page: u64,
        start: usize,
        bytes: &[u8],
    ) -> Result<(), Reason> {
        let is_whole = bytes.len() == PAGE;
        if !is_whole {
            let wanted = |is_missing: bool| is_missing.then_some(page..page + 1);
            self.page(disk, source, page, wanted)?;
        }
        let key = Key {
            file: source.number,
            page: page as u32,
        };
        let found = self.find(key);
        if is_whole {
            self.count(found);
        }
        let frame = match found {
            Some(frame) => frame,
            None => {
                let frame = self.take(disk)?;
                self.insert(frame, key, State::Valid);
                frame
            }
        };
        while matches!(self.frames[frame].state, State::Reading | State::Writing) {
            self.wait(disk)?;
        }
        if is_whole {
            self.frames[frame].mark_used();
        }
        // SAFETY: a frame of the memory, to which no other reference exists, and which no request in flight accesses.
        let content = unsafe { &mut *self.address(frame).cast::<[u8; PAGE]>() };
        content[start..start + bytes.len()].copy_from_slice(bytes);
        if self.frames[frame].state != State::Dirty {
            self.frames[frame].state = State::Dirty;
            self.dirty.tables.places[frame] = Place::of(source, page);
            self.dirty.insert(frame);
        }
        if self.dirty.count < MAX_DIRTY {
            return Ok(());
        }
        self.await_all(disk)?;
        self.write_back(disk, ALL)
    }

    /// Makes all writes to a file durable: writes its dirty pages, and when these requests are complete flushes the disk.
    ///
    /// # Errors
    /// The disk fails. Pages that may not be on the disk are dirty.
    pub fn sync<A: Access>(&mut self, disk: &mut Disk<A>, source: &Source) -> Result<(), Reason> {
        self.write_back(disk, source.sectors())?;
        self.await_all(disk)?;
        disk.flush()
    }

    /// Submits the dirty pages in this range of sectors, in their order.
    pub(super) fn write_back<A: Access>(
        &mut self,
        disk: &mut Disk<A>,
        sectors: Range<u64>,
    ) -> Result<(), Reason> {
        let [start, end] = [sectors.start, sectors.end].map(|sector| self.dirty.index(sector));
        let mut next = start;
        while next < end {
            let (first, length) = self.dirty.run(next, end);
            self.submit_write(disk, first, length)?;
            next += length;
        }
        let left = end..self.dirty.count;
        self.dirty.tables.frames.copy_within(left, start);
        self.dirty.count -= end - start;
        disk.notify();
        Ok(())
    }

    /// Submits a write of `length` adjacent pages.
    fn submit_write<A: Access>(
        &mut self,
        disk: &mut Disk<A>,
        first: usize,
        length: usize,
    ) -> Result<(), Reason> {
        self.await_slot(disk)?;
        let sector = self.dirty.place(first).sector;
        let sectors = self.dirty.place(first + length - 1).end() - sector;
        disk.submit(&Request {
            kind: Kind::Write,
            sector,
            address: self.address(first) as u64,
            bytes: (sectors * SECTOR) as u32,
            tag: first as u16,
        })?;
        for frame in &mut self.frames[first..first + length] {
            frame.state = State::Writing;
        }
        self.frames[first].run = length as u16;
        self.dirty.written += length as u64;
        self.in_flight += 1;
        Ok(())
    }

    /// Waits until no request is in flight.
    pub(super) fn await_all<A: Access>(&mut self, disk: &mut Disk<A>) -> Result<(), Reason> {
        while self.in_flight > 0 {
            self.wait(disk)?;
        }
        Ok(())
    }

    /// Marks pages that were being written when the disk failed as dirty.
    #[cold]
    pub(super) fn keep_dirty(&mut self) {
        self.dirty.count = 0;
        for frame in 0..FRAMES {
            let state = &mut self.frames[frame].state;
            if matches!(state, State::Dirty | State::Writing) {
                *state = State::Dirty;
                self.dirty.insert(frame);
            }
        }
    }
}
