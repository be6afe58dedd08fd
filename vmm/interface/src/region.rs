//! Guest memory: an anonymous file, mapped, or memory of this process alone.
//!
//! A file, because then it can be shared with another process (a device back
//! end), and because its pages are told apart from the VMM's own in the kernel's
//! accounts. Memory of this process alone, because only that comes in pages of a chosen
//! size. A type of our own, because all that is needed is bounds-checked
//! copies: guest memory may change at any time under the hands of who reads it,
//! so nobody is ever handed a reference into it.

use crate::mapping::Mapping;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use thiserror::Error;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// An access beyond the end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{length} bytes at offset {offset:#x} are not within a region of {region:#x} bytes")]
pub struct OutOfRegion {
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: usize,
    /// The region's length.
    pub region: usize,
}

/// The size of the pages of memory of this process alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB, even where the kernel would join them.
    Small,
    /// 2 MiB, where the kernel has such: it need not.
    Huge,
}

/// How memory is populated before anybody touches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// Step after step, and whoever waits for this CPU gets it in between.
    Steps,
    /// In one call of the kernel.
    Whole,
}

/// A page of 2 MiB, in bytes: what is populated at once where pages are that large, for
/// the kernel clears them whole.
pub const HUGE_PAGE: usize = 2 << 20;

/// What is populated at once in small pages, in bytes: 64 of them, which take a hundred
/// times as long as giving way does.
const SMALL_STEP: usize = 64 * PAGE;

/// Zeroed memory for a guest, of whole pages.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    mapping: Mapping,
    /// What is populated at once.
    step: usize,
    file: Option<File>,
}

// SAFETY: the mapping belongs to the region alone and lives as long as it does;
// every access through it is a copy or an atomic, from whichever thread.
unsafe impl Send for Region {}
// SAFETY: as above; no method hands out a reference into the mapping.
unsafe impl Sync for Region {}

impl Region {
    /// What its file is called where the kernel lists a process's mappings.
    pub const NAME: &'static str = "guest-memory";
    const FILE_NAME: &'static CStr = c"guest-memory";

    /// `length` bytes, rounded up to whole pages. Pages take no memory until
    /// somebody writes to them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new(length: usize) -> io::Result<Region> {
        let length = length
            .checked_next_multiple_of(PAGE)
            .filter(|&length| length > 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let file = anonymous_file()?;
        file.set_len(length as u64)?;
        let mapping = Mapping::of_file(&file, length)?;
        Ok(Region {
            start: mapping.start(),
            length,
            mapping,
            step: SMALL_STEP,
            file: Some(file),
        })
    }

    /// The same, of this process alone and in pages of one size. It begins at a
    /// multiple of 2 MiB if they are of that size.
    ///
    /// # Errors
    /// The kernel's refusal. That it has no huge pages is none.
    pub fn private(length: usize, pages: Pages) -> io::Result<Region> {
        let length = length
            .checked_next_multiple_of(PAGE)
            .filter(|&length| length > 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let (mapping, start) = match pages {
            Pages::Small => {
                let mapping = Mapping::private(length)?;
                mapping.advise(mapping.start(), length, libc::MADV_NOHUGEPAGE);
                let start = mapping.start();
                (mapping, start)
            }
            Pages::Huge => {
                let room = length
                    .checked_add(HUGE_PAGE)
                    .ok_or(io::ErrorKind::InvalidInput)?;
                let mapping = Mapping::private(room)?;
                let start = mapping.first_multiple_of(HUGE_PAGE);
                mapping.advise(start, length, libc::MADV_HUGEPAGE);
                (mapping, start)
            }
        };
        Ok(Region {
            start,
            length,
            mapping,
            step: match pages {
                Pages::Small => SMALL_STEP,
                Pages::Huge => HUGE_PAGE,
            },
            file: None,
        })
    }

    /// Populates all of it, as if somebody had written to each page.
    ///
    /// # Errors
    /// The kernel's refusal: memory is exhausted, or it is older than Linux 5.14.
    pub fn populate(&self, how: Populate) -> io::Result<()> {
        if how == Populate::Whole {
            return self.mapping.populate(self.start, self.length);
        }
        for at in (0..self.length).step_by(self.step) {
            let start = self.start.map_addr(|address| address.saturating_add(at));
            self.mapping
                .populate(start, self.step.min(self.length - at))?;
            give_way();
        }
        Ok(())
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)] // It never is.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Where this process sees it. To be handed to a kernel; whoever reads or
    /// writes through it must expect that the guest does, too.
    pub fn address(&self) -> NonNull<u8> {
        self.start
    }

    /// The file behind it, if there is one.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Copies `bytes` to `offset`, by way of the file if there is one: a page that is
    /// written to for the first time is then not cleared and mapped here before, which
    /// is two thirds of the cost.
    ///
    /// # Errors
    /// If they do not fit there, or memory is exhausted.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = self.check(offset, bytes.len()).map_err(io::Error::other)?;
        if let Some(file) = &self.file {
            return file.write_all_at(bytes, offset);
        }
        // SAFETY: `check` found room for all of the bytes within the mapping, which
        // cannot overlap what the caller has borrowed.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len());
        }
        Ok(())
    }

    /// Copies what is at `offset`.
    ///
    /// # Errors
    /// If it is not all within the region.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfRegion> {
        let offset = self.check(offset, into.len())?;
        // SAFETY: `check` found all of the bytes within the mapping, and `into`
        // is memory of this process that cannot overlap it.
        unsafe {
            ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                into.as_mut_ptr(),
                into.len(),
            );
        }
        Ok(())
    }

    /// The 32-bit number at `offset`, in one access; `None` if it is not aligned
    /// or not within the region.
    pub fn load32(&self, offset: u64) -> Option<u32> {
        let offset = self.check(offset, 4).ok().filter(|at| at % 4 == 0)?;
        // SAFETY: `check` found the four bytes within the mapping, the offset is
        // aligned and so is the mapping; others access them only as a guest does,
        // which an atomic tolerates.
        let word = unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) };
        Some(word.load(Ordering::Acquire))
    }

    /// The 64-bit number at `offset`, in one access; `None` as for [`Self::load32`].
    pub fn load64(&self, offset: u64) -> Option<u64> {
        self.word(offset).map(|word| word.load(Ordering::Acquire))
    }

    /// Writes a 64-bit number to `offset`, in one access, behind all that was written
    /// before; `None` as for [`Self::load32`].
    pub fn store64(&self, offset: u64, value: u64) -> Option<()> {
        self.word(offset)
            .map(|word| word.store(value, Ordering::Release))
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let offset = self.check(offset, 8).ok().filter(|at| at % 8 == 0)?;
        // SAFETY: as in `load32`, for eight bytes; the mapping lives as long as `self`.
        Some(unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    fn check(&self, offset: u64, length: usize) -> Result<usize, OutOfRegion> {
        usize::try_from(offset)
            .ok()
            .filter(|at| at.checked_add(length).is_some_and(|end| end <= self.length))
            .ok_or(OutOfRegion {
                offset,
                length,
                region: self.length,
            })
    }
}

/// Lets others who wait for this CPU have it, those of equal rank, too. On the way back
/// to the program the kernel only sees to those that go before it.
fn give_way() {
    // SAFETY: takes no arguments.
    unsafe { libc::sched_yield() };
}

/// Whether the kernel gives pages of 2 MiB to who asks for them
/// (Linux `Documentation/admin-guide/mm/transhuge.rst`).
pub fn has_huge_pages() -> bool {
    let told = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    told.is_ok_and(|told| !told.contains("[never]"))
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
    fn what_is_written_is_read_and_the_rest_is_zero() {
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
    fn memory_of_this_process_alone_is_memory_too() {
        for pages in [Pages::Small, Pages::Huge] {
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

    /// What the kernel's account says of a region, in KiB.
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
    fn what_is_populated_is_resident_in_pages_of_the_size_asked_for() {
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
            match has_huge_pages() {
                true => assert_eq!(account(&huge, "AnonHugePages:"), 3 * 2048),
                false => eprintln!("skipped: the kernel here gives no pages of 2 MiB"),
            }
        }
    }

    #[test]
    fn nothing_reaches_beyond_the_end() {
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
