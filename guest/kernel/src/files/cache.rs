//! Page cache: a bounded number of frames with pages of files, found by a hash table.
//!
//! A page is free, being read, valid, dirty or being written. The replaced page is chosen by the clock algorithm among those
//! that were not used again since it last passed. It takes frames in the order of their addresses, so pages that are read
//! together are mostly adjacent, and then one request. [`write_back`] writes dirty pages.

mod frame;
pub mod write_back;

use self::frame::{Frame, Key, State, FREE, LISTS, NONE};
use self::write_back::{DirtyPages, ALL};
use super::archive::Extent;
use crate::virtio::{Access, Disk, Kind, Request, SECTOR};
use core::ops::Range;
use trapline_workloads::{CacheCounts, Needed, Reason};

/// Bytes of a page.
pub const PAGE: usize = trapline_abi::files::PAGE;

/// Frames of the cache: 4 MiB.
pub const FRAMES: usize = 1024;

/// Bytes of its frames.
pub const BYTES: usize = FRAMES * PAGE;

/// Sectors of a page.
const SECTORS: u64 = PAGE as u64 / SECTOR;

/// Maximum number of requests in flight, which any suitable disk has room for.
const MAX_IN_FLIGHT: u32 = 32;

/// Memory of the tables of a cache. All zero is valid.
pub struct Tables {
    frames: [Frame; FRAMES],
    lists: [u16; LISTS],
    dirty: write_back::Tables,
}

/// File of a page cache.
#[derive(Clone, Copy)]
pub struct Source {
    /// Its number.
    pub number: u32,
    /// Its data.
    pub extent: Extent,
}

impl Source {
    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.extent.bytes.div_ceil(PAGE as u64)
    }

    /// Returns its sectors on the disk.
    pub fn sectors(&self) -> Range<u64> {
        let start = self.extent.sector;
        start..start + self.extent.bytes.div_ceil(SECTOR)
    }
}

/// The cache of one disk.
pub struct Cache<'a> {
    memory: *mut u8,
    frames: &'a mut [Frame; FRAMES],
    lists: &'a mut [u16; LISTS],
    /// Next frame that the clock algorithm considers.
    hand: usize,
    in_flight: u32,
    fetched: u64,
    needed: Needed,
    dirty: DirtyPages<'a>,
}

impl<'a> Cache<'a> {
    /// Creates an empty cache.
    ///
    /// # Safety
    /// `memory` is page-aligned and exclusive, has [`BYTES`], its physical address is the same, and it outlives the
    /// cache and the disk.
    pub unsafe fn new(memory: *mut u8, tables: &'a mut Tables) -> Self {
        let Tables {
            frames,
            lists,
            dirty,
        } = tables;
        frames.fill(FREE);
        lists.fill(NONE);
        Self {
            memory,
            frames,
            lists,
            hand: 0,
            in_flight: 0,
            fetched: 0,
            needed: Needed::default(),
            dirty: DirtyPages::new(dirty),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts {
            fetched: self.fetched,
            needed: Some(self.needed),
            written: Some(self.dirty.written),
        }
    }

    fn find(&self, key: Key) -> Option<usize> {
        let mut at = self.lists[key.list()];
        while at != NONE {
            let frame = &self.frames[at as usize];
            if frame.key == key {
                return Some(at.into());
            }
            at = frame.next;
        }
        None
    }

    /// Returns the valid page of a file for one use, and counts a hit or a miss. `missing` returns the pages to read; it is
    /// called with whether the page is missing.
    ///
    /// # Errors
    /// The disk fails.
    pub fn page<A: Access>(
        &mut self,
        disk: &mut Disk<A>,
        source: &Source,
        page: u64,
        wanted: impl FnOnce(bool) -> Option<Range<u64>>,
    ) -> Result<&[u8; PAGE], Reason> {
        let key = Key {
            file: source.number,
            page: page as u32,
        };
        let found = self.find(key);
        let is_hit = self.count(found);
        let frame = match (found, wanted(found.is_none())) {
            (Some(frame), None) if is_hit => frame,
            (_, pages) => {
                if let Some(pages) = pages {
                    self.request(disk, source, pages)?;
                    // The pages ahead may have replaced it.
                    self.request(disk, source, page..page + 1)?;
                }
                self.wait_for(disk, key)?
            }
        };
        self.frames[frame].mark_used();
        // SAFETY: a frame of the memory, which no request in flight changes, since it can be read, and which is not replaced
        // while the cache is borrowed.
        Ok(unsafe { &*self.address(frame).cast() })
    }

    /// Counts a hit or a miss of a page in this frame, if in any. Returns true if it is a hit.
    #[inline(always)]
    fn count(&mut self, found: Option<usize>) -> bool {
        let is_hit = found.is_some_and(|frame| self.frames[frame].state >= State::Valid);
        if is_hit {
            self.needed.hits += 1
        } else {
            self.needed.misses += 1
        }
        is_hit
    }

    fn address(&self, frame: usize) -> *mut u8 {
        self.memory.wrapping_add(frame * PAGE)
    }

    /// Waits until a page that was requested is valid. Returns its frame.
    fn wait_for<A: Access>(&mut self, disk: &mut Disk<A>, key: Key) -> Result<usize, Reason> {
        loop {
            let frame = self.find(key).ok_or("the page cache is too small")?;
            if self.frames[frame].state >= State::Valid {
                return Ok(frame);
            }
            self.wait(disk)?;
        }
    }

    /// Requests those of `pages` that are not in the cache.
    fn request<A: Access>(
        &mut self,
        disk: &mut Disk<A>,
        source: &Source,
        pages: Range<u64>,
    ) -> Result<(), Reason> {
        let end = pages.end.min(source.pages());
        let mut run = Run::EMPTY;
        for page in pages.start..end {
            let key = Key {
                file: source.number,
                page: page as u32,
            };
            if self.find(key).is_some() {
                continue;
            }
            let frame = self.take(disk)?;
            self.insert(frame, key, State::Reading);
            if !run.extends(frame, page) {
                self.submit(disk, source, run)?;
                run = Run {
                    frame,
                    page,
                    count: 0,
                };
            }
            run.count += 1;
        }
        self.submit(disk, source, run)?;
        disk.notify();
        Ok(())
    }

    fn submit<A: Access>(
        &mut self,
        disk: &mut Disk<A>,
        source: &Source,
        run: Run,
    ) -> Result<(), Reason> {
        if run.count == 0 {
            return Ok(());
        }
        self.await_slot(disk)?;
        let sector = run.page * SECTORS;
        let left = source.extent.bytes.div_ceil(SECTOR) - sector;
        let sectors = left.min(u64::from(run.count) * SECTORS);
        disk.submit(&Request {
            kind: Kind::Read,
            sector: source.extent.sector + sector,
            address: self.address(run.frame) as u64,
            bytes: (sectors * SECTOR) as u32,
            tag: run.frame as u16,
        })?;
        self.frames[run.frame].run = run.count;
        self.fetched += u64::from(run.count);
        self.in_flight += 1;
        Ok(())
    }

    /// Waits until another request may be submitted.
    #[inline(always)]
    fn await_slot<A: Access>(&mut self, disk: &mut Disk<A>) -> Result<(), Reason> {
        while self.in_flight >= MAX_IN_FLIGHT {
            disk.notify();
            self.wait(disk)?;
        }
        Ok(())
    }

    /// Waits for completed requests, whose pages become valid.
    fn wait<A: Access>(&mut self, disk: &mut Disk<A>) -> Result<(), Reason> {
        if self.in_flight == 0 {
            return Err("the page cache waits for a page that was not requested");
        }
        let completed = self.complete(disk);
        if completed.is_err() {
            self.keep_dirty();
        }
        completed
    }

    fn complete<A: Access>(&mut self, disk: &mut Disk<A>) -> Result<(), Reason> {
        disk.wait()?;
        while let Some(tag) = disk.complete()? {
            let first = usize::from(tag);
            let run = self.frames[first].run;
            for frame in self.frames.iter_mut().skip(first).take(run.into()) {
                frame.state = State::Valid;
            }
            self.in_flight -= 1;
        }
        Ok(())
    }

    /// Takes a frame for another page. Inlined, because it was when reads alone took frames: their figures are the same.
    #[inline(always)]
    fn take<A: Access>(&mut self, disk: &mut Disk<A>) -> Result<usize, Reason> {
        loop {
            // Twice: the first time the clock may only clear what it finds used.
            for _ in 0..2 * FRAMES {
                let frame = self.hand;
                self.hand = (self.hand + 1) % FRAMES;
                let found = &mut self.frames[frame];
                match found.state {
                    State::Reading | State::Writing => {}
                    State::Valid | State::Dirty if found.used_again => found.used_again = false,
                    State::Valid => {
                        self.remove(frame);
                        return Ok(frame);
                    }
                    State::Dirty => self.write_back(disk, ALL)?,
                    State::Free => return Ok(frame),
                }
            }
            disk.notify();
            self.wait(disk)?;
        }
    }

    fn insert(&mut self, frame: usize, key: Key, state: State) {
        let list = &mut self.lists[key.list()];
        self.frames[frame] = Frame {
            key,
            state,
            next: *list,
            ..FREE
        };
        *list = frame as u16;
    }

    fn remove(&mut self, frame: usize) {
        let Frame { key, next, .. } = self.frames[frame];
        let mut at = self.lists[key.list()];
        if usize::from(at) == frame {
            self.lists[key.list()] = next;
        }
        while at != NONE {
            let other = &mut self.frames[usize::from(at)];
            if usize::from(other.next) == frame {
                other.next = next;
            }
            at = other.next;
        }
        self.frames[frame] = FREE;
    }

    /// Removes all pages of a file. Writes its dirty pages back and waits for requests in flight before.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove_all<A: Access>(
        &mut self,
        disk: &mut Disk<A>,
        source: &Source,
    ) -> Result<(), Reason> {
        self.write_back(disk, source.sectors())?;
        self.await_all(disk)?;
        for frame in 0..FRAMES {
            let Frame { key, state, .. } = self.frames[frame];
            if state == State::Valid && key.file == source.number {
                self.remove(frame);
            }
        }
        Ok(())
    }
}

/// Consecutive pages in consecutive frames.
#[derive(Clone, Copy)]
struct Run {
    frame: usize,
    page: u64,
    count: u16,
}

impl Run {
    const EMPTY: Self = Self {
        frame: 0,
        page: 0,
        count: 0,
    };

    /// Returns true if `page` in `frame` is the next one.
    fn extends(&self, frame: usize, page: u64) -> bool {
        let count = usize::from(self.count);
        count != 0 && frame == self.frame + count && page == self.page + count as u64
    }
}
