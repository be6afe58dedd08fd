//! A memory mapping, unmapped on drop.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

/// A readable and writable mapping.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. Its methods do not read or write it.
unsafe impl Send for Mapping {}
// SAFETY: as above; what changes it takes `&mut self`, or changes neither contents nor access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of `file`, shared.
    pub fn of_file(file: &File, length: usize) -> io::Result<Self> {
        Self::new(length, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Maps zeroed private memory.
    pub fn private(length: usize) -> io::Result<Self> {
        Self::new(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn new(length: usize, kind: libc::c_int, file: libc::c_int) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = kind | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing
        // that exists; the result is checked.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, length })
    }

    /// Maps `length` bytes of `file` from `at` over a part of this mapping, privately.
    pub fn replace(
        &mut self,
        start: NonNull<u8>,
        length: usize,
        file: &File,
        at: u64,
    ) -> io::Result<()> {
        assert!(self.holds(start, length));
        let at = at.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let address = start.as_ptr().cast();
        // SAFETY: all of the range is this mapping's, to which `&mut self` excludes any other access.
        let mapped = unsafe { libc::mmap(address, length, access, kind, file.as_raw_fd(), at) };
        match mapped {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Returns the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the first address that is a multiple of `unit`, a value below the length.
    pub fn first_multiple_of(&self, unit: usize) -> NonNull<u8> {
        debug_assert!(self.length >= unit);
        let beyond = self.start.align_offset(unit);
        // SAFETY: `beyond` is less than `unit`, and the mapping is longer than that.
        unsafe { self.start.add(beyond) }
    }

    /// Applies `madvise`. If the kernel refuses, the memory is unchanged.
    pub fn advise(&self, start: NonNull<u8>, length: usize, advice: libc::c_int) {
        debug_assert!(self.holds(start, length));
        // SAFETY: all of the range is this mapping's, and the advice changes neither
        // contents nor access.
        unsafe { libc::madvise(start.as_ptr().cast(), length, advice) };
    }

    /// Populates a part of the mapping, as if each page had been written to.
    pub fn populate(&self, start: NonNull<u8>, length: usize) -> io::Result<()> {
        debug_assert!(self.holds(start, length));
        // SAFETY: as in `advise`.
        let status =
            unsafe { libc::madvise(start.as_ptr().cast(), length, libc::MADV_POPULATE_WRITE) };
        match status {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn holds(&self, start: NonNull<u8>, length: usize) -> bool {
        let (own, start) = (self.start.addr().get(), start.addr().get());
        own <= start && start + length <= own + self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly this was mapped by `new`, and its owner is gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
