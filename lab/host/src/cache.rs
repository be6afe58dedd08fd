//! Cache between runs: downloaded packages, snapshots and symbols of simulated machines.
//!
//! Snapshots and symbols are evicted, least recently used first, above a limit. Downloads stay until
//! they are removed on request, because figures depend on their versions.

use crate::{draft, private, Error};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A cache directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its directory.
    pub directory: PathBuf,
    /// Limit of snapshots and symbols together, in bytes.
    pub limit: u64,
}

/// Default limit, in bytes: about twenty machines.
pub const DEFAULT_LIMIT: u64 = 4 << 30;

/// Returns `$XDG_CACHE_HOME/trapline`, or `~/.cache/trapline`.
///
/// # Errors
/// There is no home directory, or other users can change the cache or what is in it: its programs are executed.
pub fn default_directory() -> Result<PathBuf, Error> {
    let (directory, origin) = private::user_directory("XDG_CACHE_HOME", ".cache")?;
    private::check_home(origin)?;
    private::check(&directory, origin)?;
    private::check_tree(&directory)?;
    Ok(directory)
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Downloaded kernel.
    Kernel,
    /// Downloaded Xen with a kernel for dom0.
    Xen,
    /// Downloaded rt-tests (cyclictest).
    RtTests,
    /// Downloaded user-mode Linux.
    Uml,
    /// Source and tools of the workload `kernel-build`.
    KernelBuild,
    /// State of a booted simulated machine.
    Snapshot,
    /// Symbol addresses of a simulated machine.
    Symbols,
    /// Downloaded debug symbols of programs.
    DebugSymbols,
    /// Downloaded busybox.
    Shell,
}

impl Kind {
    /// All kinds, with their names and directories, in their order.
    const TABLE: [(Self, &'static str, &'static str); 9] = [
        (Self::Kernel, "kernel", "kernels"),
        (Self::Xen, "xen", "xen"),
        (Self::RtTests, "rt-tests", "rt-tests"),
        (Self::Uml, "uml", "uml"),
        (Self::KernelBuild, "kernel-build", "kernel-build"),
        (Self::Snapshot, "snapshot", "snapshots"),
        (Self::Symbols, "symbols", "symbols"),
        (Self::DebugSymbols, "debug-symbols", "debug-symbols"),
        (Self::Shell, "shell", "shell"),
    ];

    fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(kind, _, _)| kind)
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    const fn directory(self) -> &'static str {
        Self::TABLE[self as usize].2
    }

    /// Returns whether it can be regenerated identically. All others are directories of downloads.
    const fn is_evictable(self) -> bool {
        matches!(self, Self::Snapshot | Self::Symbols)
    }
}

/// An entry of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// Name of a package, or hash of a machine's configuration.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of its last use.
    pub used: SystemTime,
    path: PathBuf,
}

impl Cache {
    /// Returns the directory of a kind.
    pub fn of(&self, kind: Kind) -> PathBuf {
        self.directory.join(kind.directory())
    }

    /// Returns all entries by kind, most recently used first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for kind in Kind::all() {
            let directory = self.of(kind);
            match fs::read_dir(&directory) {
                Ok(found) => {
                    entries.extend(found.flatten().filter_map(|found| entry(kind, &found)))
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::file(directory)(error)),
            }
        }
        entries.sort_by_key(|entry| (entry.kind, std::cmp::Reverse(entry.used)));
        Ok(entries)
    }

    /// Returns what killed processes left behind, in kinds and in downloads.
    fn abandoned(&self) -> Vec<Entry> {
        let in_kind = |kind: Kind| {
            let inside = subdirectories(&self.of(kind)).filter(move |_| !kind.is_evictable());
            let places = [self.of(kind)].into_iter().chain(inside);
            let paths = places.flat_map(|place| draft::abandoned_in(&place).collect::<Vec<_>>());
            paths.filter_map(move |path| Entry::of(kind, path))
        };
        Kind::all().flat_map(in_kind).collect()
    }

    /// Removes what killed processes left behind, and returns it. Another process may remove it first.
    ///
    /// # Errors
    /// An entry cannot be removed.
    pub fn remove_abandoned(&self) -> Result<Vec<Entry>, Error> {
        let entries = self.abandoned();
        entries.iter().try_for_each(|entry| remove(&entry.path))?;
        Ok(entries)
    }

    /// Evicts snapshots and symbols, least recently used first, down to `limit` bytes, and removes what
    /// killed processes left behind. Returns the removed entries. A machine that is being restored keeps
    /// its open file.
    ///
    /// # Errors
    /// An entry cannot be read or removed.
    pub fn prune(&self, limit: u64) -> Result<Vec<Entry>, Error> {
        let mut removed = self.remove_abandoned()?;
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.kind.is_evictable());
        entries.sort_by_key(|entry| entry.used);
        let mut left: u64 = entries.iter().map(|entry| entry.bytes).sum();
        for entry in entries {
            if left <= limit {
                break;
            }
            left -= entry.bytes;
            remove(&entry.path)?;
            removed.push(entry);
        }
        Ok(removed)
    }

    /// Removes all entries, downloads too. Returns them.
    ///
    /// # Errors
    /// See [`Self::prune`].
    pub fn clear(&self) -> Result<Vec<Entry>, Error> {
        let mut removed = self.remove_abandoned()?;
        let entries = self.entries()?;
        entries.iter().try_for_each(|entry| remove(&entry.path))?;
        removed.extend(entries);
        Ok(removed)
    }
}

impl Entry {
    fn of(kind: Kind, path: PathBuf) -> Option<Self> {
        let about = fs::symlink_metadata(&path).ok()?;
        Some(Self {
            kind,
            name: path.file_name()?.to_string_lossy().into_owned(),
            bytes: size(&path),
            used: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            path,
        })
    }
}

/// Prefix of files in progress.
pub const INCOMPLETE: &str = ".making-";

fn subdirectories(place: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir())
}

/// Returns whether a file name is a SHA-256, as of all complete snapshots and symbols.
fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn entry(kind: Kind, found: &fs::DirEntry) -> Option<Entry> {
    let name = found.file_name().to_string_lossy().into_owned();
    let about = found.metadata().ok()?;
    let is_entry = if kind.is_evictable() {
        about.is_file() && is_hash(&name)
    } else {
        about.is_dir() && !name.starts_with('.')
    };
    is_entry.then(|| Entry::of(kind, found.path())).flatten()
}

/// Returns how many bytes a file, or all files in a directory, take; 0 if there is none.
pub fn size(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else {
        return 0;
    };
    if !about.is_dir() {
        // Holes take no space.
        return about.len().min(512 * about.blocks());
    }
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    inside.map(|entry| size(&entry.path())).sum()
}

fn remove(path: &Path) -> Result<(), Error> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Returns valid names, each of one repeated digit.
    fn hashes(digits: &[&str]) -> Vec<String> {
        digits.iter().map(|digit| digit.repeat(64)).collect()
    }

    /// Returns a cache with a kernel and snapshots of 100 bytes each, used in this order.
    fn cache(snapshots: &[&str]) -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit: 0,
        };
        let kernel = cache.of(Kind::Kernel).join("linux-image-1");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("vmlinuz"), [0; 70]).unwrap();
        fs::create_dir_all(cache.of(Kind::Snapshot)).unwrap();
        for (name, age) in hashes(snapshots).iter().rev().zip(1..) {
            let path = cache.of(Kind::Snapshot).join(name);
            fs::write(&path, [0; 100]).unwrap();
            let used = SystemTime::now() - Duration::from_secs(60 * age);
            fs::File::options()
                .append(true)
                .open(path)
                .unwrap()
                .set_modified(used)
                .unwrap();
        }
        fs::write(cache.of(Kind::Snapshot).join("a.lock"), []).unwrap();
        (directory, cache)
    }

    fn names(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn entries_are_listed_with_their_sizes() {
        let (_directory, cache) = cache(&["a", "b"]);
        let entries = cache.entries().unwrap();
        assert_eq!(names(&entries)[0], "linux-image-1");
        assert_eq!(names(&entries)[1..], hashes(&["b", "a"]));
        assert_eq!((entries[0].kind.name(), entries[0].bytes), ("kernel", 70));
        let nowhere = Cache {
            directory: "/nonexistent".into(),
            limit: 0,
        };
        assert_eq!(nowhere.entries().unwrap(), []);
    }

    #[test]
    fn least_recently_used_entries_are_evicted_and_kernels_stay() {
        let (_directory, cache) = cache(&["a", "b", "c"]);
        assert_eq!(names(&cache.prune(300).unwrap()), Vec::<&str>::new());
        assert_eq!(names(&cache.prune(299).unwrap()), hashes(&["a"]));
        assert_eq!(names(&cache.prune(0).unwrap()), hashes(&["b", "c"]));
        assert_eq!(names(&cache.entries().unwrap()), ["linux-image-1"]);
        assert_eq!(cache.clear().unwrap().len(), 1);
        assert_eq!(cache.entries().unwrap(), []);
    }

    #[test]
    fn abandoned_files_and_directories_are_pruned() {
        let (_directory, cache) = cache(&["a"]);
        let kernels = cache.of(Kind::Kernel);
        let abandoned = [
            cache.of(Kind::Snapshot).join(".making-once"),
            kernels.join(".fetching-once"),
            kernels.join("linux-image-1/.fetching-once"),
        ];
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        for path in &abandoned {
            fs::create_dir_all(path).unwrap();
            fs::write(path.join("file"), "half").unwrap();
            let directory = fs::File::open(path).unwrap();
            directory.set_modified(long_ago).unwrap();
        }
        let removed = cache.prune(u64::MAX).unwrap();
        assert_eq!(removed.len(), abandoned.len());
        assert!(abandoned.iter().all(|path| !path.exists()));
        assert_eq!(cache.entries().unwrap().len(), 2);
    }

    #[test]
    fn foreign_and_incomplete_files_are_kept() {
        let (_directory, cache) = cache(&["a"]);
        let snapshots = cache.of(Kind::Snapshot);
        fs::write(snapshots.join("notes.txt"), "mine").unwrap();
        fs::write(snapshots.join(".making-now"), "half").unwrap();
        fs::create_dir(snapshots.join("b".repeat(64))).unwrap();
        assert_eq!(cache.entries().unwrap().len(), 2);
        cache.clear().unwrap();
        let left = fs::read_dir(snapshots).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<_> = left.collect();
        left.sort_unstable();
        let expected = [".making-now", "a.lock", &"b".repeat(64), "notes.txt"];
        assert_eq!(left, expected);
    }
}
