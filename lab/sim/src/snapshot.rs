//! Snapshots of booted machines.
//!
//! A snapshot is the machine's memory, whose zero pages are holes, QEMU's migration stream of all else, and
//! length and checksum as a trailer: incomplete or changed files are not used. A restored machine maps the
//! memory, and copies the pages that it writes. The name is the hash of the machine's configuration. A
//! snapshot is published by a rename.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tempfile::NamedTempFile;
use trapline_host::cache::{self, Kind};
use trapline_host::draft;
use trapline_host::{private, Cache, Error, Limits};

/// The snapshots of a cache.
pub struct Snapshots<'a> {
    cache: &'a Cache,
    directory: PathBuf,
}

/// Lock of a snapshot in progress.
pub struct SnapshotLock {
    path: PathBuf,
    _lock: File,
}

impl Drop for SnapshotLock {
    fn drop(&mut self) {
        // Waiting processes have the file open; its name is not needed.
        let _ = fs::remove_file(&self.path);
    }
}

/// A snapshot in progress.
pub struct SnapshotDraft {
    file: NamedTempFile,
    place: PathBuf,
}

/// Wall time to wait for another process, in time limits: an emulator is limited by CPU time.
const PATIENCE: u32 = 10;

/// Trailer: this, length and CRC-32.
const MAGIC: [u8; 8] = *b"trapline";
const TRAILER: usize = 20;

/// Bytes of a page, and of a read.
const PAGE: usize = 4096;
const PIECE: usize = 256 * PAGE;

impl<'a> Snapshots<'a> {
    /// Returns the snapshots of `cache`.
    pub fn of(cache: &'a Cache) -> Self {
        Self {
            cache,
            directory: cache.of(Kind::Snapshot),
        }
    }

    /// Returns the snapshot `key` of a machine with `memory` bytes, at the start of its migration stream; `None` if no
    /// valid one exists. QEMU opens memory for writing, even if it does not write to it.
    pub fn find(&self, key: &str, memory: u64) -> Option<File> {
        let open = File::options().read(true).write(true).open(self.place(key));
        let mut file = open.ok()?;
        if !is_whole(&file).unwrap_or(false) {
            self.discard(key);
            return None;
        }
        // If this fails, it only counts as used less recently.
        let _ = file.set_modified(SystemTime::now());
        file.seek(SeekFrom::Start(memory)).ok()?;
        Some(file)
    }

    /// Removes an unusable snapshot.
    pub fn discard(&self, key: &str) {
        // If this fails, the next process finds it unusable, too.
        let _ = fs::remove_file(self.place(key));
    }

    /// Waits for the lock of the snapshot `key`.
    ///
    /// # Errors
    /// The cache cannot be written, or a limit was reached.
    pub fn turn(&self, key: &str, limits: &Limits) -> Result<SnapshotLock, Error> {
        private::create_directory(&self.directory)?;
        let path = self.directory.join(format!("{key}.lock"));
        let lock = File::create(&path).map_err(Error::file(&path))?;
        let start = Instant::now();
        let limits = Limits {
            timeout: PATIENCE * limits.timeout,
            stop: Arc::clone(&limits.stop),
        };
        while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            limits.check(start.elapsed(), || {
                "another process boots this machine".to_owned()
            })?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(SnapshotLock { path, _lock: lock })
    }

    /// Starts a snapshot.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub fn draft(&self, key: &str) -> Result<SnapshotDraft, Error> {
        Ok(SnapshotDraft {
            file: draft::file_in(&self.directory)?,
            place: self.place(key),
        })
    }

    /// Publishes a complete snapshot and evicts others.
    ///
    /// # Errors
    /// It cannot be written, or is larger than the limit of the cache.
    pub fn keep(&self, draft: SnapshotDraft) -> Result<(), Error> {
        let SnapshotDraft { mut file, place } = draft;
        seal(file.as_file_mut()).map_err(Error::file(&place))?;
        let size = cache::size(file.path());
        if size > self.cache.limit {
            let full = format!("{size} bytes are more than the cache may take: --cache-limit");
            return Err(Error::file(place)(io::Error::other(full)));
        }
        let persisted = file.persist(&place).map_err(|error| error.error);
        persisted.map_err(Error::file(&place))?;
        self.cache.prune(self.cache.limit).map(drop)
    }

    fn place(&self, key: &str) -> PathBuf {
        self.directory.join(key)
    }
}

impl SnapshotDraft {
    /// Writes the machine's memory, all of `memory`. Returns the file, at the start of the migration stream.
    ///
    /// # Errors
    /// The memory cannot be read, or the file cannot be written.
    pub fn with_memory(&self, memory: &File) -> Result<&File, Error> {
        let mut file = self.file.as_file();
        let mut written = || {
            let length = memory.metadata()?.len();
            for_each_page(memory, length, |at, page| file.write_all_at(page, at))?;
            file.seek(SeekFrom::Start(length))
        };
        written().map_err(Error::file(&self.place))?;
        Ok(file)
    }
}

/// Appends the trailer.
fn seal(file: &mut File) -> io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    file.write_all_at(&trailer(length, checksum(file, length)?), length)
}

/// Returns whether the trailer matches.
fn is_whole(file: &File) -> io::Result<bool> {
    let Some(length) = file.metadata()?.len().checked_sub(TRAILER as u64) else {
        return Ok(false);
    };
    let mut found = [0; TRAILER];
    file.read_exact_at(&mut found, length)?;
    Ok(found == trailer(length, checksum(file, length)?))
}

fn trailer(length: u64, checksum: u32) -> [u8; TRAILER] {
    let mut trailer = [0; TRAILER];
    trailer[..8].copy_from_slice(&MAGIC);
    trailer[8..16].copy_from_slice(&length.to_le_bytes());
    trailer[16..].copy_from_slice(&checksum.to_le_bytes());
    trailer
}

/// Returns the CRC-32 of all pages in the first `length` bytes that are not zero, each after its offset.
fn checksum(file: &File, length: u64) -> io::Result<u32> {
    let mut sum = crc32fast::Hasher::new();
    for_each_page(file, length, |at, page| {
        sum.update(&at.to_le_bytes());
        sum.update(page);
        Ok(())
    })?;
    Ok(sum.finalize())
}

/// Calls `use_page` with the offset and the bytes of each page in the first `length` bytes that is not zero. Holes
/// are not read.
fn for_each_page(
    file: &File,
    length: u64,
    mut use_page: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while let Some(data) = next_data(file, at)?.filter(|data| *data < length) {
        at = data - data % PAGE as u64;
        let left = usize::try_from(length - at).unwrap_or(PIECE);
        let piece = &mut buffer[..left.min(PIECE)];
        file.read_exact_at(piece, at)?;
        for page in piece.chunks(PAGE) {
            if *page != [0; PAGE][..page.len()] {
                use_page(at, page)?;
            }
            at += page.len() as u64;
        }
    }
    Ok(())
}

/// Returns the offset of the next byte from `at` on that is not in a hole.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::io::{Read, Write};

    /// A valid name of a snapshot.
    const KEY: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    fn key(digit: char) -> String {
        KEY.replace('0', &digit.to_string())
    }

    const WATCH: fn() -> Limits = || Limits::timeout(Duration::from_millis(200));

    fn cache(limit: u64) -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit,
        };
        (directory, cache)
    }

    fn make(snapshots: &Snapshots<'_>, key: &str, state: &[u8]) -> Result<(), Error> {
        let _turn = snapshots.turn(key, &WATCH())?;
        let draft = snapshots.draft(key)?;
        draft.file.as_file().write_all(state).unwrap();
        snapshots.keep(draft)
    }

    #[test]
    fn complete_snapshot_is_found_at_its_start() {
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        assert!(snapshots.find(KEY, 0).is_none());
        make(&snapshots, KEY, b"state").unwrap();
        let mut text = Vec::new();
        snapshots
            .find(KEY, 0)
            .unwrap()
            .read_to_end(&mut text)
            .unwrap();
        assert!(text.starts_with(b"state"));
        assert_eq!(cache.entries().unwrap().len(), 1, "neither draft nor lock");
    }

    #[test]
    fn memory_is_at_the_start_without_its_zero_pages() {
        const LENGTH: u64 = 64 << 20;
        const WRITTEN: u64 = 40 << 20;
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(LENGTH).unwrap();
        memory
            .write_all_at(&[0; 3 * PAGE], WRITTEN - PAGE as u64)
            .unwrap();
        memory.write_all_at(b"word", WRITTEN + 9).unwrap();
        let turn = snapshots.turn(KEY, &WATCH()).unwrap();
        let draft = snapshots.draft(KEY).unwrap();
        let mut stream = draft.with_memory(&memory).unwrap();
        stream.write_all(b"state").unwrap();
        snapshots.keep(draft).unwrap();
        drop(turn);
        let mut found = snapshots.find(KEY, LENGTH).unwrap();
        let mut bytes = [0; 13];
        found.read_exact_at(&mut bytes, WRITTEN).unwrap();
        assert_eq!(&bytes, b"\0\0\0\0\0\0\0\0\0word");
        found.read_exact(&mut bytes[..5]).unwrap();
        assert_eq!(&bytes[..5], b"state");
        let size = cache::size(&snapshots.place(KEY));
        assert!(size < 1 << 17, "{size}");
        found.write_all_at(b"w", LENGTH - 1).unwrap();
        assert!(snapshots.find(KEY, 0).is_none(), "a hole was filled");
    }

    #[test]
    fn incomplete_and_changed_snapshots_are_discarded() {
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        make(&snapshots, KEY, &[7; 5000]).unwrap();
        let path = snapshots.place(KEY);
        let whole = fs::read(&path).unwrap();
        let mut changed = whole.clone();
        changed[2500] ^= 1;
        for bytes in [&whole[..4000], &whole[..whole.len() - 1], &[], &changed] {
            fs::write(&path, bytes).unwrap();
            assert!(snapshots.find(KEY, 0).is_none());
            assert!(!path.exists(), "it would be looked at again and again");
        }
    }

    #[test]
    fn dropped_draft_leaves_no_file() {
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        let turn = snapshots.turn(KEY, &WATCH()).unwrap();
        let draft = snapshots.draft(KEY).unwrap();
        draft.file.as_file().write_all(b"half").unwrap();
        drop((draft, turn));
        assert_eq!(fs::read_dir(&snapshots.directory).unwrap().count(), 0);
        let forgotten = snapshots.directory.join(".making-abc");
        fs::write(&forgotten, b"half").unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(7200);
        let file = File::options().append(true).open(&forgotten).unwrap();
        file.set_modified(long_ago).unwrap();
        make(&snapshots, KEY, b"state").unwrap();
        assert!(!forgotten.exists());
    }

    #[test]
    fn lock_serializes_writers_of_one_snapshot() {
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        let turn = snapshots.turn(KEY, &WATCH()).unwrap();
        assert!(snapshots.turn("other", &WATCH()).is_ok());
        let error = snapshots.turn(KEY, &WATCH()).err().unwrap();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        drop(turn);
        assert!(snapshots.turn(KEY, &WATCH()).is_ok());
    }

    #[test]
    fn full_cache_evicts_the_oldest_and_rejects_too_large_snapshots() {
        let (directory, cache) = cache(2500);
        let snapshots = Snapshots::of(&cache);
        for digit in ['1', '2', '3'] {
            make(&snapshots, &key(digit), &[0; 1000]).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(snapshots.find(&key('1'), 0).is_none());
        assert!(snapshots.find(&key('3'), 0).is_some());
        let error = make(&snapshots, KEY, &[0; 3000]).unwrap_err();
        let directory = directory.path().display().to_string();
        let error = error.to_string().replace(&directory, "DIR");
        expect!["DIR/snapshots/KEY: 3020 bytes are more than the cache may take: --cache-limit"]
            .assert_eq(&error.replace(KEY, "KEY"));
    }

    #[test]
    fn unwritable_cache_is_an_error() {
        let cache = Cache {
            directory: "/proc/nowhere".into(),
            limit: 1,
        };
        let snapshots = Snapshots::of(&cache);
        assert!(snapshots.find(KEY, 0).is_none());
        let error = snapshots.turn(KEY, &WATCH()).err().unwrap().to_string();
        expect!["/proc/nowhere/snapshots: No such file or directory (os error 2)"]
            .assert_eq(&error);
    }
}
