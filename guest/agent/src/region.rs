//! Memory regions of workload `populate` in a process: one mapping per region.

use std::fs;
use std::io;
use std::ptr::{self, NonNull};
use trapline_abi::populate::{MemoryRequest, NO_HUGE_PAGES};
use trapline_workloads::{Block, Reason};

/// Bytes of a page of 2 MiB.
const HUGE: usize = 2 << 20;

/// Mapping with a region. Dropping it unmaps the memory.
pub struct Region {
    mapping: *mut libc::c_void,
    mapped: usize,
    block: Block,
}

impl Region {
    /// Maps the requested region.
    ///
    /// # Errors
    /// The kernel refuses the mapping.
    pub fn new(request: MemoryRequest) -> Result<Self, Reason> {
        let length = usize::try_from(request.bytes()).map_err(|_| TOO_MUCH)?;
        let alignment = if request.huge { HUGE } else { 0 };
        let region = Self::map(length, alignment).ok_or(TOO_MUCH)?;
        let pages = if request.huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // A kernel without huge pages refuses MADV_NOHUGEPAGE, which is harmless.
        if region.advise(pages).is_err() && request.huge {
            return Err(NO_HUGE_PAGES);
        }
        if request.prefault {
            region
                .advise(libc::MADV_POPULATE_WRITE)
                .map_err(unpopulated)?;
        }
        Ok(region)
    }

    /// Maps `length` bytes, aligned to `alignment` unless it is 0.
    fn map(length: usize, alignment: usize) -> Option<Self> {
        let mapped = length.checked_add(alignment)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), mapped, access, kind, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let beyond = mapping.cast::<u8>().align_offset(alignment.max(1));
        Some(Self {
            mapping,
            mapped,
            block: Block {
                start: NonNull::new(mapping.cast::<u8>().wrapping_add(beyond))?,
                length,
            },
        })
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        let Block { start, length } = self.block;
        // SAFETY: the block is part of this mapping, and no advice used here discards contents.
        match unsafe { libc::madvise(start.as_ptr().cast(), length, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the memory, which is valid until the region is dropped.
    pub fn block(&self) -> Block {
        self.block
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`; the block is no longer used.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}

/// Returns true if pages of 2 MiB are available (Linux `Documentation/admin-guide/mm/transhuge.rst`).
pub fn has_huge_pages() -> bool {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    enabled.is_ok_and(|enabled| !enabled.contains("[never]"))
}

const TOO_MUCH: Reason = "not enough memory for the region";

fn unpopulated(error: io::Error) -> Reason {
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "the kernel cannot populate memory beforehand: use Linux 5.14 or later"
        }
        _ => TOO_MUCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_have_the_requested_length_and_alignment() {
        for request in MemoryRequest::ALL
            .into_iter()
            .filter(|request| request.order <= 9)
        {
            if request.huge && !has_huge_pages() {
                continue;
            }
            let region = Region::new(request).unwrap();
            let Block { start, length } = region.block();
            assert_eq!(length as u64, request.bytes());
            assert!(!request.huge || start.addr().get().is_multiple_of(HUGE));
            // SAFETY: the region is mapped and exclusive.
            unsafe { start.add(length - 1).write(1) };
        }
    }
}
