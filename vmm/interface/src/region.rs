//! Guest memory.
//!
//! The guest may change memory at any time, so the API copies bytes or accesses atomic numbers, and never returns
//! references to bytes.

#[cfg(feature = "std")]
mod host;

#[cfg(feature = "std")]
pub use host::has_huge_pages;

use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use thiserror::Error;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// An access beyond the end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{length} bytes at offset {offset:#x} are not within a region of {region:#x} bytes")]
pub struct OutOfRegion {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
    /// Length of the region.
    pub region: usize,
}

/// Page size of private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB, without transparent huge pages.
    Small,
    /// The kernel chooses, by its setting.
    Usual,
    /// 2 MiB, if the kernel provides them.
    Huge,
}

/// Population of memory before its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// In steps, with `sched_yield` in between.
    Steps,
    /// In one system call.
    Whole,
}

/// A 2 MiB page in bytes; also the population step of huge pages.
pub const HUGE_PAGE: usize = 2 << 20;

/// Zeroed guest memory of whole pages.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    /// Offsets that are no memory. Without a hole they are at the end and none.
    hole: Range<usize>,
    #[cfg(feature = "std")]
    backing: Option<host::Backing>,
}

// SAFETY: the mapping is owned by the region and lives as long as it does; every access through it
// is a copy or an atomic.
unsafe impl Send for Region {}
// SAFETY: as above; no method returns a reference into the mapping.
unsafe impl Sync for Region {}

impl Region {
    /// Creates a region from memory that the caller has mapped.
    ///
    /// # Safety
    /// `length` bytes from `start`, both multiples of [`PAGE`], must stay mapped as long as the region exists, and must
    /// be accessed by the guest and through the region only.
    pub unsafe fn from_raw(start: NonNull<u8>, length: usize) -> Self {
        Self {
            start,
            length,
            hole: length..length,
            #[cfg(feature = "std")]
            backing: None,
        }
    }

    /// Offset and length of each piece in bytes: one, or those before and behind a hole.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        let Range { start, end } = self.hole;
        let pieces = [(0, start), (end, self.length - end)];
        pieces.into_iter().filter(|(_, length)| *length > 0)
    }

    /// Length in bytes, with a hole.
    #[allow(clippy::len_without_is_empty)] // It never is.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Address of the mapping in this process, to be passed to a kernel. The guest may access the same
    /// bytes at any time.
    pub fn address(&self) -> NonNull<u8> {
        self.start
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// The range exceeds the region.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfRegion> {
        let at = self.check(offset, bytes.len())?;
        // SAFETY: `check` found room for all of the bytes within the mapping, which
        // cannot overlap what the caller has borrowed.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len());
        }
        Ok(())
    }

    /// Returns true if the range lies within the region.
    pub fn contains(&self, offset: u64, length: usize) -> bool {
        self.check(offset, length).is_ok()
    }

    /// Returns the address of a range, to be passed to a kernel; `None` if out of range.
    pub fn pointer(&self, offset: u64, length: usize) -> Option<NonNull<u8>> {
        let at = self.check(offset, length).ok()?;
        // SAFETY: `check` found the range within the mapping.
        Some(unsafe { self.start.add(at) })
    }

    /// Copies bytes from `offset`.
    ///
    /// # Errors
    /// The range exceeds the region.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfRegion> {
        let offset = self.check(offset, into.len())?;
        // SAFETY: `check` found all of the bytes within the mapping, and `into`
        // is memory of this process that cannot overlap it.
        unsafe {
            ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                into.as_mut_ptr(),
                into.len(),
            );
        }
        Ok(())
    }

    /// Loads the 16-bit number at `offset` atomically; `None` if misaligned or out of range.
    pub fn load16(&self, offset: u64) -> Option<u16> {
        self.atomic::<AtomicU16>(offset)
            .map(|number| number.load(Ordering::Acquire))
    }

    /// Stores a 16-bit number with release order; `None` as [`Self::load16`].
    pub fn store16(&self, offset: u64, value: u16) -> Option<()> {
        self.atomic::<AtomicU16>(offset)
            .map(|number| number.store(value, Ordering::Release))
    }

    /// Loads a 32-bit number, as [`Self::load16`].
    pub fn load32(&self, offset: u64) -> Option<u32> {
        self.atomic::<AtomicU32>(offset)
            .map(|number| number.load(Ordering::Acquire))
    }

    /// Loads a 64-bit number, as [`Self::load16`].
    pub fn load64(&self, offset: u64) -> Option<u64> {
        self.atomic::<AtomicU64>(offset)
            .map(|number| number.load(Ordering::Acquire))
    }

    /// Stores a 64-bit number, as [`Self::store16`].
    pub fn store64(&self, offset: u64, value: u64) -> Option<()> {
        self.atomic::<AtomicU64>(offset)
            .map(|number| number.store(value, Ordering::Release))
    }

    /// Returns the atomic number at `offset`.
    fn atomic<T: Atomic>(&self, offset: u64) -> Option<&T> {
        let offset = self.check(offset, size_of::<T>()).ok()?;
        let is_aligned = offset.is_multiple_of(size_of::<T>());
        // SAFETY: `check` found the bytes within the mapping, which lives as long as `self`; the offset is aligned
        // and so is the mapping. The guest accesses them concurrently, which an atomic tolerates.
        is_aligned.then(|| unsafe { self.start.add(offset).cast::<T>().as_ref() })
    }

    #[inline(always)]
    fn has(&self, range: Range<usize>) -> bool {
        range.end <= self.hole.start || range.start >= self.hole.end && range.end <= self.length
    }

    fn check(&self, offset: u64, length: usize) -> Result<usize, OutOfRegion> {
        usize::try_from(offset)
            .ok()
            .filter(|at| at.checked_add(length).is_some_and(|end| self.has(*at..end)))
            .ok_or(OutOfRegion {
                offset,
                length,
                region: self.length,
            })
    }
}

/// Atomic integers whose size is their alignment.
trait Atomic {}
impl Atomic for AtomicU16 {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicU64 {}
