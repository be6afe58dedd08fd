//! Proof of a build: hash of the names and sizes of all symbols of all created object files, in a
//! canonical order.
//!
//! Object files of two builds may differ in embedded times and paths, but not in their symbols.

use elf::endian::AnyEndian;
use elf::ElfBytes;
use sha2::{Digest, Sha256};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Proof of a build.
#[derive(Debug, PartialEq, Eq)]
pub struct Proof {
    /// Number of object files.
    pub objects: u32,
    /// Number of symbols.
    pub symbols: u64,
    /// SHA-256 of all symbols, in hexadecimal digits.
    pub hash: String,
}

/// Modification time of all prepared files: equal, so that `make` considers them up to date, and older
/// than all created files.
const RESET_TIME: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Extension of object files.
const OBJECT: &str = "o";

/// Resets the times of all files below `directory`, except those of other file systems. This includes
/// the headers of the compiler, which `make` checks, too.
///
/// # Errors
/// A file cannot be read or changed.
pub fn reset_times(directory: &Path) -> io::Result<()> {
    reset_times_on(fs::metadata(directory)?.dev(), directory)
}

fn reset_times_on(device: u64, directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.dev() != device {
            continue;
        }
        if about.is_dir() {
            reset_times_on(device, &entry.path())?
        } else {
            set_time(&entry.path())?
        }
    }
    set_time(directory)
}

fn set_time(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let times = [RESET_TIME; 2];
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: a string and an array of two times that outlive the call.
    match unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), times.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Computes the proof of the object files below `directory` that are newer than [`reset_times`].
///
/// # Errors
/// A file cannot be read or is not an object file, or there are none.
pub fn compute(directory: &Path) -> io::Result<Proof> {
    let mut objects = Vec::new();
    find(directory, &mut objects)?;
    if objects.is_empty() {
        return Err(io::Error::other("no object file was created"));
    }
    objects.sort_unstable();
    let mut hash = Sha256::new();
    let mut symbols = 0;
    for path in &objects {
        let name = path.strip_prefix(directory).unwrap_or(path);
        hash.update(name.as_os_str().as_bytes());
        hash.update([0]);
        symbols += add(path, &mut hash)?;
    }
    Ok(Proof {
        objects: objects.len() as u32,
        symbols,
        hash: format!("{:x}", hash.finalize()),
    })
}

fn find(directory: &Path, objects: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, about) = (entry.path(), entry.metadata()?);
        let is_object = path
            .extension()
            .is_some_and(|extension| extension == OBJECT);
        let is_new = (about.mtime(), about.mtime_nsec()) != (RESET_TIME.tv_sec, RESET_TIME.tv_nsec);
        if about.is_dir() {
            find(&path, objects)?;
        } else if about.is_file() && is_object && is_new {
            objects.push(path);
        }
    }
    Ok(())
}

/// Adds the symbols of the object file at `path`. Returns their number, 0 for a file without a symbol
/// table.
fn add(path: &Path, hash: &mut Sha256) -> io::Result<u64> {
    let bytes = fs::read(path)?;
    let bad = |error| io::Error::other(format!("{}: {error}", path.display()));
    let file = ElfBytes::<AnyEndian>::minimal_parse(&bytes).map_err(bad)?;
    let Some((table, names)) = file.symbol_table().map_err(bad)? else {
        return Ok(0);
    };
    let mut all = Vec::new();
    for symbol in table.iter() {
        let name = names.get_raw(symbol.st_name as usize).map_err(bad)?;
        all.push((name, symbol.st_size));
    }
    all.sort_unstable();
    for (name, size) in &all {
        hash.update(name);
        hash.update([0]);
        hash.update(size.to_le_bytes());
    }
    Ok(all.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::fs::FileTimes;
    use std::time::SystemTime;

    /// Returns an object file with these symbols.
    fn object(symbols: &[(&str, u64)]) -> Vec<u8> {
        let mut names = vec![0];
        let mut table = vec![0; 24];
        for (name, size) in symbols {
            table.extend((names.len() as u32).to_le_bytes());
            table.extend([0; 12]);
            table.extend(size.to_le_bytes());
            names.extend(name.bytes().chain([0]));
        }
        let (at_table, at_names) = (64, 64 + table.len());
        let sections = at_names + names.len();
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend([1, 0, 62, 0, 1, 0, 0, 0]);
        bytes.extend([0; 16]);
        bytes.extend((sections as u64).to_le_bytes());
        bytes.extend([0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
        bytes.extend(&table);
        bytes.extend(&names);
        bytes.extend([0; 64]);
        for (kind, at, length, link, entry) in [
            (2u32, at_table, table.len(), 2u32, 24u64),
            (3, at_names, names.len(), 0, 0),
        ] {
            bytes.extend(0u32.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 16]);
            bytes.extend((at as u64).to_le_bytes());
            bytes.extend((length as u64).to_le_bytes());
            bytes.extend(link.to_le_bytes());
            bytes.extend([0; 12]);
            bytes.extend(entry.to_le_bytes());
        }
        bytes
    }

    fn tree(objects: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("lib")).unwrap();
        for (name, bytes) in objects {
            fs::write(directory.path().join(name), bytes).unwrap();
        }
        directory
    }

    #[test]
    fn the_proof_depends_on_symbols_and_not_on_their_order() {
        let one = tree(&[
            ("lib/a.o", object(&[("memcpy", 40), ("strlen", 12)])),
            ("b.o", object(&[("main", 1)])),
        ]);
        let other = tree(&[
            ("b.o", object(&[("main", 1)])),
            ("lib/a.o", object(&[("strlen", 12), ("memcpy", 40)])),
        ]);
        let proof = compute(one.path()).unwrap();
        // Each table begins with a null symbol.
        assert_eq!((proof.objects, proof.symbols), (2, 5));
        assert_eq!(compute(other.path()).unwrap(), proof);
        for unequal in [
            object(&[("memcpy", 41), ("strlen", 12)]),
            object(&[("memcpy", 40), ("strlem", 12)]),
            object(&[("memcpy", 40)]),
        ] {
            fs::write(one.path().join("lib/a.o"), unequal).unwrap();
            assert_ne!(compute(one.path()).unwrap().hash, proof.hash);
        }
        fs::rename(other.path().join("b.o"), other.path().join("c.o")).unwrap();
        assert_ne!(compute(other.path()).unwrap().hash, proof.hash);
    }

    #[test]
    fn files_from_before_the_build_are_ignored() {
        let place = tree(&[("lib/a.o", object(&[("memcpy", 40)]))]);
        reset_times(place.path()).unwrap();
        let error = compute(place.path()).unwrap_err().to_string();
        assert_eq!(error, "no object file was created");
        let again = fs::File::options()
            .append(true)
            .open(place.path().join("lib/a.o"));
        let now = FileTimes::new().set_modified(SystemTime::now());
        again.unwrap().set_times(now).unwrap();
        assert_eq!(compute(place.path()).unwrap().objects, 1);
    }

    #[test]
    fn invalid_object_files_are_reported() {
        let place = tree(&[("lib/a.o", b"int main;".to_vec())]);
        let error = compute(place.path()).unwrap_err().to_string();
        let place = place.path().display().to_string();
        expect!["DIR/lib/a.o: Could not read bytes in range [0x0, 0x10)"]
            .assert_eq(&error.replace(&place, "DIR"));
    }
}
