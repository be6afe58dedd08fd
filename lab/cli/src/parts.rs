//! The programs that the lab starts: beside its own executable, or where
//! `TRAPLINE_PARTS` says.

use std::path::PathBuf;

/// Everything that `make build` puts beside `trapline`.
pub const PARTS: [&str; 8] = [
    "trapline-vmm",
    "trapline-agent",
    "trapline-image",
    "trapline-conformance",
    "trapline-floor",
    "trapline-probe",
    "trapline-symbols",
    "libtrapline_ledger.so",
];

/// Where parts were looked for, and which are not there.
pub struct Found {
    /// The directory.
    pub directory: PathBuf,
    /// Names that are not there.
    pub missing: Vec<&'static str>,
}

/// Looks for all parts.
pub fn found() -> Found {
    let directory = directory();
    let is_missing = |name: &&str| !directory.join(name).is_file();
    let missing = PARTS.into_iter().filter(is_missing).collect();
    Found { directory, missing }
}

/// Where the parts should be.
pub fn directory() -> PathBuf {
    if let Some(named) = std::env::var_os("TRAPLINE_PARTS") {
        return PathBuf::from(named);
    }
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().map(PathBuf::from).unwrap_or_default()
}
