//! Files that a guest is made of, without reading what nobody looks at.

use crate::Failure;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::slice;

/// A file's bytes.
pub struct MappedFile {
    start: *const u8,
    length: usize,
}

impl MappedFile {
    /// The file at `path`.
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
        // SAFETY: a new private mapping at an address of the kernel's choice
        // touches nothing that exists; the result is checked.
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

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length and stays as long as `self`. Whoever
        // truncates or rewrites the file while it is being loaded, before any guest
        // runs, gets a signal or a wrong image.
        unsafe { slice::from_raw_parts(self.start, self.length) }
    }
}

/// What was copied into the guest's memory is not to be held a second time.
impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.length != 0 {
            // SAFETY: the mapping is ours, and nobody borrows its bytes any more.
            unsafe { libc::munmap(self.start.cast_mut().cast(), self.length) };
        }
    }
}
