//! Guest memory of a Linux process: a mapped memfd, or private anonymous memory.
//!
//! A memfd can be shared with a device back end in another process. Only private memory has a selectable page size, and
//! its first touches cost less.

use super::{Pages, Populate, Region, HUGE_PAGE, PAGE};
use crate::mapping::Mapping;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Population step of small pages in bytes: its cost is about a hundred times that of a yield.
const SMALL_STEP: usize = 64 * PAGE;

/// Memory of this process behind a region.
#[derive(Debug)]
pub(super) struct Backing {
    /// Also of its parts.
    mapping: Arc<Mapping>,
    /// Population step in bytes.
    step: usize,
    file: Option<File>,
}

impl Region {
    /// Name of the memfd in `/proc/PID/maps`.
    pub const NAME: &'static str = "guest-memory";
    const FILE_NAME: &'static CStr = c"guest-memory";

    /// Creates a region of `length` bytes in a memfd, rounded up to whole pages. Pages are allocated at
    /// their first write.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(length: usize) -> io::Result<Region> {
        let length = whole_pages(length)?;
        let file = anonymous_file()?;
        file.set_len(length as u64)?;
        let mapping = Mapping::of_file(&file, length)?;
        let start = mapping.start();
        Ok(Self::backed(mapping, start, length, SMALL_STEP, Some(file)))
    }

    /// Creates a region of private memory with the given page size. Huge pages start at a multiple of
    /// 2 MiB.
    ///
    /// # Errors
    /// The kernel refuses. Missing huge pages are not an error.
    pub fn private(length: usize, pages: Pages) -> io::Result<Region> {
        let length = whole_pages(length)?;
        let room = match pages {
            Pages::Small => Some(length),
            Pages::Usual | Pages::Huge => length.checked_add(HUGE_PAGE),
        };
        let mapping = Mapping::private(room.ok_or(io::ErrorKind::InvalidInput)?)?;
        let (start, step) = match pages {
            Pages::Small => (mapping.start(), SMALL_STEP),
            Pages::Usual | Pages::Huge => (mapping.first_multiple_of(HUGE_PAGE), HUGE_PAGE),
        };
        match pages {
            Pages::Small => mapping.advise(start, length, libc::MADV_NOHUGEPAGE),
            Pages::Usual => {}
            Pages::Huge => mapping.advise(start, length, libc::MADV_HUGEPAGE),
        }
        Ok(Self::backed(mapping, start, length, step, None))
    }

    fn backed(
        mapping: Mapping,
        start: NonNull<u8>,
        length: usize,
        step: usize,
        file: Option<File>,
    ) -> Self {
        let mapping = Arc::new(mapping);
        Self {
            start,
            length,
            hole: length..length,
            backing: Some(Backing {
                mapping,
                step,
                file,
            }),
        }
    }

    /// Returns the region without the memory at `hole`, whole pages within it.
    ///
    /// # Panics
    /// It is not within the region.
    pub fn without(self, hole: Range<usize>) -> Self {
        assert!(hole.start <= hole.end && hole.end <= self.length);
        Self { hole, ..self }
    }

    /// Returns one of its [`Self::pieces`] as a region of the same memory, without a file.
    ///
    /// # Errors
    /// It exceeds the region, or the region's memory is that of the caller.
    pub fn part(&self, offset: usize, length: usize) -> io::Result<Self> {
        let start = self.pointer(offset as u64, length);
        let (Some(start), Some(backing)) = (start, &self.backing) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self {
            start,
            length,
            hole: length..length,
            backing: Some(Backing {
                mapping: Arc::clone(&backing.mapping),
                step: backing.step,
                file: None,
            }),
        })
    }

    /// Lets the kernel back the first `length` bytes, rounded up to huge pages, by small pages only.
    pub fn begin_with_small_pages(&self, length: usize) {
        if let Some(backing) = &self.backing {
            let length = length.next_multiple_of(HUGE_PAGE).min(self.hole.start);
            backing
                .mapping
                .advise(self.start, length, libc::MADV_NOHUGEPAGE);
        }
    }

    /// Populates all pages.
    ///
    /// # Errors
    /// Memory is exhausted, or the kernel is older than Linux 5.14.
    pub fn populate(&self, how: Populate) -> io::Result<()> {
        let Some(backing) = &self.backing else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        for (offset, length) in self.pieces() {
            let step = match how {
                Populate::Whole => length,
                Populate::Steps => backing.step,
            };
            for at in (offset..offset + length).step_by(step) {
                let start = self.start.map_addr(|address| address.saturating_add(at));
                let length = step.min(offset + length - at);
                backing.mapping.populate(start, length)?;
                if how == Populate::Steps {
                    yield_now();
                }
            }
        }
        Ok(())
    }

    fn memfd(&self) -> Option<&File> {
        self.backing.as_ref()?.file.as_ref()
    }

    /// The memfd, if any.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memfd().map(AsFd::as_fd)
    }

    /// Copies `bytes` to `offset` before the guest runs. A memfd is written with `pwrite`: the kernel then
    /// neither clears nor maps a new page, which saves two thirds of the cost.
    ///
    /// # Errors
    /// The range exceeds the region, or memory is exhausted.
    pub fn load(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.memfd() {
            Some(file) if self.contains(offset, bytes.len()) => file.write_all_at(bytes, offset),
            _ => self.write(offset, bytes).map_err(io::Error::other),
        }
    }

    /// Replaces whole pages at `offset` by those of `file` from `at`, without copying: a page is read at its first
    /// access and copied at its first write. Guests of one file share what they do not change. As with shared
    /// libraries, the file must be replaced by renaming, never overwritten, while it is mapped.
    ///
    /// # Errors
    /// The range exceeds the region or is not one of whole pages, or the kernel refuses.
    pub fn map_file(&mut self, offset: u64, file: &File, at: u64, length: usize) -> io::Result<()> {
        let is_aligned = [offset, at, length as u64]
            .iter()
            .all(|value| value.is_multiple_of(PAGE as u64));
        let start = self.pointer(offset, length).filter(|_| is_aligned);
        match (&mut self.backing, start) {
            (Some(backing), Some(start)) => match Arc::get_mut(&mut backing.mapping) {
                Some(mapping) => mapping.replace(start, length, file, at),
                None => Err(io::ErrorKind::ResourceBusy.into()),
            },
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

fn whole_pages(length: usize) -> io::Result<usize> {
    length
        .checked_next_multiple_of(PAGE)
        .filter(|&length| length > 0)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Yields the CPU, also to threads of equal priority.
fn yield_now() {
    // SAFETY: takes no arguments.
    unsafe { libc::sched_yield() };
}

/// Returns true if transparent huge pages are enabled
pub fn has_huge_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.is_ok_and(|setting| !setting.contains("[never]"))
}

fn anonymous_file() -> io::Result<File> {
    // SAFETY: the name is a zero-terminated string; the result is checked.
    let fd = unsafe { libc::memfd_create(Region::FILE_NAME.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_read_back_and_other_bytes_are_zero() {
        let region = Region::new(5000).unwrap();
        assert_eq!(region.len(), 2 * PAGE);
        region.write(8188, &[1, 2, 3, 4]).unwrap();
        let mut bytes = [9; 6];
        region.read(8186, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 1, 2, 3, 4]);
        assert_eq!(region.load32(8188), Some(0x0403_0201));
        assert_eq!(region.store64(8, 0x0102_0304_0506_0708), Some(()));
        assert_eq!(region.load64(8), Some(0x0102_0304_0506_0708));
        assert_eq!(region.load32(8), Some(0x0506_0708));
    }

    #[test]
    fn private_memory_is_readable_and_writable() {
        for pages in [Pages::Small, Pages::Usual, Pages::Huge] {
            let region = Region::private(5000, pages).unwrap();
            assert_eq!((region.len(), region.file().is_none()), (2 * PAGE, true));
            region.write(8190, &[1, 2]).unwrap();
            assert_eq!(region.load32(8188), Some(0x0201_0000));
            assert!(region.write(8191, &[1, 2]).is_err());
        }
        let huge = Region::private(PAGE, Pages::Huge).unwrap();
        assert_eq!(huge.address().addr().get() % HUGE_PAGE, 0);
        assert!(Region::private(0, Pages::Small).is_err());
        assert!(Region::private(usize::MAX - HUGE_PAGE, Pages::Huge).is_err());
    }

    /// Value of `key` in `/proc/self/smaps` for a region, in KiB.
    fn account(region: &Region, key: &str) -> u64 {
        let address = region.address().addr().get();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut inside, mut found) = (false, 0);
        for line in maps.lines() {
            if line.starts_with(|c: char| !c.is_ascii_uppercase()) {
                inside = holds(line, address);
            }
            if let Some(size) = line.strip_prefix(key).filter(|_| inside) {
                found += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        found
    }

    fn holds(line: &str, address: usize) -> bool {
        let range = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(range.0)..number(range.1)).contains(&address)
    }

    #[test]
    fn populated_memory_is_resident_in_pages_of_the_requested_size() {
        const LENGTH: usize = 3 * HUGE_PAGE + PAGE;
        let kib = (LENGTH / 1024) as u64;
        for how in [Populate::Steps, Populate::Whole] {
            let small = Region::private(LENGTH, Pages::Small).unwrap();
            assert_eq!(account(&small, "Rss:"), 0);
            small.populate(how).unwrap();
            assert_eq!(account(&small, "Rss:"), kib);
            assert_eq!(account(&small, "AnonHugePages:"), 0);
            let of_file = Region::new(LENGTH).unwrap();
            of_file.populate(how).unwrap();
            assert_eq!(account(&of_file, "Rss:"), kib);
            let huge = Region::private(LENGTH, Pages::Huge).unwrap();
            huge.populate(how).unwrap();
            if has_huge_pages() {
                assert_eq!(account(&huge, "AnonHugePages:"), 3 * 2048)
            } else {
                trapline_skip::skip("populated pages of 2 MiB", "transparent_hugepage is never")
            }
        }
    }

    #[test]
    fn mapped_file_is_read_and_not_written() {
        let file = anonymous_file().unwrap();
        file.write_all_at(&[7; 3 * PAGE], 0).unwrap();
        let mut region = Region::new(4 * PAGE).unwrap();
        let (page, two) = (PAGE as u64, 2 * PAGE);
        region.map_file(page, &file, page, two).unwrap();
        region.load(3 * page, &[9]).unwrap();
        region.write(page, &[8]).unwrap();
        let mut bytes = [1; 4 * PAGE];
        region.read(0, &mut bytes).unwrap();
        assert_eq!((bytes[PAGE - 1], &bytes[PAGE..][..2]), (0, &[8, 7][..]));
        assert_eq!(&bytes[3 * PAGE - 1..][..3], [7, 9, 0]);
        let mut unchanged = [0; 3 * PAGE];
        file.read_exact_at(&mut unchanged, 0).unwrap();
        assert_eq!(unchanged, [7; 3 * PAGE]);
        for (offset, at, length) in [(1, 0, PAGE), (0, 1, PAGE), (0, 0, 1), (3 * page, 0, two)] {
            assert!(region.map_file(offset, &file, at, length).is_err());
        }
    }

    #[test]
    fn a_hole_is_no_memory() {
        let page = PAGE as u64;
        for whole in [
            Region::new(8 * PAGE),
            Region::private(8 * PAGE, Pages::Usual),
        ] {
            let region = whole.unwrap().without(2 * PAGE..5 * PAGE);
            let pieces: Vec<_> = region.pieces().collect();
            assert_eq!(pieces, [(0, 2 * PAGE), (5 * PAGE, 3 * PAGE)]);
            region.write(2 * page - 4, &[1; 4]).unwrap();
            region.write(5 * page, &[2; 4]).unwrap();
            for at in [2 * page - 3, 2 * page, 3 * page, 5 * page - 4, 8 * page - 3] {
                assert!(region.write(at, &[3; 4]).is_err(), "{at:#x}");
                assert!(region.pointer(at, 4).is_none(), "{at:#x}");
            }
            assert!(!region.contains(0, 8 * PAGE));
            region.populate(Populate::Steps).unwrap();
            let high = region.part(5 * PAGE, 3 * PAGE).unwrap();
            assert!(region.part(0, 5 * PAGE).is_err());
            drop(region);
            assert_eq!((high.len(), high.load32(0)), (3 * PAGE, Some(0x0202_0202)));
        }
    }

    #[test]
    fn out_of_range_accesses_are_rejected() {
        let region = Region::new(PAGE).unwrap();
        assert!(region.write(4093, &[0; 4]).is_err());
        assert!(region.read(4096, &mut [0]).is_err());
        assert!(region.read(u64::MAX, &mut [0; 2]).is_err());
        assert_eq!(region.load32(4094), None);
        assert_eq!(region.load32(2), None);
        assert_eq!(region.load64(4096 - 4), None);
        assert_eq!(region.store64(4, 1), None);
        assert!(Region::new(0).is_err());
        assert!(Region::new(usize::MAX).is_err());
    }
}
