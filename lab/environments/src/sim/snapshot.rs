//! Machines that were booted once, kept to be restored for each job.
//!
//! A snapshot is what QEMU writes when a machine's state is moved elsewhere, with its
//! length and checksum behind it: what was not written to its end, or has
//! changed since, is not used. It is named by the hash of all that went into the
//! machine, and appears in its place complete or not at all.

use crate::cache::{is_forgotten, Cache, Kind, DRAFT};
use crate::environment::Watch;
use crate::error::EnvError;
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tempfile::NamedTempFile;

/// The snapshots of a cache.
pub struct Snapshots<'a> {
    cache: &'a Cache,
    directory: PathBuf,
}

/// The right to make a snapshot that is not there yet.
pub struct Turn {
    path: PathBuf,
    _lock: File,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Who waits has the file open; whether it still has a name is all the same.
        let _ = fs::remove_file(&self.path);
    }
}

/// A snapshot in the making.
pub struct Draft {
    file: NamedTempFile,
    place: PathBuf,
}

/// What stands behind the state: this, its length and its CRC-32.
const MAGIC: [u8; 8] = *b"trapline";
const TRAILER: usize = 20;

impl<'a> Snapshots<'a> {
    /// Those of `cache`.
    pub fn of(cache: &'a Cache) -> Self {
        Self {
            cache,
            directory: cache.of(Kind::Snapshot),
        }
    }

    /// The snapshot called `key`, to be read from its beginning; `None` if there is
    /// none that can be used.
    pub fn find(&self, key: &str) -> Option<File> {
        let mut file = File::options().read(true).open(self.place(key)).ok()?;
        if !is_whole(&mut file).unwrap_or(false) {
            self.discard(key);
            return None;
        }
        // Where this fails, it only seems to have been used less recently.
        let _ = file.set_modified(SystemTime::now());
        Some(file)
    }

    /// Removes a snapshot that turned out to be of no use.
    pub fn discard(&self, key: &str) {
        // Where this fails, the next to find it comes to the same conclusion.
        let _ = fs::remove_file(self.place(key));
    }

    /// Waits until nobody else makes the snapshot called `key`.
    ///
    /// # Errors
    /// The cache cannot be written, or the time is over.
    pub fn turn(&self, key: &str, watch: &Watch) -> Result<Turn, EnvError> {
        fs::create_dir_all(&self.directory).map_err(EnvError::file(&self.directory))?;
        let path = self.directory.join(format!("{key}.lock"));
        let lock = File::create(&path).map_err(EnvError::file(&path))?;
        let start = Instant::now();
        while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            watch.check(start, || "another process boots this machine".to_owned())?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Turn { path, _lock: lock })
    }

    /// Begins a snapshot.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub fn draft(&self, key: &str) -> Result<Draft, EnvError> {
        self.remove_forgotten();
        let file = tempfile::Builder::new()
            .prefix(DRAFT)
            .tempfile_in(&self.directory);
        Ok(Draft {
            file: file.map_err(EnvError::file(&self.directory))?,
            place: self.place(key),
        })
    }

    /// Keeps a snapshot that is complete, and lets others give way to it.
    ///
    /// # Errors
    /// It cannot be kept, or is larger than the whole cache may be.
    pub fn keep(&self, draft: Draft) -> Result<(), EnvError> {
        let Draft { mut file, place } = draft;
        let length = seal(file.as_file_mut()).map_err(EnvError::file(&place))?;
        if length > self.cache.limit {
            let full = format!("{length} bytes are more than the cache may take: --cache-limit");
            return Err(EnvError::file(place)(io::Error::other(full)));
        }
        let persisted = file.persist(&place).map_err(|error| error.error);
        persisted.map_err(EnvError::file(&place))?;
        self.cache.prune(self.cache.limit).map(drop)
    }

    fn place(&self, key: &str) -> PathBuf {
        self.directory.join(key)
    }

    fn remove_forgotten(&self) {
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries.filter(|entry| is_forgotten(&entry.path())) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Draft {
    /// Where the state is to be written.
    pub fn file(&self) -> &File {
        self.file.as_file()
    }
}

/// Writes the trailer behind the state; the length of all, in bytes.
fn seal(file: &mut File) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let trailer = trailer(length, checksum(file, length)?);
    file.write_all(&trailer)?;
    Ok(length + TRAILER as u64)
}

/// Whether the trailer is there and fits the state; leaves the file at its
/// beginning.
fn is_whole(file: &mut File) -> io::Result<bool> {
    let all = file.seek(SeekFrom::End(0))?;
    let Some(length) = all.checked_sub(TRAILER as u64) else {
        return Ok(false);
    };
    file.rewind()?;
    let expected = trailer(length, checksum(file, length)?);
    let mut found = [0; TRAILER];
    file.read_exact(&mut found)?;
    file.rewind()?;
    Ok(found == expected)
}

fn trailer(length: u64, checksum: u32) -> [u8; TRAILER] {
    let mut trailer = [0; TRAILER];
    trailer[..8].copy_from_slice(&MAGIC);
    trailer[8..16].copy_from_slice(&length.to_le_bytes());
    trailer[16..].copy_from_slice(&checksum.to_le_bytes());
    trailer
}

/// Of the next `length` bytes.
fn checksum(file: &mut File, length: u64) -> io::Result<u32> {
    let mut sum = crc32fast::Hasher::new();
    let mut piece = vec![0; 1 << 20];
    let mut state = file.take(length);
    loop {
        match state.read(&mut piece)? {
            0 => return Ok(sum.finalize()),
            read => sum.update(&piece[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of snapshots: what is called otherwise is not ours.
    const KEY: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    fn key(digit: char) -> String {
        KEY.replace('0', &digit.to_string())
    }

    const WATCH: fn() -> Watch = || Watch::of(Duration::from_millis(200));

    fn cache(limit: u64) -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit,
        };
        (directory, cache)
    }

    fn make(snapshots: &Snapshots<'_>, key: &str, state: &[u8]) -> Result<(), EnvError> {
        let _turn = snapshots.turn(key, &WATCH())?;
        let draft = snapshots.draft(key)?;
        draft.file().write_all(state).unwrap();
        snapshots.keep(draft)
    }

    #[test]
    fn a_snapshot_is_found_whole_and_read_from_its_beginning() {
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        assert!(snapshots.find(KEY).is_none());
        make(&snapshots, KEY, b"state").unwrap();
        let mut text = Vec::new();
        snapshots.find(KEY).unwrap().read_to_end(&mut text).unwrap();
        assert!(text.starts_with(b"state"));
        assert_eq!(cache.entries().unwrap().len(), 1, "neither draft nor lock");
    }

    #[test]
    fn what_is_half_written_or_has_changed_is_not_used() {
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        make(&snapshots, KEY, &[7; 5000]).unwrap();
        let path = snapshots.place(KEY);
        let whole = fs::read(&path).unwrap();
        let mut changed = whole.clone();
        changed[2500] ^= 1;
        for bytes in [&whole[..4000], &whole[..whole.len() - 1], &[], &changed] {
            fs::write(&path, bytes).unwrap();
            assert!(snapshots.find(KEY).is_none());
            assert!(!path.exists(), "it would be looked at again and again");
        }
    }

    #[test]
    fn a_draft_that_is_given_up_leaves_nothing() {
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        let turn = snapshots.turn(KEY, &WATCH()).unwrap();
        let draft = snapshots.draft(KEY).unwrap();
        draft.file().write_all(b"half").unwrap();
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
    fn one_makes_it_while_others_wait() {
        let (_directory, cache) = cache(1 << 20);
        let snapshots = Snapshots::of(&cache);
        let turn = snapshots.turn(KEY, &WATCH()).unwrap();
        assert!(snapshots.turn("other", &WATCH()).is_ok());
        let error = snapshots.turn(KEY, &WATCH()).err().unwrap();
        assert!(matches!(error, EnvError::Hung { .. }), "{error}");
        drop(turn);
        assert!(snapshots.turn(KEY, &WATCH()).is_ok());
    }

    #[test]
    fn a_full_cache_lets_the_oldest_go_and_says_when_one_is_too_large() {
        let (_directory, cache) = cache(2500);
        let snapshots = Snapshots::of(&cache);
        for digit in ['1', '2', '3'] {
            make(&snapshots, &key(digit), &[0; 1000]).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(snapshots.find(&key('1')).is_none());
        assert!(snapshots.find(&key('3')).is_some());
        let error = make(&snapshots, KEY, &[0; 3000]).unwrap_err();
        assert!(error.to_string().contains("--cache-limit"), "{error}");
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_told() {
        let cache = Cache {
            directory: "/proc/nowhere".into(),
            limit: 1,
        };
        let snapshots = Snapshots::of(&cache);
        assert!(snapshots.find(KEY).is_none());
        let error = snapshots.turn(KEY, &WATCH()).err().unwrap().to_string();
        assert!(error.starts_with("/proc/nowhere/snapshots"), "{error}");
    }
}
