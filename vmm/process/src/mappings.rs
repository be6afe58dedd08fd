//! Mappings of the guest's process: a cache of translations, as a TLB is.

use crate::control::Control;
use crate::layout::{ALIAS, SWITCHER};
use crate::memory::Memory;
use trapline_emulation::paging::{cached, Translation};

use std::io;
use std::ops::Range;
use trapline_abi::spaces::SHARED_END;
use trapline_interface::{System, PAGE};

const PAGE_BYTES: u64 = PAGE as u64;
/// Lowest address that every process may map (`mmap_min_addr`), in most configurations.
const LOWEST: u64 = 0x1_0000;
const LARGE_PAGE: u64 = 2 << 20;
const MOVE_TO: u64 = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;

/// Single pages mapped before they are dropped, in each part of the addresses: together below the limit of 65,530
/// mappings of a process.
const MOST_PAGES: u32 = 30_000;

/// The mappings of one process.
#[derive(Default)]
pub(crate) struct Mappings {
    /// Pages mapped since the last flush, below [`SHARED_END`].
    pages: u32,
    /// The same above.
    program_pages: u32,
}

impl Mappings {
    /// Maps the page of `address`. Returns false if the kernel refuses addresses that low.
    pub fn map(
        &mut self,
        process: &mut dyn Control,
        address: u64,
        to: &Translation,
        is_writable: bool,
    ) -> io::Result<bool> {
        let page = address & !(PAGE_BYTES - 1);
        let from = ALIAS + (to.address & !(PAGE_BYTES - 1));
        if page >= SWITCHER {
            return Ok(false);
        }
        if page >= SHARED_END {
            if self.program_pages == MOST_PAGES {
                self.flush_programs(process)?;
            }
            self.program_pages += 1;
        } else {
            if self.pages == MOST_PAGES {
                self.flush(process)?;
            }
            self.pages += 1;
        }
        if !show(process, from, page..page + PAGE_BYTES)? {
            return Ok(false);
        }
        if !is_writable {
            let access = (libc::PROT_READ | libc::PROT_EXEC) as u64;
            process.defer(libc::SYS_mprotect, [page, PAGE_BYTES, access, 0, 0])?;
        }
        Ok(true)
    }

    /// Drops all mappings.
    pub fn flush(&mut self, process: &mut dyn Control) -> io::Result<()> {
        *self = Self::default();
        self.unmap(process, 0..SWITCHER)
    }

    /// Drops the mappings that differ between address spaces.
    pub fn flush_programs(&mut self, process: &mut dyn Control) -> io::Result<()> {
        self.program_pages = 0;
        self.unmap(process, SHARED_END..SWITCHER)
    }

    /// Drops the mappings of a range of pages.
    pub fn unmap(&mut self, process: &mut dyn Control, range: Range<u64>) -> io::Result<()> {
        let length = range.end - range.start;
        process.defer(libc::SYS_munmap, [range.start, length, 0, 0, 0])
    }

    /// Maps everything that the tables map identically, writable and dirty, so that the guest starts without
    /// faults.
    pub fn fill(
        &mut self,
        process: &mut dyn Control,
        memory: &mut Memory,
        system: &System,
    ) -> io::Result<()> {
        for run in identical_runs(memory, system) {
            let from = |start| ALIAS + start;
            if !show(process, from(run.start), run.clone())? && run.end > LOWEST {
                let start = run.start.max(LOWEST);
                show(process, from(start), start..run.end)?;
            }
        }
        Ok(())
    }
}

/// Maps memory that is mapped at `from` a second time. Returns false if the kernel refuses the address.
pub(crate) fn show(process: &mut dyn Control, from: u64, at: Range<u64>) -> io::Result<bool> {
    let arguments = [from, 0, at.end - at.start, MOVE_TO, at.start];
    if at.start >= LOWEST {
        process.defer(libc::SYS_mremap, arguments)?;
        return Ok(true);
    }
    let refused = -i64::from(libc::EPERM);
    match process.call(libc::SYS_mremap, arguments)? {
        result if result == at.start as i64 => Ok(true),
        error if error == refused || error == -i64::from(libc::EACCES) => Ok(false),
        error => Err(io::Error::from_raw_os_error(-error as i32)),
    }
}

/// Returns ranges whose addresses are those of mapped, writable memory.
fn identical_runs(memory: &mut Memory, system: &System) -> Vec<Range<u64>> {
    let regions: Vec<_> = memory
        .iter()
        .filter(|(_, there)| there.is_mapped && there.is_writable())
        .map(|(at, there)| at.0..at.0 + there.region.len() as u64)
        .collect();
    let mut runs: Vec<Range<u64>> = Vec::new();
    for region in regions {
        let mut at = region.start;
        while at < region.end {
            let found = cached(memory, system, at);
            let size = match found {
                Some(found) if found.page >= LARGE_PAGE && at.is_multiple_of(LARGE_PAGE) => {
                    LARGE_PAGE
                }
                _ => PAGE_BYTES,
            };
            let end = region.end.min(at + size);
            if found.is_some_and(|found| found.address == at && found.is_writable) {
                match runs.last_mut() {
                    Some(run) if run.end == at => run.end = end,
                    _ => runs.push(at..end),
                }
            }
            at = end;
        }
    }
    runs
}
