//! Read-only mappings of files, so that pages that are not needed are not read.

use crate::Failure;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::slice;

/// A mapped file.
pub struct MappedFile {
    start: *const u8,
    length: usize,
}

impl MappedFile {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// [`Failure::Unreadable`].
    pub fn open(path: &Path) -> Result<Self, Failure> {
        Self::try_open(path).map_err(|source| Failure::Unreadable {
            path: path.to_owned(),
            source,
        })
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let length = usize::try_from(metadata.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if length == 0 {
            return Ok(Self {
                start: ptr::NonNull::dangling().as_ptr(),
                length,
            });
        }
        // SAFETY: a new private mapping at an address of the kernel's choice; the result is checked.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: start.cast(),
            length,
        })
    }

    /// Contents of the file.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as `self`. A process that truncates or rewrites the
        // file during loading, before the guest runs, causes a signal or a wrong image.
        unsafe { slice::from_raw_parts(self.start, self.length) }
    }
}

/// Unmaps the file, whose contents are now in guest memory.
impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.length != 0 {
            // SAFETY: the mapping is owned by `self`, and no borrow of its bytes exists.
            unsafe { libc::munmap(self.start.cast_mut().cast(), self.length) };
        }
    }
}
