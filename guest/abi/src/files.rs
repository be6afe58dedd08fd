//! Files of workload `files`: their paths, sizes and content.
//!
//! The lab writes them into a directory, a ustar archive or an ext4 file system; guests read and overwrite them. The content
//! is a function of file and offset, so that guests verify it without a copy.

use crate::block::mix;
use crate::operation::OpSet;
use crate::workload::Workload;
use core::ffi::CStr;
use core::mem::size_of;

/// Directory of the files in the initramfs of a machine whose Linux runs the agent.
pub const DIRECTORY: &str = "/trapline/files";

/// Prefix of a line with what the page cache did in an operation: its name and the counts follow.
pub const FACT_PREFIX: &str = "trapline-files-";

/// Bytes beyond those of the large file that a disk needs for the other files, in MiB.
const OTHERS_MIB: u32 = 16;

/// Share of the large file that a file system needs, for inodes and bitmaps.
const FILE_SYSTEM_SHARE: u32 = 32;

/// Files per directory of the second level.
const GROUP: u32 = 8;

/// Index of the first file that exists only as new content of another.
const FIRST_VERSION: u32 = 128;

/// Longest path with its final zero.
const LONGEST: usize = "large/g0/f00".len() + 1;

/// Returns the set of operations of workload `files`.
pub fn operations() -> OpSet {
    Workload::Files.set()
}

/// Returns the size in MiB of a disk with all files, of which the large one has `large_mib`.
pub const fn disk_mib(large_mib: u32) -> u32 {
    large_mib + large_mib / FILE_SYSTEM_SHARE + OTHERS_MIB
}

/// Files of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 1 KiB.
    Small,
    /// 64 KiB.
    Medium,
    /// 1 MiB.
    Mebibyte,
    /// As large as the job asks.
    Large,
}

impl Class {
    /// All classes, by size.
    pub const ALL: [Self; 4] = [Self::Small, Self::Medium, Self::Mebibyte, Self::Large];

    /// Returns the name of its directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "1k",
            Self::Medium => "64k",
            Self::Mebibyte => "1m",
            Self::Large => "large",
        }
    }

    /// Returns the number of files.
    pub const fn count(self) -> u32 {
        match self {
            Self::Small => 64,
            Self::Medium => 16,
            Self::Mebibyte => 2,
            Self::Large => 1,
        }
    }

    /// Returns the bytes of each file. The large one has `large_mib`.
    pub const fn bytes(self, large_mib: u32) -> u64 {
        match self {
            Self::Small => 1 << 10,
            Self::Medium => 64 << 10,
            Self::Mebibyte => 1 << 20,
            Self::Large => (large_mib as u64) << 20,
        }
    }
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Files of its size.
    pub class: Class,
    /// Index among these.
    pub index: u32,
}

impl File {
    /// Returns all files.
    pub fn all() -> impl Iterator<Item = File> {
        let of = |class: Class| (0..class.count()).map(move |index| File { class, index });
        Class::ALL.into_iter().flat_map(of)
    }

    /// Returns the path: three components.
    pub fn path(self) -> Path {
        let mut path = Path {
            bytes: [0; LONGEST],
            length: 0,
        };
        path.push(self.class.name().as_bytes());
        path.push(b"/g");
        path.push(&[digit(self.index / GROUP)]);
        path.push(b"/f0");
        path.push(&[digit(self.index % GROUP)]);
        path
    }

    /// Returns the file whose content replaces this one in a write, which is another for each number below 128.
    pub const fn version(self, number: u32) -> Self {
        Self {
            index: FIRST_VERSION + number % FIRST_VERSION,
            ..self
        }
    }

    /// Returns the word of eight bytes at this index.
    #[inline]
    fn word(self, index: u64) -> u64 {
        let file = (self.class as u64) << 8 | u64::from(self.index);
        mix(file << 48 | index)
    }

    /// Writes the content from `offset`, a multiple of eight as is the length of `bytes`.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        for (word, index) in bytes.chunks_exact_mut(WORD).zip(offset / WORD as u64..) {
            word.copy_from_slice(&self.word(index).to_le_bytes());
        }
    }

    /// Writes the first and the last word of each page of the content from `offset`, see [`Self::is_stamped`].
    #[inline]
    pub fn stamp(self, offset: u64, bytes: &mut [u8]) {
        for (page, at) in bytes.chunks_exact_mut(PAGE).zip((offset..).step_by(PAGE)) {
            self.fill(at, &mut page[..WORD]);
            self.fill(at + (PAGE - WORD) as u64, &mut page[PAGE - WORD..]);
        }
    }

    /// Returns true if `bytes` are the content from `offset`, see [`Self::fill`].
    pub fn holds(self, offset: u64, bytes: &[u8]) -> bool {
        let mut words = bytes.chunks_exact(WORD).zip(offset / WORD as u64..);
        words.all(|(word, index)| *word == self.word(index).to_le_bytes())
    }

    /// Returns true if the first and the last word of each page of `bytes` are the content from `offset`.
    pub fn is_stamped(self, offset: u64, bytes: &[u8]) -> bool {
        let mut pages = bytes.chunks(PAGE).zip((offset..).step_by(PAGE));
        pages.all(|(page, at)| {
            let last = page.len().saturating_sub(WORD);
            self.holds(at, &page[..WORD.min(page.len())])
                && self.holds(at + last as u64, &page[last..])
        })
    }
}

/// Bytes of a word of the content.
pub const WORD: usize = size_of::<u64>();

/// Bytes of a page.
pub const PAGE: usize = 4096;

const fn digit(number: u32) -> u8 {
    b'0' + (number % 10) as u8
}

/// Path of a file, relative to the directory of all.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Path {
    fn push(&mut self, text: &[u8]) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
    }

    /// Returns the path, terminated.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// Returns the path.
    pub fn as_str(&self) -> &str {
        self.as_c_str().to_str().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::string::ToString;

    #[test]
    fn every_file_has_a_path_of_three_components_of_its_own() {
        let paths: BTreeSet<_> = File::all()
            .map(|file| file.path().as_str().to_string())
            .collect();
        assert_eq!(paths.len(), File::all().count());
        assert!(paths.iter().all(|path| path.split('/').count() == 3));
        assert!(paths.contains("64k/g1/f07") && paths.contains("large/g0/f00"));
    }

    #[test]
    fn damaged_and_misplaced_content_is_detected() {
        let [one, other] = [0, 1].map(|index| File {
            class: Class::Medium,
            index,
        });
        let mut bytes = [0; 2 * PAGE];
        one.fill(PAGE as u64, &mut bytes);
        assert!(one.holds(PAGE as u64, &bytes) && one.is_stamped(PAGE as u64, &bytes));
        let mut stamped = [0; 2 * PAGE];
        one.stamp(PAGE as u64, &mut stamped);
        assert!(one.is_stamped(PAGE as u64, &stamped) && !one.holds(PAGE as u64, &stamped));
        assert!(!one.holds(0, &bytes) && !one.is_stamped(0, &bytes));
        assert!(!other.holds(PAGE as u64, &bytes) && !other.is_stamped(PAGE as u64, &bytes));
        bytes[PAGE + 100] ^= 1;
        assert!(!one.holds(PAGE as u64, &bytes) && one.is_stamped(PAGE as u64, &bytes));
        bytes[2 * PAGE - 1] ^= 1;
        assert!(!one.is_stamped(PAGE as u64, &bytes));
    }

    #[test]
    fn other_files_fit_beside_the_large_one() {
        for large_mib in [1, crate::job::MOST_FILE_MIB] {
            let all = File::all().map(|file| file.class.bytes(large_mib).max(PAGE as u64));
            let sum: u64 = all.sum();
            assert!(2 * (sum >> 20) < u64::from(disk_mib(large_mib)) + u64::from(large_mib));
        }
    }
}
