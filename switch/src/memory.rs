//! Memory of a guest, as its VMM shares it: mapped files, found by guest-physical or by the VMM's own addresses.

use crate::fault;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use thiserror::Error;

/// Maximum number of regions: that of a message (vhost-user, "Memory regions description").
pub const MOST_REGIONS: usize = 8;

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
    #[error("{0} regions of memory: at most {MOST_REGIONS} are supported")]
    TooMany(usize),
    /// The region is empty, wraps, or ends behind the end of its file.
    #[error("region of memory {0:x?} is not in its file")]
    Range(Spec),
    /// Two regions overlap.
    #[error("regions of memory overlap at {0:#x}")]
    Overlap(u64),
    /// The kernel refuses.
    #[error("cannot map a region of memory: {0}")]
    Map(#[from] io::Error),
}

/// A mapped file.
struct Region {
    spec: Spec,
    /// Where `spec.guest` is mapped.
    start: NonNull<u8>,
    mapping: NonNull<u8>,
    length: usize,
    _guard: fault::Guard,
}

impl Region {
    fn new(spec: Spec, file: &File) -> Result<Self, MemoryError> {
        let end = spec.offset.checked_add(spec.size);
        let ends = [
            spec.guest.checked_add(spec.size),
            spec.user.checked_add(spec.size),
        ];
        let is_valid = spec.size > 0
            && ends.iter().all(Option::is_some)
            && end.is_some_and(|end| file.metadata().is_ok_and(|it| end <= it.len()));
        let end = end.filter(|_| is_valid).ok_or(MemoryError::Range(spec))?;
        let length = usize::try_from(end).map_err(|_| MemoryError::Range(spec))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file, at an address that the kernel selects. Its pages are accessed by raw pointers only.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        let mapping = match mapped {
            libc::MAP_FAILED => return Err(io::Error::last_os_error().into()),
            mapped => NonNull::new(mapped.cast::<u8>()).ok_or(MemoryError::Range(spec))?,
        };
        // SAFETY: the offset is less than the length of the mapping.
        let start = unsafe { mapping.add(spec.offset as usize) };
        Ok(Self {
            spec,
            start,
            mapping,
            length,
            _guard: fault::Guard::new(mapping.as_ptr() as usize, length),
        })
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
        // SAFETY: the mapping is that of this region, and pointers into it live no longer.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.length) };
    }
}

/// All memory of a guest.
#[derive(Default)]
pub struct Memory(Vec<Region>);

// SAFETY: the regions are mappings, which all threads may access; the pointers do not depend on a thread.
unsafe impl Send for Memory {}
// SAFETY: nothing changes behind a shared reference.
unsafe impl Sync for Memory {}

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
    /// There are too many, they overlap, or do not lie in their files.
    pub fn new(specs: &[(Spec, File)]) -> Result<Self, MemoryError> {
        if specs.len() > MOST_REGIONS {
            return Err(MemoryError::TooMany(specs.len()));
        }
        let mut memory = Self::default();
        for (spec, file) in specs {
            let region = Region::new(*spec, file)?;
            let overlaps = |other: &Region| {
                spec.guest < other.spec.guest + other.spec.size
                    && other.spec.guest < spec.guest + spec.size
            };
            if memory.0.iter().any(overlaps) {
                return Err(MemoryError::Overlap(spec.guest));
            }
            memory.0.push(region);
        }
        Ok(memory)
    }

    /// Returns where the switch has `length` bytes at a guest-physical address; `None` unless all lie in one region.
    #[inline(always)]
    pub fn guest(&self, cache: &mut Cache, address: u64, length: u32) -> Option<NonNull<u8>> {
        let length = u64::from(length);
        let found = cache.find(address, length);
        found.or_else(|| self.search(cache, address, length))
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
        assert!(of(&[spec(0, 1, 0); 9]).unwrap().starts_with("9 regions"));
    }
}
