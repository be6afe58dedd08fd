//! Files of a system, and what its page cache counts.

use super::Reason;
use core::ffi::CStr;

/// Files behind a page cache. Their length is fixed.
pub trait Files {
    /// Opens the file at `path`, relative to the directory of all files. Returns its number.
    ///
    /// # Errors
    /// There is no such file, or too many are open.
    fn open(&mut self, path: &CStr) -> Result<u32, Reason>;

    /// Reads from an open file. Returns the number of bytes, fewer than `buffer` has only at the end of the file.
    ///
    /// # Errors
    /// The disk fails, or the file is not open.
    fn read(&mut self, file: u32, offset: u64, buffer: &mut [u8]) -> Result<usize, Reason>;

    /// Opens the file at `path`, as [`Self::open`] does, also for writing.
    ///
    /// # Errors
    /// Same as of [`Self::open`], or the file system is read-only.
    fn open_for_writing(&mut self, path: &CStr) -> Result<u32, Reason> {
        self.open(path)
    }

    /// Overwrites a part of a file that was opened for writing: in the cache, so that it may be lost before [`Self::sync`].
    ///
    /// # Errors
    /// The part exceeds the file, the disk fails, or the file is not open.
    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Reason>;

    /// Makes all writes to an open file durable (fdatasync).
    ///
    /// # Errors
    /// The disk fails: writes since the last success may be lost. The file is not open.
    fn sync(&mut self, file: u32) -> Result<(), Reason>;

    /// Closes a file. Its pages stay in the cache, changed or not.
    fn close(&mut self, file: u32);

    /// Removes all pages of an open file from the cache, and forgets how it was read. Linux keeps pages that were changed
    /// since [`Self::sync`]; the image writes them to the disk first.
    ///
    /// # Errors
    /// The cache cannot be emptied.
    fn empty_cache(&mut self, file: u32) -> Result<(), Reason>;

    /// Returns what the cache has done so far.
    ///
    /// # Errors
    /// The system does not count it.
    fn cache_counts(&mut self) -> Result<CacheCounts, Reason>;
}

/// Counts of a page cache so far, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Pages read from the disk, with those read ahead.
    pub fetched: u64,
    /// Pages that a call needed, if the cache counts them.
    pub needed: Option<Needed>,
    /// Pages written to the disk, if the cache counts them.
    pub written: Option<u64>,
}

/// Pages that calls needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Pages in the cache.
    pub hits: u64,
    /// Pages that were not in the cache, or still being read ahead. A read waits for them.
    pub misses: u64,
}

impl CacheCounts {
    /// Returns what the cache has done since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let needed = self.needed.zip(before.needed);
        let written = self.written.zip(before.written);
        Self {
            fetched: self.fetched.saturating_sub(before.fetched),
            needed: needed.map(|(after, before)| Needed {
                hits: after.hits - before.hits,
                misses: after.misses - before.misses,
            }),
            written: written.map(|(after, before)| after - before),
        }
    }
}
