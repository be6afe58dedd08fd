//! Files and directories of the cache in progress, and temporary directories.
//!
//! They are locked (flock(2)) by the process that writes them. An unlocked one was left behind by a killed
//! process.

use crate::private::is_ours;
use crate::Error;
use rustix::fs::{flock, FlockOperation};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::{Builder, NamedTempFile, TempDir};

/// Prefixes of their names: of downloads, of everything else in the cache, and of temporary directories.
const PREFIXES: [&str; 3] = [".fetching-", ".making-", TEMPORARY];

/// Beginning of the names of temporary directories.
pub const TEMPORARY: &str = ".trapline-work-";

/// Age of an abandoned one: it may be locked a moment after its creation.
const SETTLED: Duration = Duration::from_secs(5);

/// A directory in progress, removed when dropped.
#[derive(Debug)]
pub struct WorkDirectory {
    directory: TempDir,
    _lock: File,
}

impl WorkDirectory {
    /// Creates a directory in `place` to download into, and removes abandoned ones.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(place: &Path) -> Result<Self, Error> {
        Self::with_prefix(PREFIXES[0], place)
    }

    /// Creates a temporary directory, and removes abandoned ones.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn temporary() -> Result<Self, Error> {
        Self::with_prefix(TEMPORARY, &std::env::temp_dir())
    }

    /// It is for this user only, whatever the umask is.
    fn with_prefix(prefix: &str, place: &Path) -> Result<Self, Error> {
        remove_abandoned(place);
        let directory = Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(place);
        let directory = directory.map_err(Error::file(place))?;
        Ok(Self {
            _lock: locked(directory.path()).map_err(Error::file(directory.path()))?,
            directory,
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Creates a file in `place`, removed when dropped, and removes abandoned ones.
///
/// # Errors
/// It cannot be created.
pub fn file_in(place: &Path) -> Result<NamedTempFile, Error> {
    remove_abandoned(place);
    let file = Builder::new().prefix(PREFIXES[1]).tempfile_in(place);
    let file = file.map_err(Error::file(place))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| Error::file(file.path())(error.into()))?;
    Ok(file)
}

fn locked(path: &Path) -> std::io::Result<File> {
    let file = File::open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Returns the abandoned files and directories in `place`.
pub fn abandoned_in(place: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| is_abandoned(path))
}

/// Removes the abandoned files and directories in `place`, which another process may do at the same time.
pub fn remove_abandoned(place: &Path) {
    for path in abandoned_in(place) {
        let _ = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
    }
}

/// Returns whether a file or directory in progress was left behind.
pub fn is_abandoned(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) else {
        return false;
    };
    is_settled(path) && !has_owner(rest) && locked(path).is_ok()
}

/// Returns whether a file or directory is ours and not new. Others can put anything into the directory for temporary
/// files; to open a FIFO would wait.
fn is_settled(path: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(path) else {
        return false;
    };
    let age = about.modified().ok().and_then(|at| at.elapsed().ok());
    (about.is_file() || about.is_dir())
        && is_ours(about.uid())
        && age.is_some_and(|age| age >= SETTLED)
}

/// Returns whether a name of the form `PID-SUFFIX` has the id of a process. Such directories are not locked.
fn has_owner(name: &str) -> bool {
    let number = name.split_once('-').map(|(number, _)| number);
    let number: Option<u32> = number.and_then(|number| number.parse().ok());
    number.is_some_and(|number| Path::new(&format!("/proc/{number}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn work_directories_are_for_their_owner_only() {
        let place = tempfile::tempdir().unwrap();
        for made in [
            WorkDirectory::create(place.path()),
            WorkDirectory::temporary(),
        ] {
            let made = made.unwrap();
            let mode = fs::metadata(made.path()).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o700);
        }
    }

    /// Makes a file or directory old enough to be abandoned.
    fn settle(path: &Path) {
        let file = File::open(path).unwrap();
        file.set_modified(SystemTime::now() - 2 * SETTLED).unwrap();
    }

    #[test]
    fn only_unlocked_entries_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let (directory, file) = (
            WorkDirectory::create(place).unwrap(),
            file_in(place).unwrap(),
        );
        let left = [
            ".fetching-abc",
            ".making-abc",
            ".making-4194305-abc",
            ".trapline-work-abc",
        ];
        let living = format!(".making-{}-abc", std::process::id());
        for name in left.into_iter().chain([living.as_str(), "mine"]) {
            fs::create_dir(place.join(name)).unwrap();
            fs::write(place.join(name).join("file"), "half").unwrap();
            settle(&place.join(name));
        }
        fs::create_dir(place.join(".fetching-new")).unwrap();
        settle(directory.path());
        settle(file.path());
        assert_eq!(abandoned_in(place).count(), left.len());
        remove_abandoned(place);
        assert!(left.iter().all(|name| !place.join(name).exists()));
        assert!(directory.path().is_dir() && file.path().is_file());
        assert!(place.join(living).is_dir() && place.join("mine").is_dir());
        assert!(place.join(".fetching-new").is_dir());
    }

    #[test]
    fn fifo_does_not_stop_and_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join(format!("{TEMPORARY}fifo"));
        for command in [&["mkfifo"][..], &["touch", "-d", "1 hour ago"]] {
            let mut made = std::process::Command::new(command[0]);
            let made = made.args(&command[1..]).arg(&fifo).status();
            assert!(made.unwrap().success());
        }
        remove_abandoned(place.path());
        assert!(fifo.exists());
    }

    #[test]
    fn dropped_entries_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        drop((WorkDirectory::create(place), file_in(place)));
        assert_eq!(fs::read_dir(place).unwrap().count(), 0);
    }
}
