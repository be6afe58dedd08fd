//! That the work was done: names and sizes of all symbols of all object files that were
//! made, in an order that does not depend on who made which first.
//!
//! Object files of two builds may differ in the moment and the place of their making,
//! which a kernel writes down; what they define may not.

use elf::endian::AnyEndian;
use elf::ElfBytes;
use sha2::{Digest, Sha256};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What was made.
#[derive(Debug, PartialEq, Eq)]
pub struct Proof {
    /// How many object files.
    pub objects: u32,
    /// How many symbols they have.
    pub symbols: u64,
    /// The SHA-256 of them all, in hexadecimal digits.
    pub hash: String,
}

/// The time that all prepared files get: `make` finds none older than another, and what
/// is made later is newer.
const SETTLED: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// What an object file's name ends with.
const OBJECT: &str = "o";

/// Gives all files below `directory` the same time, but for those of other file systems.
/// Not only the source: `make` looks at the headers of its compiler, too.
///
/// # Errors
/// One cannot be found or changed.
pub fn settle(directory: &Path) -> io::Result<()> {
    settle_on(fs::metadata(directory)?.dev(), directory)
}

fn settle_on(device: u64, directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.dev() != device {
            continue;
        }
        match about.is_dir() {
            true => settle_on(device, &entry.path())?,
            false => set_time(&entry.path())?,
        }
    }
    set_time(directory)
}

fn set_time(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let times = [SETTLED; 2];
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: a string and an array of two times, both of which outlive the call.
    match unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), times.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The proof of what was made below `directory` since it was settled.
///
/// # Errors
/// A file cannot be read or is no object file, or nothing was made.
pub fn of(directory: &Path) -> io::Result<Proof> {
    let mut objects = Vec::new();
    find(directory, &mut objects)?;
    if objects.is_empty() {
        return Err(io::Error::other("no object file was made"));
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
        let is_new = (about.mtime(), about.mtime_nsec()) != (SETTLED.tv_sec, SETTLED.tv_nsec);
        if about.is_dir() {
            find(&path, objects)?;
        } else if about.is_file() && is_object && is_new {
            objects.push(path);
        }
    }
    Ok(())
}

/// Adds the symbols of the object file at `path`; how many they are. One without any has
/// none: an empty file of assembly.
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
    use std::fs::FileTimes;
    use std::time::SystemTime;

    /// An object file with these symbols.
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
    fn the_order_of_making_means_nothing_and_a_symbol_everything() {
        let one = tree(&[
            ("lib/a.o", object(&[("memcpy", 40), ("strlen", 12)])),
            ("b.o", object(&[("main", 1)])),
        ]);
        let other = tree(&[
            ("b.o", object(&[("main", 1)])),
            ("lib/a.o", object(&[("strlen", 12), ("memcpy", 40)])),
        ]);
        let proof = of(one.path()).unwrap();
        // Each table begins with a symbol that is none.
        assert_eq!((proof.objects, proof.symbols), (2, 5));
        assert_eq!(of(other.path()).unwrap(), proof);
        for unequal in [
            object(&[("memcpy", 41), ("strlen", 12)]),
            object(&[("memcpy", 40), ("strlem", 12)]),
            object(&[("memcpy", 40)]),
        ] {
            fs::write(one.path().join("lib/a.o"), unequal).unwrap();
            assert_ne!(of(one.path()).unwrap().hash, proof.hash);
        }
        fs::rename(other.path().join("b.o"), other.path().join("c.o")).unwrap();
        assert_ne!(of(other.path()).unwrap().hash, proof.hash);
    }

    #[test]
    fn what_was_there_before_proves_nothing() {
        let place = tree(&[("lib/a.o", object(&[("memcpy", 40)]))]);
        settle(place.path()).unwrap();
        let told = of(place.path()).unwrap_err().to_string();
        assert_eq!(told, "no object file was made");
        let again = fs::File::options()
            .append(true)
            .open(place.path().join("lib/a.o"));
        let now = FileTimes::new().set_modified(SystemTime::now());
        again.unwrap().set_times(now).unwrap();
        assert_eq!(of(place.path()).unwrap().objects, 1);
    }

    #[test]
    fn what_is_no_object_file_is_named() {
        let place = tree(&[("lib/a.o", b"int main;".to_vec())]);
        let told = of(place.path()).unwrap_err().to_string();
        assert!(told.contains("lib/a.o: "), "{told}");
    }
}
