//! What this process has used: memory beyond the guest's, and CPU time.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kernel's account of this process's memory, opened before the sandbox closes.
pub struct Account {
    rollup: Option<File>,
}

impl Account {
    /// Opens it where there is a /proc; elsewhere memory stays unknown.
    pub fn open() -> Self {
        Self {
            rollup: File::open("/proc/self/smaps_rollup").ok(),
        }
    }

    /// Resident memory beyond the guest's, in bytes. It is the peak when it is asked
    /// for at the end, because nothing is given back before. (The shorter account in
    /// /proc/self/status may be wrong by 64 pages each.)
    pub fn own_memory(&self) -> Option<u64> {
        let mut text = [0; 2048];
        let length = self.rollup.as_ref()?.read_at(&mut text, 0).ok()?;
        own_memory(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Guest memory is an anonymous file that nobody else has mapped: all that is shared
/// memory here.
fn own_memory(rollup: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse().ok()
    };
    Some(kib("Rss:")?.saturating_sub(kib("Pss_Shmem:")?) * 1024)
}

/// CPU time of this process in nanoseconds.
pub fn cpu_time() -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec, and there is one.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (status == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_memory_is_not_our_own() {
        let rollup = "7f00-7f01 ---p 00000000 00:00 0 [rollup]\nRss:    5000 kB\n\
                      Pss:    4500 kB\nPss_Shmem:    4000 kB\n";
        assert_eq!(own_memory(rollup), Some(1000 * 1024));
        assert_eq!(own_memory("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_has_used_something() {
        assert!(Account::open().own_memory().unwrap() > 0);
        assert!(cpu_time().unwrap() > 0);
    }
}
