//! Which files were read: a file system notes when, and with `relatime` it does so at the
//! first time after that note was set back.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The moment to which notes are set back.
const NEVER: i64 = 0;

/// All files and links below a directory, by their paths from there.
///
/// # Errors
/// It cannot be read.
pub fn all(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    walk(root, root, &mut |path, _| {
        found.insert(path.to_owned());
        Ok(())
    })?;
    Ok(found)
}

/// Lets all files and links below a directory be as if nobody had read them.
///
/// # Errors
/// One cannot be changed.
pub fn forget(root: &Path) -> io::Result<()> {
    walk(root, root, &mut |path, _| set_back(&root.join(path)))
}

/// Those that somebody has read since.
///
/// # Errors
/// The directory cannot be read.
pub fn since(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    walk(root, root, &mut |path, about| {
        if about.atime() != NEVER {
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

fn set_back(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let never = libc::timespec {
        tv_sec: NEVER,
        tv_nsec: 0,
    };
    let keep = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_OMIT,
    };
    let times = [never, keep];
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: a string and an array of two times, both of which outlive the call.
    match unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), times.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_noted() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("lib")).unwrap();
        for name in ["lib/read", "lib/not"] {
            fs::write(root.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("lib/read", root.join("link")).unwrap();
        forget(root).unwrap();
        assert_eq!(since(root).unwrap().len(), 0);
        fs::read(root.join("link")).unwrap();
        let found = since(root).unwrap();
        if found.is_empty() {
            eprintln!("skipped: {} does not note who reads", root.display());
            return;
        }
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["lib/read", "link"]);
        assert_eq!(all(root).unwrap().len(), 3);
    }
}
