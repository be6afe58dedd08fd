//! Mappings of the guest's process: a cache of translations, as a TLB is.
//!
//! The kernel allocates page tables for them, at the guest's choice up to two for each page. The mappings are dropped before the
//! tables exceed a bound.

use crate::control::Control;
use crate::layout::{ALIAS, SWITCHER};
use crate::listener::CHECKED;
use crate::memory::Memory;
use trapline_emulation::paging::{cached, Translation};

use std::collections::BTreeSet;
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

/// Page tables of up to four processes of a guest take at most this number of bytes and a 64th of memory.
const MOST_TABLE_BYTES: u64 = 4 << 20;
const MEMORY_PER_TABLE_BYTE: u64 = 64;
/// Page tables of the switcher and of the upper levels of a process.
const OWN_TABLES: u64 = 16;
/// Minimum number of page tables for single pages of a process. Four processes have more.
const FEWEST_TABLES: u64 = 192;

/// Logarithms of the bytes that a page table of each level maps.
const LEVELS: [u32; 3] = [21, 30, 39];

/// The mappings of one process.
pub(crate) struct Mappings {
    /// Pages mapped since the last flush, below [`SHARED_END`].
    pages: u32,
    /// The same above.
    program_pages: u32,
    /// Page tables that pages may need, mapped since the last flush that the process has certainly performed: the first address
    /// of each, and its level in the lowest bits.
    tables: BTreeSet<u64>,
    /// Maximum number of these.
    most_tables: usize,
}

impl Mappings {
    /// Creates the mappings of one of `processes` processes with this memory.
    pub fn new(memory: &Memory, processes: usize) -> Self {
        Self {
            pages: 0,
            program_pages: 0,
            tables: BTreeSet::new(),
            most_tables: most_tables(memory, processes as u64) as usize,
        }
    }

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
        self.count_tables(process, page)?;
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

    /// Counts the page tables of a page. Drops all mappings if they would be too many.
    fn count_tables(&mut self, process: &mut dyn Control, page: u64) -> io::Result<()> {
        let tables = LEVELS.map(|level| page >> level << level | u64::from(level));
        if self.tables.contains(&tables[0]) {
            return Ok(());
        }
        self.reserve(process, 1)?;
        self.tables.extend(tables);
        Ok(())
    }

    /// Drops all mappings if the page tables of this number of further pages would be too many.
    fn reserve(&mut self, process: &mut dyn Control, pages: usize) -> io::Result<()> {
        if self.tables.len() + pages * LEVELS.len() > self.most_tables {
            (self.pages, self.program_pages) = (0, 0);
            self.tables.clear();
            process.defer(libc::SYS_munmap, [0, SWITCHER, CHECKED, 0, 0])?;
        }
        Ok(())
    }

    /// Maps pages of the switcher, each given by its address here and there. Mapping this number of further pages does not drop
    /// them. Returns false if the kernel refuses an address.
    pub fn map_scratch(
        &mut self,
        process: &mut dyn Control,
        pages: &[(u64, u64)],
        further: usize,
    ) -> io::Result<bool> {
        self.reserve(process, pages.len() + further)?;
        for (page, scratch) in pages {
            if *page >= SWITCHER {
                return Ok(false);
            }
            self.count_tables(process, *page)?;
            if !show(process, *scratch, *page..page + PAGE_BYTES)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Drops all mappings.
    pub fn flush(&mut self, process: &mut dyn Control) -> io::Result<()> {
        (self.pages, self.program_pages) = (0, 0);
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
}

/// Returns the maximum number of page tables for single pages of one of `processes` processes: what the bound leaves beside the
/// tables of all memory at its identical addresses and at [`ALIAS`].
fn most_tables(memory: &Memory, processes: u64) -> u64 {
    let lengths = || memory.iter().map(|(_, there)| there.region.len() as u64);
    let bytes: u64 = lengths().sum();
    let tables = |length: u64| -> u64 { LEVELS.iter().map(|level| (length >> level) + 2).sum() };
    let of_memory: u64 = lengths().map(|length| 2 * tables(length)).sum();
    let most = (MOST_TABLE_BYTES + bytes / MEMORY_PER_TABLE_BYTE) / PAGE_BYTES / processes;
    most.saturating_sub(of_memory + OWN_TABLES)
        .max(FEWEST_TABLES)
}

/// Maps everything that the tables map identically, writable and dirty, so that the guest starts without faults.
pub(crate) fn fill(
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

/// Maps memory that is mapped at `from` a second time. Returns false if the kernel refuses the address.
fn show(process: &mut dyn Control, from: u64, at: Range<u64>) -> io::Result<bool> {
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
