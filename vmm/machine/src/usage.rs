//! What this process has used: memory beyond the guest's, and CPU time.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kernel's account of this process, opened before the sandbox closes.
pub struct Account {
    status: Option<File>,
}

impl Account {
    /// Opens it where there is a /proc; elsewhere memory stays unknown.
    pub fn open() -> Self {
        Self {
            status: File::open("/proc/self/status").ok(),
        }
    }

    /// Peak of resident memory beyond the guest's, in bytes. Guest memory is an
    /// anonymous shared file, which the kernel counts as RssShmem.
    pub fn own_memory(&self) -> Option<u64> {
        let mut text = [0; 4096];
        let length = self.status.as_ref()?.read_at(&mut text, 0).ok()?;
        own_memory(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Neither the guest's memory nor the VMM's is given back before the end, so the
/// parts as they are now add up to the peak; if they do not, the peak counts.
fn own_memory(status: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse().ok()
    };
    let now = kib("RssAnon:")? + kib("RssFile:")?;
    let peak = kib("VmHWM:")?.saturating_sub(kib("RssShmem:")?);
    Some(now.max(peak) * 1024)
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
        let status = "VmPeak:\t9999 kB\nVmHWM:\t   5000 kB\nVmRSS:\t 4900 kB\n\
                      RssAnon:\t 300 kB\nRssFile:\t 600 kB\nRssShmem:\t 4000 kB\n";
        assert_eq!(own_memory(status), Some(1000 * 1024));
        assert_eq!(own_memory("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_has_used_something() {
        assert!(Account::open().own_memory().unwrap() > 0);
        assert!(cpu_time().unwrap() > 0);
    }
}
