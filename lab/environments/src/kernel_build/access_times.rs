//! Finds the files that were read, by their access times: with `relatime` a file system updates them at the
//! first access after a reset.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Access time of files that were not read.
const UNREAD: i64 = 0;

/// Returns the relative paths of all files and links below a directory.
///
/// # Errors
/// It cannot be read.
pub fn files(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    walk(root, root, &mut |path, _| {
        found.insert(path.to_owned());
        Ok(())
    })?;
    Ok(found)
}

/// Resets the access times of all files and links below a directory.
///
/// # Errors
/// One cannot be changed.
pub fn reset_all(root: &Path) -> io::Result<()> {
    walk(root, root, &mut |path, _| reset(&root.join(path)))
}

/// Returns the files and links that were read since [`reset_all`].
///
/// # Errors
/// The directory cannot be read.
pub fn accessed(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    walk(root, root, &mut |path, about| {
        if about.atime() != UNREAD {
            found.insert(path.to_owned());
        }
        Ok(())
    })?;
    Ok(found)
}

type Visit<'a> = &'a mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>;

fn walk(root: &Path, directory: &Path, visit: Visit<'_>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let about = fs::symlink_metadata(&path)?;
        if about.is_dir() {
            walk(root, &path, visit)?;
        } else if about.is_file() || about.is_symlink() {
            visit(path.strip_prefix(root).unwrap_or(&path), &about)?;
        }
    }
    Ok(())
}

fn reset(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let unread = libc::timespec {
        tv_sec: UNREAD,
        tv_nsec: 0,
    };
    let unchanged = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_OMIT,
    };
    let times = [unread, unchanged];
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: both pointers are valid during the call: a C string, and an array of two times.
    match unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), times.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the file system records that a file was read. Mounts with `noatime` do not.
    fn has_access_times(read: &Path) -> bool {
        let read = fs::metadata(read).unwrap();
        let is_recorded = read.accessed().unwrap() > std::time::UNIX_EPOCH;
        if !is_recorded {
            trapline_skip::skip("access times", "temporary files have no access times");
        }
        is_recorded
    }

    #[test]
    fn read_files_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("lib")).unwrap();
        for name in ["lib/read", "lib/not"] {
            fs::write(root.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("lib/read", root.join("link")).unwrap();
        reset_all(root).unwrap();
        assert_eq!(accessed(root).unwrap().len(), 0);
        fs::read(root.join("link")).unwrap();
        if !has_access_times(&root.join("lib/read")) {
            return;
        }
        let found = accessed(root).unwrap();
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["lib/read", "link"]);
        assert_eq!(files(root).unwrap().len(), 3);
    }
}
