//! Index of a ustar archive (POSIX.1-2017, pax, "ustar Interchange Format").

use crate::virtio::SECTOR;
use core::ops::Range;
use trapline_workloads::Reason;

/// Bytes of a header, and the unit of all data.
pub const BLOCK: usize = SECTOR as usize;

/// Maximum number of files, and of the bytes of their paths.
pub const MAX_FILES: usize = 256;
const MAX_PATHS: usize = 16 * 1024;

/// Fields of a header: offset and end.
const NAME: Range<usize> = 0..100;
const SIZE: Range<usize> = 124..136;
const CHECKSUM: Range<usize> = 148..156;
const TYPE: usize = 156;
const MAGIC: Range<usize> = 257..265;
const PREFIX: Range<usize> = 345..500;

/// Content of [`MAGIC`]: magic and version.
const USTAR: &[u8; 8] = b"ustar\x0000";

/// Longest path: prefix, slash and name.
const LONGEST: usize = 155 + 1 + 100;

/// Data of a file on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First sector.
    pub sector: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// File of an index.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its path in [`Tables::paths`]: offset and length.
    path: (u32, u32),
    extent: Extent,
}

/// Memory of an index. All zero is valid.
pub struct Tables {
    files: [Entry; MAX_FILES],
    paths: [u8; MAX_PATHS],
}

/// Files of an archive, sorted by path.
pub struct Index<'a> {
    tables: &'a mut Tables,
    /// Number of files, and bytes of their paths.
    files: usize,
    bytes: usize,
}

impl<'a> Index<'a> {
    /// Reads the headers of an archive on a disk of `sectors`. `read` reads one sector.
    ///
    /// # Errors
    /// A header is damaged or not supported, or a read fails.
    pub fn read(
        tables: &'a mut Tables,
        sectors: u64,
        mut read: impl FnMut(u64) -> Result<[u8; BLOCK], Reason>,
    ) -> Result<Self, Reason> {
        let mut index = Self {
            tables,
            files: 0,
            bytes: 0,
        };
        let mut next = |at: u64| {
            if at < sectors {
                read(at)
            } else {
                Err("the archive has no end")
            }
        };
        let mut at = 0;
        while let Some(header) = Header::parse(&next(at)?)? {
            let data = at + 1;
            at = data + header.bytes.div_ceil(SECTOR);
            if at > sectors {
                return Err("a file of the archive exceeds the disk");
            }
            if header.is_file {
                let extent = Extent {
                    sector: data,
                    bytes: header.bytes,
                };
                index.add(header.path(), extent)?;
            }
        }
        if next(at + 1)? == [0; BLOCK] {
            Ok(index)
        } else {
            Err("the archive ends with one block of zeros in place of two")
        }
    }

    fn add(&mut self, path: &[u8], extent: Extent) -> Result<(), Reason> {
        let Err(place) = self.search(path) else {
            return Err("two files of the archive have the same path");
        };
        let end = self.bytes + path.len();
        if self.files == MAX_FILES || end > MAX_PATHS {
            return Err("the archive has too many files");
        }
        self.tables.paths[self.bytes..end].copy_from_slice(path);
        let files = &mut self.tables.files;
        files.copy_within(place..self.files, place + 1);
        files[place] = Entry {
            path: (self.bytes as u32, path.len() as u32),
            extent,
        };
        self.files += 1;
        self.bytes = end;
        Ok(())
    }

    /// Returns the place of the file at `path`, or where it would be.
    fn search(&self, path: &[u8]) -> Result<usize, usize> {
        let Tables { files, paths } = &*self.tables;
        files[..self.files].binary_search_by(|file| {
            let (start, length) = (file.path.0 as usize, file.path.1 as usize);
            paths[start..start + length].cmp(path)
        })
    }

    /// Returns the number of the file at `path`.
    pub fn find(&self, path: &[u8]) -> Option<u32> {
        self.search(path).ok().map(|number| number as u32)
    }

    /// Returns the data of a file that [`Self::find`] has found.
    pub fn extent(&self, number: u32) -> Option<Extent> {
        let files = &self.tables.files[..self.files];
        files.get(number as usize).map(|file| file.extent)
    }
}

/// The checked fields of a header.
struct Header {
    path: [u8; LONGEST],
    length: usize,
    bytes: u64,
    is_file: bool,
}

impl Header {
    /// Returns the header; `None` if the block is the end of the archive.
    fn parse(block: &[u8; BLOCK]) -> Result<Option<Self>, Reason> {
        if *block == [0; BLOCK] {
            return Ok(None);
        }
        if block[MAGIC] != *USTAR {
            return Err("the disk has no ustar archive, or a header of it is damaged");
        }
        if octal(&block[CHECKSUM])? != checksum(block) {
            return Err("the checksum of a header of the archive is wrong");
        }
        let bytes = octal(&block[SIZE])?;
        let is_file = match block[TYPE] {
            b'0' | 0 => true,
            b'5' if bytes == 0 => false,
            b'5' => return Err("a directory of the archive has data"),
            _ => return Err("the archive has an entry that is neither a file nor a directory"),
        };
        let mut header = Self {
            path: [0; LONGEST],
            length: 0,
            bytes,
            is_file,
        };
        let prefix = text(&block[PREFIX]);
        if !prefix.is_empty() {
            header.push(prefix);
            header.push(b"/");
        }
        let name = text(&block[NAME]);
        header.push(if is_file {
            name
        } else {
            name.strip_suffix(b"/").unwrap_or(name)
        });
        if header.path().split(|byte| *byte == b'/').all(is_component) {
            Ok(Some(header))
        } else {
            Err("a path of the archive is empty, absolute or not normalised")
        }
    }

    fn push(&mut self, text: &[u8]) {
        self.path[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
    }

    fn path(&self) -> &[u8] {
        &self.path[..self.length]
    }
}

fn is_component(part: &[u8]) -> bool {
    !matches!(part, b"" | b"." | b"..")
}

/// Returns a field up to its first zero.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Parses an octal number, terminated by a space or a zero.
fn octal(field: &[u8]) -> Result<u64, Reason> {
    const NO_NUMBER: Reason = "a number in a header of the archive is not octal";
    let ends = |byte: &u8| matches!(byte, b' ' | 0);
    let length = field.iter().position(ends).ok_or(NO_NUMBER)?;
    let (digits, rest) = field.split_at(length);
    let is_number = !digits.is_empty() && digits.iter().all(|byte| (b'0'..=b'7').contains(byte));
    if is_number && rest.iter().all(ends) {
        Ok(digits
            .iter()
            .fold(0, |sum, byte| sum << 3 | u64::from(byte & 7)))
    } else {
        Err(NO_NUMBER)
    }
}

/// Returns the sum of all bytes, with spaces in place of the checksum.
fn checksum(block: &[u8; BLOCK]) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    sum(block) - sum(&block[CHECKSUM]) + u64::from(b' ') * CHECKSUM.len() as u64
}
