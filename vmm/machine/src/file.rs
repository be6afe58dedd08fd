//! Read-only mappings of files, so that pages that are not needed are not read.

use crate::Failure;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::slice;

/// A mapped file.
pub struct MappedFile {
    file: File,
    start: *const u8,
    length: usize,
}

impl MappedFile {
    /// Maps the file at `path`, which must be regular and not longer than `limit` bytes.
    ///
    /// # Errors
    /// [`Failure::Unreadable`].
    pub fn open(path: &Path, limit: u64) -> Result<Self, Failure> {
        Self::try_open(path, limit).map_err(|source| Failure::Unreadable {
            path: path.to_owned(),
            source,
        })
    }

    fn try_open(path: &Path, limit: u64) -> io::Result<Self> {
        let file = open_regular(path)?;
        let length = file.metadata()?.len();
        if length > limit {
            return Err(io::Error::other(format!(
                "its {length} bytes exceed the limit of {limit}"
            )));
        }
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let start = match length {
            0 => ptr::NonNull::dangling().as_ptr(),
            _ => map(&file, length)?,
        };
        Ok(Self {
            file,
            start,
            length,
        })
    }

    /// Contents of the file.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as `self`. A process that truncates or rewrites the
        // file during loading, before the guest runs, causes a signal or a wrong image.
        unsafe { slice::from_raw_parts(self.start, self.length) }
    }

    /// Returns the file and the offset of `part`; `None` if it is not a part of [`Self::bytes`].
    pub fn locate(&self, part: &[u8]) -> Option<(&File, u64)> {
        let offset = part.as_ptr().addr().checked_sub(self.start.addr())?;
        let end = offset.checked_add(part.len())?;
        (end <= self.length).then_some((&self.file, offset as u64))
    }
}

/// Opens a regular file. Opening a FIFO does not block, and nothing is read from a device.
fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other(
            "it is not a regular file; copy its contents to one",
        ))
    }
}

fn map(file: &File, length: usize) -> io::Result<*const u8> {
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
    match start {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        start => Ok(start.cast()),
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
