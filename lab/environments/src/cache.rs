//! What is kept between runs: kernels and Xen as they were fetched, snapshots of machines that
//! were booted, and where code lies on them. All but what was fetched can be made again
//! at any time and give way, the least recently used first, when they take too
//! much; that stays until it is asked to go, for figures move with it.

use crate::error::EnvError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The cache of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its directory.
    pub directory: PathBuf,
    /// What snapshots and symbols may take together, in bytes.
    pub limit: u64,
}

/// What the cache may take if nobody says otherwise, in bytes: some twenty
/// machines.
pub const DEFAULT_LIMIT: u64 = 4 << 30;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A kernel that was fetched.
    Kernel,
    /// A Xen that was fetched, with a kernel for its first domain.
    Xen,
    /// What measures timers, as it was fetched.
    RtTests,
    /// User-mode Linux, as it was fetched.
    Uml,
    /// What kernels are built from and with.
    KernelBuild,
    /// The state of a machine that was booted.
    Snapshot,
    /// Where code lies on a machine.
    Symbols,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Kernel,
        Self::Xen,
        Self::RtTests,
        Self::Uml,
        Self::KernelBuild,
        Self::Snapshot,
        Self::Symbols,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Xen => "xen",
            Self::RtTests => "rt-tests",
            Self::Uml => "uml",
            Self::KernelBuild => "kernel-build",
            Self::Snapshot => "snapshot",
            Self::Symbols => "symbols",
        }
    }

    const fn directory(self) -> &'static str {
        match self {
            Self::Kernel => "kernels",
            Self::Xen => "xen",
            Self::RtTests => "rt-tests",
            Self::Uml => "uml",
            Self::KernelBuild => "kernel-build",
            Self::Snapshot => "snapshots",
            Self::Symbols => "symbols",
        }
    }

    /// Whether it can be made again with the same result.
    const fn gives_way(self) -> bool {
        !matches!(
            self,
            Self::Kernel | Self::Xen | Self::RtTests | Self::Uml | Self::KernelBuild
        )
    }
}

/// Something in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its name: that of a package, or the hash of all that a machine is made of.
    pub name: String,
    /// What it takes, in bytes.
    pub bytes: u64,
    /// When it was used last.
    pub used: SystemTime,
    path: PathBuf,
}

impl Cache {
    /// The directory of the entries of a kind.
    pub fn of(&self, kind: Kind) -> PathBuf {
        self.directory.join(kind.directory())
    }

    /// Everything in it, by kind, the most recently used first.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, EnvError> {
        let mut entries = Vec::new();
        for kind in Kind::ALL {
            let directory = self.of(kind);
            match fs::read_dir(&directory) {
                Ok(found) => {
                    entries.extend(found.flatten().filter_map(|found| entry(kind, &found)))
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(EnvError::file(directory)(error)),
            }
        }
        entries.sort_by_key(|entry| (entry.kind, std::cmp::Reverse(entry.used)));
        Ok(entries)
    }

    /// Removes what can be made again, the least recently used first, until it
    /// takes at most `most` bytes; what was removed. A machine that is being
    /// restored keeps what it has opened.
    ///
    /// # Errors
    /// Something cannot be read or removed.
    pub fn prune(&self, most: u64) -> Result<Vec<Entry>, EnvError> {
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.kind.gives_way());
        entries.sort_by_key(|entry| entry.used);
        let mut left: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut removed = Vec::new();
        for entry in entries {
            if left <= most {
                break;
            }
            left -= entry.bytes;
            remove(&entry.path)?;
            removed.push(entry);
        }
        Ok(removed)
    }

    /// Removes everything, kernels too; what was removed.
    ///
    /// # Errors
    /// As [`Self::prune`].
    pub fn clear(&self) -> Result<Vec<Entry>, EnvError> {
        let entries = self.entries()?;
        entries.iter().try_for_each(|entry| remove(&entry.path))?;
        Ok(entries)
    }
}

/// What the names of files in the making begin with, and the age at which nobody
/// works on one any more: whoever did was killed.
pub(crate) const DRAFT: &str = ".making-";
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// Whether a file was begun and given up.
pub(crate) fn is_forgotten(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let modified = fs::symlink_metadata(path).and_then(|about| about.modified());
    let age = modified.ok().and_then(|at| at.elapsed().ok());
    name.starts_with(DRAFT) && age.is_some_and(|age| age > FORGOTTEN)
}

/// Whether a file has such a name as we give: a SHA-256. Others are locks, what
/// somebody is just making, or not ours.
fn is_ours(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn entry(kind: Kind, found: &fs::DirEntry) -> Option<Entry> {
    let name = found.file_name().to_string_lossy().into_owned();
    let about = found.metadata().ok()?;
    let fits = match kind {
        Kind::Kernel | Kind::Xen | Kind::RtTests | Kind::Uml | Kind::KernelBuild => about.is_dir(),
        _ => about.is_file() && (is_ours(&name) || is_forgotten(&found.path())),
    };
    fits.then(|| Entry {
        kind,
        name,
        bytes: size(&found.path()),
        used: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        path: found.path(),
    })
}

fn size(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else {
        return 0;
    };
    if !about.is_dir() {
        return about.len();
    }
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    inside.map(|entry| size(&entry.path())).sum()
}

fn remove(path: &Path) -> Result<(), EnvError> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(EnvError::file(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names such as ours, each of one digit.
    fn long(digits: &[&str]) -> Vec<String> {
        digits.iter().map(|digit| digit.repeat(64)).collect()
    }

    /// A cache with a kernel and snapshots of 100 bytes each, used in this order.
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
        for (name, age) in long(snapshots).iter().rev().zip(1..) {
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
    fn what_is_there_is_listed_with_what_it_takes() {
        let (_directory, cache) = cache(&["a", "b"]);
        let entries = cache.entries().unwrap();
        assert_eq!(names(&entries)[0], "linux-image-1");
        assert_eq!(names(&entries)[1..], long(&["b", "a"]));
        assert_eq!((entries[0].kind.name(), entries[0].bytes), ("kernel", 70));
        let nowhere = Cache {
            directory: "/nonexistent".into(),
            limit: 0,
        };
        assert_eq!(nowhere.entries().unwrap(), []);
    }

    #[test]
    fn the_least_recently_used_gives_way_and_kernels_stay() {
        let (_directory, cache) = cache(&["a", "b", "c"]);
        assert_eq!(names(&cache.prune(300).unwrap()), Vec::<&str>::new());
        assert_eq!(names(&cache.prune(299).unwrap()), long(&["a"]));
        assert_eq!(names(&cache.prune(0).unwrap()), long(&["b", "c"]));
        assert_eq!(names(&cache.entries().unwrap()), ["linux-image-1"]);
        assert_eq!(cache.clear().unwrap().len(), 1);
        assert_eq!(cache.entries().unwrap(), []);
    }

    #[test]
    fn what_is_not_ours_or_not_finished_is_left_alone() {
        let (_directory, cache) = cache(&["a"]);
        let snapshots = cache.of(Kind::Snapshot);
        fs::write(snapshots.join("notes.txt"), "mine").unwrap();
        fs::write(snapshots.join(".making-now"), "half").unwrap();
        fs::create_dir(snapshots.join("b".repeat(64))).unwrap();
        let long_ago = SystemTime::now() - 2 * FORGOTTEN;
        let forgotten = fs::File::create(snapshots.join(".making-once")).unwrap();
        forgotten.set_modified(long_ago).unwrap();
        assert_eq!(cache.entries().unwrap().len(), 3);
        cache.clear().unwrap();
        let left = fs::read_dir(snapshots).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<_> = left.collect();
        left.sort_unstable();
        let expected = [".making-now", "a.lock", &"b".repeat(64), "notes.txt"];
        assert_eq!(left, expected);
    }
}
