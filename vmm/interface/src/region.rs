//! Guest memory: an anonymous file, mapped.
//!
//! A file, because then it can be shared with another process (a device back
//! end), and because its pages are told apart from the VMM's own in the kernel's
//! accounts. A type of our own, because all that is needed is bounds-checked
//! copies: guest memory may change at any time under the hands of who reads it,
//! so nobody is ever handed a reference into it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use thiserror::Error;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// An access beyond the end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{length} bytes at offset {offset:#x} are not within a region of {region:#x} bytes")]
pub struct OutOfRegion {
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: usize,
    /// The region's length.
    pub region: usize,
}

/// Zeroed memory for a guest, of whole pages.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    file: File,
}

// SAFETY: the mapping belongs to the region alone and lives as long as it does;
// every access through it is a copy or an atomic, from whichever thread.
unsafe impl Send for Region {}
// SAFETY: as above; no method hands out a reference into the mapping.
unsafe impl Sync for Region {}

impl Region {
    /// What its file is called where the kernel lists a process's mappings.
    pub const NAME: &'static str = "guest-memory";
    const FILE_NAME: &'static CStr = c"guest-memory";

    /// `length` bytes, rounded up to whole pages. Pages take no memory until
    /// somebody writes to them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new(length: usize) -> io::Result<Region> {
        let length = length
            .checked_next_multiple_of(PAGE)
            .filter(|&length| length > 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let file = anonymous_file()?;
        file.set_len(length as u64)?;
        let start = map_shared(&file, length)?;
        Ok(Region {
            start,
            length,
            file,
        })
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)] // It never is.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Where this process sees it. To be handed to a kernel; whoever reads or
    /// writes through it must expect that the guest does, too.
    pub fn address(&self) -> NonNull<u8> {
        self.start
    }

    /// The file behind it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Copies `bytes` to `offset`, by way of the file: a page that is written to for
    /// the first time is then not cleared and mapped here before, which is two
    /// thirds of the cost.
    ///
    /// # Errors
    /// If they do not fit there, or memory is exhausted.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len()).map_err(io::Error::other)?;
        self.file.write_all_at(bytes, offset)
    }

    /// Copies what is at `offset`.
    ///
    /// # Errors
    /// If it is not all within the region.
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

    /// The 32-bit number at `offset`, in one access; `None` if it is not aligned
    /// or not within the region.
    pub fn load32(&self, offset: u64) -> Option<u32> {
        let offset = self.check(offset, 4).ok().filter(|at| at % 4 == 0)?;
        // SAFETY: `check` found the four bytes within the mapping, the offset is
        // aligned and so is the mapping; others access them only as a guest does,
        // which an atomic tolerates.
        let word = unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) };
        Some(word.load(Ordering::Acquire))
    }

    /// The 64-bit number at `offset`, in one access; `None` as for [`Self::load32`].
    pub fn load64(&self, offset: u64) -> Option<u64> {
        self.word(offset).map(|word| word.load(Ordering::Acquire))
    }

    /// Writes a 64-bit number to `offset`, in one access, behind all that was written
    /// before; `None` as for [`Self::load32`].
    pub fn store64(&self, offset: u64, value: u64) -> Option<()> {
        self.word(offset)
            .map(|word| word.store(value, Ordering::Release))
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let offset = self.check(offset, 8).ok().filter(|at| at % 8 == 0)?;
        // SAFETY: as in `load32`, for eight bytes; the mapping lives as long as `self`.
        Some(unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    fn check(&self, offset: u64, length: usize) -> Result<usize, OutOfRegion> {
        usize::try_from(offset)
            .ok()
            .filter(|at| at.checked_add(length).is_some_and(|end| end <= self.length))
            .ok_or(OutOfRegion {
                offset,
                length,
                region: self.length,
            })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly this mapping was made by `map_shared`, and nobody may
        // use it any more now that the region goes.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn anonymous_file() -> io::Result<File> {
    // SAFETY: the name is a zero-terminated string; the result is checked.
    let fd = unsafe { libc::memfd_create(Region::FILE_NAME.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn map_shared(file: &File, length: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing
    // that exists; the result is checked.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_rest_is_zero() {
        let region = Region::new(5000).unwrap();
        assert_eq!(region.len(), 2 * PAGE);
        region.write(8188, &[1, 2, 3, 4]).unwrap();
        let mut bytes = [9; 6];
        region.read(8186, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 1, 2, 3, 4]);
        assert_eq!(region.load32(8188), Some(0x0403_0201));
        assert_eq!(region.store64(8, 0x0102_0304_0506_0708), Some(()));
        assert_eq!(region.load64(8), Some(0x0102_0304_0506_0708));
        assert_eq!(region.load32(8), Some(0x0506_0708));
    }

    #[test]
    fn nothing_reaches_beyond_the_end() {
        let region = Region::new(PAGE).unwrap();
        assert!(region.write(4093, &[0; 4]).is_err());
        assert!(region.read(4096, &mut [0]).is_err());
        assert!(region.read(u64::MAX, &mut [0; 2]).is_err());
        assert_eq!(region.load32(4094), None);
        assert_eq!(region.load32(2), None);
        assert_eq!(region.load64(4096 - 4), None);
        assert_eq!(region.store64(4, 1), None);
        assert!(Region::new(0).is_err());
        assert!(Region::new(usize::MAX).is_err());
    }
}
