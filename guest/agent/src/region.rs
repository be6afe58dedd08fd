//! Memory that the kernel gives a process: a mapping of its own for each region, given
//! back whole.

use std::fs;
use std::io;
use std::ptr::{self, NonNull};
use trapline_abi::populate::{Wish, NO_HUGE_PAGES};
use trapline_workloads::{Block, Reason};

/// A page of 2 MiB, in bytes.
const HUGE: usize = 2 << 20;

/// A mapping, and the region in it. Dropping it unmaps.
pub struct Region {
    mapping: *mut libc::c_void,
    mapped: usize,
    block: Block,
}

impl Region {
    /// A region as it was wished for.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new(wish: Wish) -> Result<Self, Reason> {
        let length = usize::try_from(wish.bytes()).map_err(|_| TOO_MUCH)?;
        let room = if wish.huge { HUGE } else { 0 };
        let region = Self::map(length, room).ok_or(TOO_MUCH)?;
        let pages = match wish.huge {
            true => libc::MADV_HUGEPAGE,
            false => libc::MADV_NOHUGEPAGE,
        };
        // A kernel without huge pages refuses, and then has none to avoid.
        if region.advise(pages).is_err() && wish.huge {
            return Err(NO_HUGE_PAGES);
        }
        if wish.prefault {
            region
                .advise(libc::MADV_POPULATE_WRITE)
                .map_err(unpopulated)?;
        }
        Ok(region)
    }

    /// `length` bytes, at a multiple of `room` if that is not 0.
    fn map(length: usize, room: usize) -> Option<Self> {
        let mapped = length.checked_add(room)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), mapped, access, kind, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let beyond = mapping.cast::<u8>().align_offset(room.max(1));
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
        // SAFETY: the block is part of this mapping, and none of the advices given here
        // takes contents away.
        match unsafe { libc::madvise(start.as_ptr().cast(), length, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its memory, as long as it lives.
    pub fn block(&self) -> Block {
        self.block
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and whoever drops a region has its block no more.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}

/// Whether pages of 2 MiB can be had
/// (Linux `Documentation/admin-guide/mm/transhuge.rst`).
pub fn has_huge_pages() -> bool {
    let told = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    told.is_ok_and(|told| !told.contains("[never]"))
}

const TOO_MUCH: Reason = "there is not enough memory for the region";

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
    fn regions_are_as_wished_for() {
        for wish in Wish::ALL.into_iter().filter(|wish| wish.order <= 9) {
            if wish.huge && !has_huge_pages() {
                continue;
            }
            let region = Region::new(wish).unwrap();
            let Block { start, length } = region.block();
            assert_eq!(length as u64, wish.bytes());
            assert!(!wish.huge || start.addr().get().is_multiple_of(HUGE));
            // SAFETY: the region is there, and nobody else's.
            unsafe { start.add(length - 1).write(1) };
        }
    }
}
