//! An archive on a disk as a file system. Files can be overwritten within their length, but neither grow nor be created.

use super::archive::{self, Index, BLOCK};
use super::cache::{self, Cache, Source, PAGE};
use super::read_ahead::ReadAhead;
use crate::virtio::{Access, Disk, Kind, Request, SECTOR};
use core::ffi::CStr;
use trapline_workloads::{CacheCounts, Files, Reason};

/// Maximum number of open files.
const MAX_OPEN: usize = 16;

const NOT_OPEN: Reason = "the file is not open";

/// Memory of the tables of a mounted archive. All zero is valid.
pub struct Tables {
    index: archive::Tables,
    cache: cache::Tables,
}

/// The mounted archive.
pub struct Mount<'a, A> {
    disk: Disk<A>,
    index: Index<'a>,
    cache: Cache<'a>,
    open: [Option<OpenFile>; MAX_OPEN],
}

#[derive(Clone, Copy)]
struct OpenFile {
    source: Source,
    read_ahead: ReadAhead,
}

impl<'a, A: Access> Mount<'a, A> {
    /// Reads the index of the archive on `disk`.
    ///
    /// # Errors
    /// The disk fails, or the archive is damaged.
    ///
    /// # Safety
    /// Same contract for `memory` as of [`Cache::new`].
    pub unsafe fn new(
        mut disk: Disk<A>,
        memory: *mut u8,
        tables: &'a mut Tables,
    ) -> Result<Self, Reason> {
        let sectors = disk.bytes() / SECTOR;
        let index = Index::read(&mut tables.index, sectors, |sector| {
            disk.perform(Request {
                kind: Kind::Read,
                sector,
                address: memory as u64,
                bytes: SECTOR as u32,
                tag: 0,
            })?;
            // SAFETY: exclusive memory by contract, which the completed request has written.
            Ok(unsafe { memory.cast::<[u8; BLOCK]>().read() })
        })?;
        Ok(Self {
            disk,
            index,
            // SAFETY: same contract.
            cache: unsafe { Cache::new(memory, &mut tables.cache) },
            open: [None; MAX_OPEN],
        })
    }
}

impl<A> Mount<'_, A> {
    /// Returns an open file.
    fn source(&self, file: u32) -> Result<Source, Reason> {
        let open = self.open.get(file as usize);
        let open = open.and_then(Option::as_ref).ok_or(NOT_OPEN)?;
        Ok(open.source)
    }
}

impl<A: Access> Files for Mount<'_, A> {
    fn open(&mut self, path: &CStr) -> Result<u32, Reason> {
        let number = self.index.find(path.to_bytes());
        let number = number.ok_or("there is no such file")?;
        let extent = self.index.extent(number).ok_or(NOT_OPEN)?;
        let place = self.open.iter().position(Option::is_none);
        let place = place.ok_or("too many files are open")?;
        self.open[place] = Some(OpenFile {
            source: Source { number, extent },
            read_ahead: ReadAhead::NEW,
        });
        Ok(place as u32)
    }

    fn read(&mut self, file: u32, offset: u64, buffer: &mut [u8]) -> Result<usize, Reason> {
        let open = self.open.get_mut(file as usize);
        let OpenFile { source, read_ahead } = open.and_then(Option::as_mut).ok_or(NOT_OPEN)?;
        let left = source.extent.bytes.saturating_sub(offset);
        let count = left.min(buffer.len() as u64) as usize;
        if count == 0 {
            return Ok(0);
        }
        let last = (offset + count as u64 - 1) / PAGE as u64;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let bytes = (PAGE - start).min(count - done);
            let wanted = |is_missing| read_ahead.access(page, last, is_missing);
            let content = self.cache.page(&mut self.disk, source, page, wanted)?;
            buffer[done..done + bytes].copy_from_slice(&content[start..start + bytes]);
            done += bytes;
        }
        Ok(count)
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Reason> {
        let source = self.source(file)?;
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > source.extent.bytes) {
            return Err("a write exceeds the file, whose length is fixed");
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let part = &bytes[done..bytes.len().min(done + PAGE - start)];
            self.cache
                .write(&mut self.disk, &source, page, start, part)?;
            done += part.len();
        }
        Ok(())
    }

    fn sync(&mut self, file: u32) -> Result<(), Reason> {
        let source = self.source(file)?;
        self.cache.sync(&mut self.disk, &source)
    }

    fn close(&mut self, file: u32) {
        if let Some(open) = self.open.get_mut(file as usize) {
            *open = None;
        }
    }

    fn empty_cache(&mut self, file: u32) -> Result<(), Reason> {
        let open = self.open.get_mut(file as usize);
        let open = open.and_then(Option::as_mut).ok_or(NOT_OPEN)?;
        open.read_ahead = ReadAhead::NEW;
        self.cache.remove_all(&mut self.disk, &open.source)
    }

    fn cache_counts(&mut self) -> Result<CacheCounts, Reason> {
        Ok(self.cache.counts())
    }
}
