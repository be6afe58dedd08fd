//! Memory of a guest, as its VMM shares it: mapped files, found by guest-physical or by the VMM's own addresses.

use crate::fault;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use thiserror::Error;

/// Bytes of a page that is not huge.
const PAGE: u64 = 4096;

/// Maximum number of regions: that of QEMU's `libvhost-user`.
pub const MOST_REGIONS: usize = 32;

/// Maximum length of all mappings of a guest in bytes: all ports share the address space of the switch.
pub const LARGEST: u64 = 1 << 40;

/// A region as announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Guest-physical address.
    pub guest: u64,
    /// Length in bytes.
    pub size: u64,
    /// Address in the VMM.
    pub user: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// The reason why memory cannot be used.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// There are too many regions.
    #[error("more than {MOST_REGIONS} regions of memory")]
    TooMany,
    /// They are too long.
    #[error("regions of memory take more than {} GiB with their pages", LARGEST >> 30)]
    TooLarge,
    /// The file is on a disk, or of another program: an access could wait.
    #[error("region of memory {0:x?} is not in a memfd or a file of tmpfs or hugetlbfs")]
    Kind(Spec),
    /// The region is empty, wraps, or ends behind the end of its file.
    #[error("region of memory {0:x?} is not in its file")]
    Range(Spec),
    /// Two regions overlap.
    #[error("regions of memory overlap at {0:#x}")]
    Overlap(u64),
    /// There is no such region.
    #[error("there is no region of memory {0:x?}")]
    Unknown(Spec),
    /// All ports together have too many regions.
    #[error("all guests have too many regions of memory")]
    TooManyOfAll,
    /// The kernel refuses.
    #[error("cannot map a region of memory: {0}")]
    Map(#[from] io::Error),
}

/// Returns whether a file is memory: a memfd, or a file of tmpfs or hugetlbfs. Only these have seals. The question does not reach
/// another file system, which could leave it unanswered.
fn is_memory(file: &File) -> bool {
    // SAFETY: reads a number of an open file.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) >= 0 }
}

/// A mapped file.
struct Region {
    spec: Spec,
    /// Where `spec.guest` is mapped.
    start: NonNull<u8>,
    mapping: NonNull<u8>,
    length: usize,
    guard: Option<fault::Guard>,
}

impl Region {
    /// Maps a region, if it takes at most `most` bytes.
    fn new(spec: Spec, file: &File, most: u64) -> Result<Self, MemoryError> {
        if !is_memory(file) {
            return Err(MemoryError::Kind(spec));
        }
        let of_file = file.metadata()?;
        // Huge pages are mapped whole, those of hugetlbfs only so.
        let page = of_file.blksize().max(PAGE);
        let end = spec.offset.checked_add(spec.size);
        let is_valid = spec.size > 0
            && spec.guest.checked_add(spec.size).is_some()
            && spec.user.checked_add(spec.size).is_some()
            && end.is_some_and(|end| end <= of_file.len());
        let first = spec.offset - spec.offset % page;
        let end = end.filter(|_| is_valid);
        let end = end.and_then(|end| end.checked_next_multiple_of(page));
        let length = end.ok_or(MemoryError::Range(spec))? - first;
        if length > most {
            return Err(MemoryError::TooLarge);
        }
        let length = length as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: a new mapping of a file, at an address that the kernel selects. Its pages are accessed by raw pointers only.
        let mapped =
            unsafe { libc::mmap(ptr::null_mut(), length, access, flags, fd, first as i64) };
        let mapping = match mapped {
            libc::MAP_FAILED => return Err(io::Error::last_os_error().into()),
            mapped => NonNull::new(mapped.cast::<u8>()).ok_or(MemoryError::Range(spec))?,
        };
        let region = Self {
            spec,
            // SAFETY: the offset is less than the length of the mapping.
            start: unsafe { mapping.add((spec.offset - first) as usize) },
            mapping,
            length,
            guard: fault::Guard::new(mapping.as_ptr() as usize, length),
        };
        match region.guard {
            Some(_) => Ok(region),
            None => Err(MemoryError::TooManyOfAll),
        }
    }

    /// Returns where `length` bytes from `address` are, relative to `start`.
    fn find(&self, start: u64, address: u64, length: u64) -> Option<NonNull<u8>> {
        let offset = address.wrapping_sub(start);
        let is_inside = offset < self.spec.size && length <= self.spec.size - offset;
        // SAFETY: the offset is less than the size, so the result lies in the mapping.
        is_inside.then(|| unsafe { self.start.add(offset as usize) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Another thread may get the same addresses at once.
        self.guard = None;
        // SAFETY: the mapping is that of this region, and pointers into it live no longer.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.length) };
    }
}

// SAFETY: a region is a mapping, which all threads may access; the pointers do not depend on a thread.
unsafe impl Send for Region {}
// SAFETY: nothing changes behind a shared reference.
unsafe impl Sync for Region {}

/// All memory of a guest.
#[derive(Clone, Default)]
pub struct Memory(Vec<Arc<Region>>);

/// The region found last: successive addresses are mostly in the same one. It is of use with one [`Memory`] only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cache {
    guest: u64,
    size: u64,
    start: Option<NonNull<u8>>,
}

impl Cache {
    #[inline(always)]
    fn find(&self, address: u64, length: u64) -> Option<NonNull<u8>> {
        let offset = address.wrapping_sub(self.guest);
        let is_inside = offset < self.size && length <= self.size - offset;
        // SAFETY: the offset is less than the size, so the result lies in the mapping.
        self.start
            .filter(|_| is_inside)
            .map(|start| unsafe { start.add(offset as usize) })
    }
}

impl Memory {
    /// Maps the regions.
    ///
    /// # Errors
    /// There are too many, they overlap, or do not lie in files that are memory.
    pub fn new(specs: &[(Spec, File)]) -> Result<Self, MemoryError> {
        let first = Self::default();
        let mut all = specs.iter();
        all.try_fold(first, |memory, (spec, file)| memory.with(*spec, file))
    }

    /// Returns the memory with a further region.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn with(&self, spec: Spec, file: &File) -> Result<Self, MemoryError> {
        if self.0.len() == MOST_REGIONS {
            return Err(MemoryError::TooMany);
        }
        let used: u64 = self.0.iter().map(|it| it.length as u64).sum();
        let region = Region::new(spec, file, LARGEST - used)?;
        let overlaps = |other: &Spec| {
            spec.guest < other.guest + other.size && other.guest < spec.guest + spec.size
        };
        if self.0.iter().any(|it| overlaps(&it.spec)) {
            return Err(MemoryError::Overlap(spec.guest));
        }
        let mut memory = self.clone();
        memory.0.push(Arc::new(region));
        Ok(memory)
    }

    /// Returns the memory without a region, whatever its offset.
    ///
    /// # Errors
    /// There is no such region.
    pub fn without(&self, spec: Spec) -> Result<Self, MemoryError> {
        let key = |it: &Spec| (it.guest, it.size, it.user);
        let found = self.0.iter().position(|it| key(&it.spec) == key(&spec));
        let mut memory = self.clone();
        memory.0.remove(found.ok_or(MemoryError::Unknown(spec))?);
        Ok(memory)
    }

    /// Returns whether a file of it was truncated behind its mapping, as far as was noticed.
    pub fn is_lost(&self) -> bool {
        let mut guards = self.0.iter().filter_map(|it| it.guard.as_ref());
        guards.any(fault::Guard::is_lost)
    }

    /// Returns where the switch has `length` bytes at a guest-physical address; `None` unless all lie in one region.
    #[inline(always)]
    pub fn guest(&self, cache: &mut Cache, address: u64, length: u32) -> Option<NonNull<u8>> {
        let length = u64::from(length);
        let found = cache.find(address, length);
        found.or_else(|| self.search(cache, address, length))
    }

    /// Returns where the switch has the first of `length` bytes at a guest-physical address, and how many of them follow it in the
    /// same region.
    pub fn piece(
        &self,
        cache: &mut Cache,
        address: u64,
        length: u32,
    ) -> Option<(NonNull<u8>, u32)> {
        let start = self.guest(cache, address, 0)?;
        let room = cache.size - address.wrapping_sub(cache.guest);
        Some((start, length.min(u32::try_from(room).unwrap_or(u32::MAX))))
    }

    #[cold]
    fn search(&self, cache: &mut Cache, address: u64, length: u64) -> Option<NonNull<u8>> {
        self.0.iter().find_map(|region| {
            let found = region.find(region.spec.guest, address, length)?;
            *cache = Cache {
                guest: region.spec.guest,
                size: region.spec.size,
                start: Some(region.start),
            };
            Some(found)
        })
    }

    /// Returns where the switch has `length` bytes at an address of the VMM, aligned to `alignment` bytes.
    pub fn user(&self, address: u64, length: u64, alignment: u64) -> Option<NonNull<u8>> {
        let mut all = self.0.iter();
        let found = all.find_map(|region| region.find(region.spec.user, address, length))?;
        (found.as_ptr() as u64)
            .is_multiple_of(alignment)
            .then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::memory_file;

    fn spec(guest: u64, size: u64, offset: u64) -> Spec {
        Spec {
            guest,
            size,
            user: guest + 0x1000_0000,
            offset,
        }
    }

    #[test]
    fn addresses_are_found_only_if_all_bytes_are_in_one_region() {
        let file = |size| memory_file(size).unwrap();
        let specs = [
            (spec(0x1000, 0x2000, 0), file(0x2000)),
            (spec(0x3000, 0x1000, 0x1000), file(0x2000)),
        ];
        let memory = Memory::new(&specs).unwrap();
        let mut cache = Cache::default();
        for (address, length, is_found) in [
            (0x1000, 0x2000, true),
            (0x3000, 0x1000, true),
            (0x2fff, 1, true),
            (0x2fff, 2, false),
            (0xfff, 1, false),
            (0x4000, 0, false),
            (0x3fff, 2, false),
            (u64::MAX, 2, false),
            (0x1001, u32::MAX, false),
        ] {
            let found = memory.guest(&mut cache, address, length);
            assert_eq!(found.is_some(), is_found, "{address:#x} {length:#x}");
        }
        assert!(memory.user(0x1000_1004, 4, 4).is_some());
        assert!(memory.user(0x1000_1004, 4, 8).is_none());
        assert!(memory.user(0x1000, 4, 1).is_none());
    }

    #[test]
    fn invalid_regions_are_refused() {
        let of = |specs: &[Spec]| {
            let all: Vec<_> = specs
                .iter()
                .map(|it| (*it, memory_file(0x2000).unwrap()))
                .collect();
            Memory::new(&all).err().map(|error| error.to_string())
        };
        assert_eq!(of(&[spec(0, 0x2000, 0)]), None);
        for invalid in [
            spec(0, 0, 0),
            spec(0, 0x2001, 0),
            spec(0, 0x1000, 0x1001),
            spec(0, 0x1000, u64::MAX),
            spec(u64::MAX - 0x2000_0000, 0x2000_0001, 0),
        ] {
            assert!(
                of(&[invalid]).unwrap().contains("is not in its file"),
                "{invalid:?}"
            );
        }
        assert!(of(&[spec(0, 0x2000, 0), spec(0x1fff, 1, 0)])
            .unwrap()
            .contains("overlap"));
        let separate: Vec<_> = (0..33).map(|it| spec(it << 12, 1, 0)).collect();
        assert_eq!(of(&separate[..32]), None);
        assert!(of(&separate).unwrap().starts_with("more than 32 regions"));
    }

    #[test]
    fn only_memory_is_mapped_and_at_most_so_much() {
        let disk = File::open(std::env::current_exe().unwrap()).unwrap();
        let of_disk = Memory::new(&[(spec(0, 0x1000, 0), disk)]).err().unwrap();
        assert!(matches!(of_disk, MemoryError::Kind(_)), "{of_disk}");
        let file = memory_file(1 << 50).unwrap();
        let half = LARGEST / 2;
        let memory = Memory::default().with(spec(0, half, 0), &file).unwrap();
        let more = |size| memory.with(spec(half, size, half), &file);
        assert!(more(half).is_ok());
        assert!(matches!(more(half + 1), Err(MemoryError::TooLarge)));
    }

    #[test]
    fn regions_come_and_go() {
        let file = memory_file(0x3000).unwrap();
        let memory = Memory::new(&[(spec(0, 0x1000, 0), file.try_clone().unwrap())]).unwrap();
        let both = memory.with(spec(0x1000, 0x2000, 0x1000), &file).unwrap();
        let is_known = |memory: &Memory, address| {
            let cache = &mut Cache::default();
            memory.guest(cache, address, 1).is_some()
        };
        assert!(is_known(&both, 0) && is_known(&both, 0x2fff));
        let (start, length) = both.piece(&mut Cache::default(), 0xffe, 7).unwrap();
        assert_eq!(length, 2);
        assert_eq!(both.guest(&mut Cache::default(), 0xffe, 2), Some(start));
        let second = both.without(spec(0, 0x1000, 0)).unwrap();
        assert!(!is_known(&second, 0) && is_known(&second, 0x1000));
        assert!(second.without(spec(0, 0x1000, 0)).is_err());
    }
}
