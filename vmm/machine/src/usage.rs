//! Resource usage of this process: memory beyond the guest's, and CPU time.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use trapline_interface::Region;

/// `/proc/self/smaps`, opened before the sandbox is entered.
pub struct MemoryUsage {
    maps: Option<File>,
    guest: Range<usize>,
}

impl MemoryUsage {
    /// Opens the file; without /proc, memory usage is unknown. `memory` is the guest's at start; hotplugged regions are
    /// recognized by their name.
    pub fn open(memory: &Region) -> Self {
        let start = memory.address().addr().get();
        Self {
            maps: File::open("/proc/self/smaps").ok(),
            guest: start..start + memory.len(),
        }
    }

    /// Returns resident memory beyond the guest's, in bytes. At the end of a run this is the peak, because nothing
    /// is freed before. (`/proc/self/status` may be wrong by 64 pages per counter.)
    pub fn own_memory(&self) -> Option<u64> {
        own_memory(BufReader::new(self.maps.as_ref()?), &self.guest)
    }
}

/// Sums the resident size of all mappings but the guest's.
fn own_memory(mut maps: impl BufRead, guest: &Range<usize>) -> Option<u64> {
    let mut line = String::new();
    let mut is_guest = false;
    let mut kib = None;
    while maps.read_line(&mut line).ok()? > 0 {
        match line.strip_prefix("Rss:") {
            Some(size) if !is_guest => {
                let size: u64 = size.trim_end().trim_end_matches("kB").trim().parse().ok()?;
                kib = Some(kib.unwrap_or(0) + size);
            }
            Some(_) => {}
            // A mapping starts with its addresses, its details with an upper-case name.
            None if line.starts_with(|c: char| !c.is_ascii_uppercase()) => {
                let (start, rest) = line.split_once('-')?;
                let start = usize::from_str_radix(start, 16).ok()?;
                let end = usize::from_str_radix(rest.split(' ').next()?, 16).ok()?;
                let overlaps = start < guest.end && guest.start < end;
                is_guest = overlaps || line.contains(Region::NAME);
            }
            None => {}
        }
        line.clear();
    }
    kib.map(|kib| kib * 1024)
}

/// Returns the CPU time of this process, in nanoseconds.
pub fn cpu_time() -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (status == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_memory_is_excluded() {
        let maps = "00400000-00500000 r-xp 00000000 00:1d 7 /bin/vmm\n\
                    Size:  1024 kB\nRss:    600 kB\nPss:    300 kB\n\
                    7f0000000000-7f0004000000 rw-s 00000000 00:01 9 /memfd:guest-memory (deleted)\n\
                    Size: 65536 kB\nRss:   4000 kB\n\
                    7f0004000000-7f0004010000 rw-p 00001000 00:1d 8 /bin/image\n\
                    Rss:     40 kB\n\
                    b0000000-b0001000 rw-p 00000000 00:00 0 [heap]\n\
                    Rss:    400 kB\nVmFlags: rd wr\n";
        let own_memory =
            |maps: &str| own_memory(maps.as_bytes(), &(0x7f00_0400_0000..0x7f00_0500_0000));
        assert_eq!(own_memory(maps), Some(1000 * 1024));
        assert_eq!(own_memory("Name:\tx\n"), None);
    }

    #[test]
    fn usage_is_positive() {
        let region = Region::new(4096).unwrap();
        assert!(MemoryUsage::open(&region).own_memory().unwrap() > 0);
        assert!(cpu_time().unwrap() > 0);
    }
}
