//! What the end-to-end tests stand on: the built parts, a private place for each
//! test, and a way to say that a test could not run here.
//!
//! The tests run what `make build` put into `target/dist`, as people do, and read
//! what it prints. A build that is not there is a failure, not a skip.

pub mod browser;
pub mod cycles;
pub mod guest;
pub mod house;
pub mod linux;
pub mod processes;
pub mod run;
mod skip;
mod slow;

pub use skip::skip;
pub use slow::slow_image;

use std::path::{Path, PathBuf};
use trapline_environments::{Parts, Settings};

/// The directory of the built parts: `$TRAPLINE_PARTS`, or `target/dist`.
///
/// # Panics
/// If there is no `trapline` in it: nothing was built.
pub fn parts() -> PathBuf {
    let named = std::env::var_os("TRAPLINE_PARTS").map(PathBuf::from);
    let parts = named.unwrap_or_else(|| root().join("target/dist"));
    assert!(
        parts.join("trapline").is_file(),
        "no trapline in {}: run `make build` first",
        parts.display()
    );
    parts
}

/// Where the environments find their parts.
///
/// # Panics
/// If nothing was built.
pub fn settings() -> Settings {
    Settings {
        parts: Parts::in_directory(parts()),
        ..Settings::find().expect("the kernel says where this program is")
    }
}

/// The repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the tests have a parent").to_owned()
}

/// Whether QEMU is here; if not, says that `what` is skipped.
pub fn has_qemu(what: &str) -> bool {
    let found = on_path("qemu-system-x86_64").is_some();
    if !found {
        skip(what, "QEMU is not installed (package qemu-system-x86)");
    }
    found
}

/// Whether Bochs is here; if not, says that `what` is skipped.
pub fn has_bochs(what: &str) -> bool {
    let found = on_path("bochs-bin").or_else(|| on_path("bochs")).is_some();
    if !found {
        skip(what, "Bochs is not installed (package bochs)");
    }
    found
}

/// Whether git is here; if not, says that `what` is skipped.
pub fn has_git(what: &str) -> bool {
    let found = on_path("git").is_some();
    if !found {
        skip(what, "git is not installed (package git)");
    }
    found
}

/// Whether `/dev/kvm` can be used; if not, says that `what` is skipped.
pub fn has_kvm(what: &str) -> bool {
    let mut options = std::fs::OpenOptions::new();
    match options.read(true).write(true).open("/dev/kvm") {
        Ok(_) => true,
        Err(error) => {
            skip(what, &format!("/dev/kvm cannot be used: {error}"));
            false
        }
    }
}

/// Where in $PATH a program is.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|program| program.is_file())
}
