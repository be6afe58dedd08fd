//! Files that the parent process has opened, named by their descriptor.

use std::os::fd::RawFd;
use std::path::Path;

/// Returns the descriptor that a path names.
pub fn of_path(path: &Path) -> Option<RawFd> {
    let path = path.as_os_str().to_str()?;
    path.strip_prefix("/proc/self/fd/")?.parse().ok()
}
