//! Files that belong to Trapline: in `TRAPLINE_PARTS`, or next to the executable.

use std::path::{Path, PathBuf};

/// Files that `make build` creates next to `trapline`.
pub const PARTS: [&str; 10] = [
    "trapline-vmm",
    "trapline-nova",
    "trapline-agent",
    "trapline-image",
    "trapline-conformance",
    "trapline-floor",
    "trapline-probe",
    "trapline-symbols",
    "trapline-switch",
    "libtrapline_profile.so",
];

/// Returns the parts that are missing in `directory`.
pub fn missing(directory: &Path) -> Vec<&'static str> {
    let is_missing = |name: &&str| !directory.join(name).is_file();
    PARTS.into_iter().filter(is_missing).collect()
}

/// Returns the directory of the parts.
pub fn directory() -> PathBuf {
    if let Some(named) = std::env::var_os("TRAPLINE_PARTS") {
        return PathBuf::from(named);
    }
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().map(PathBuf::from).unwrap_or_default()
}
