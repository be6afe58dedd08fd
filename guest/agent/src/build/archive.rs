//! Unpacks "newc" cpio archives (Linux
//! `Documentation/driver-api/early-userspace/buffer-format.rst`): directories, files and symbolic
//! links. Own code, because an archive of a whole root is streamed, with paths checked, in a few lines.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{symlink, DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path};

/// Magic number of headers, and name of the last entry.
const MAGIC: &[u8] = b"070701";
const TRAILER: &[u8] = b"TRAILER!!!";

/// Length of a header, and indices of its fields of eight hexadecimal digits.
const HEADER: usize = 110;
const MODE: usize = 1;
const SIZE: usize = 6;
const NAME: usize = 11;

/// Maximum length of names and link targets.
const MAX_NAME: u64 = 4096;

/// Unpacks an archive below `place`.
///
/// # Errors
/// The archive is unreadable or invalid, or a file cannot be created.
pub fn unpack(archive: &File, place: &Path) -> io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 20, archive);
    while let Some(entry) = Entry::read(&mut input)? {
        entry.make(&mut input, place)?;
    }
    Ok(())
}

struct Entry {
    name: Vec<u8>,
    mode: u32,
    size: u64,
}

impl Entry {
    /// Reads the next entry; `None` after the last one.
    fn read(input: &mut impl Read) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        input.read_exact(&mut header)?;
        if !header.starts_with(MAGIC) {
            return Err(bad("an entry has no header"));
        }
        let length = field(&header, NAME)?;
        let mut name = text(input, length)?;
        skip(input, HEADER as u64 + length)?;
        name.pop();
        let entry = Self {
            mode: field(&header, MODE)? as u32,
            size: field(&header, SIZE)?,
            name,
        };
        Ok((entry.name != TRAILER).then_some(entry))
    }

    fn make(&self, input: &mut impl Read, place: &Path) -> io::Result<()> {
        let name = std::str::from_utf8(&self.name).map_err(|_| bad("a name is not UTF-8"))?;
        let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(name).components().all(inside) {
            return Err(bad("a name leads out of the archive"));
        }
        let path = place.join(name);
        match self.mode & libc::S_IFMT {
            libc::S_IFDIR if path.is_dir() => {}
            libc::S_IFDIR => DirBuilder::new().mode(self.mode & 0o777).create(&path)?,
            libc::S_IFLNK => {
                let target = text(input, self.size)?;
                symlink(String::from_utf8_lossy(&target).as_ref(), &path)?;
            }
            libc::S_IFREG => self.make_file(input, &path)?,
            _ => return Err(bad("an entry is neither directory, file nor link")),
        }
        skip(input, self.size)
    }

    fn make_file(&self, input: &mut impl Read, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path).is_ok() {
            fs::remove_file(path)?;
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(self.mode & 0o777);
        let mut file = options.open(path)?;
        if io::copy(&mut input.take(self.size), &mut file)? == self.size {
            Ok(())
        } else {
            Err(bad("it ends within a file"))
        }
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not an archive: {what}"),
    )
}

/// Parses field `index`.
fn field(header: &[u8; HEADER], index: usize) -> io::Result<u64> {
    let start = MAGIC.len() + 8 * index;
    let digits = std::str::from_utf8(&header[start..start + 8]).ok();
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| bad("a field of a header is not a number"))
}

fn text(input: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_NAME {
        return Err(bad("a name is too long"));
    }
    let mut bytes = vec![0; length as usize];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Skips the padding to a multiple of four after `length` bytes.
fn skip(input: &mut impl Read, length: u64) -> io::Result<()> {
    let padding = length.next_multiple_of(4) - length;
    text(input, padding).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn entry(name: &str, mode: u32, contents: &[u8]) -> Vec<u8> {
        let fields = [0, mode, 0, 0, 1, 0, contents.len() as u32, 0, 0, 0, 0];
        let mut bytes = MAGIC.to_vec();
        for field in fields.into_iter().chain([name.len() as u32 + 1, 0]) {
            bytes.extend(format!("{field:08x}").bytes());
        }
        bytes.extend(name.bytes().chain([0]));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(contents);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn unpacked(entries: &[Vec<u8>]) -> io::Result<tempfile::TempDir> {
        let mut archive = tempfile::tempfile()?;
        archive.write_all(&entries.concat())?;
        std::io::Seek::rewind(&mut archive)?;
        let place = tempfile::tempdir()?;
        unpack(&archive, place.path()).map(|()| place)
    }

    #[test]
    fn directories_files_and_links_are_created() {
        let place = unpacked(&[
            entry("usr", 0o040_755, b""),
            entry("usr/cc", 0o100_755, b"compiler"),
            entry("usr/gcc", 0o120_777, b"cc"),
            entry("TRAILER!!!", 0, b""),
        ])
        .unwrap();
        let usr = place.path().join("usr");
        assert_eq!(fs::read(usr.join("gcc")).unwrap(), b"compiler");
        let mode = fs::metadata(usr.join("cc")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn invalid_archives_are_rejected() {
        let archives = [
            entry("../out", 0o100_644, b""),
            entry("/out", 0o100_644, b""),
            entry("tty", 0o020_644, b""),
            vec![b'x'; 200],
            entry("file", 0o100_644, &[7; 100])[..150].to_vec(),
        ];
        let errors = archives.map(|bytes| unpacked(&[bytes]).unwrap_err().to_string());
        expect![[r#"
            not an archive: a name leads out of the archive
            not an archive: a name leads out of the archive
            not an archive: an entry is neither directory, file nor link
            not an archive: an entry has no header
            not an archive: it ends within a file"#]]
        .assert_eq(&errors.join("\n"));
    }
}
