//! Support for the end-to-end tests: built parts, a private directory for each test, skips.
//!
//! The tests run the programs that `make build` put into `target/dist` and read their output.
//! Missing programs fail a test.

pub mod boots;
pub mod browser;
pub mod cycles;
pub mod examples;
pub mod guest;
pub mod linux;
pub mod measurements;
pub mod mechanisms;
pub mod modules;
pub mod processes;
pub mod recordings;
pub mod run;
mod slow;
pub mod slurm;
pub mod workspace;

pub use slow::slow_image;
pub use trapline_host::testing::write_program;
pub use trapline_skip::{on_path, skip};

use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_environments::{Parts, Settings};

/// Returns the directory of the built parts: `$TRAPLINE_PARTS`, or `target/dist`.
///
/// # Panics
/// There is no `trapline` in it.
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

/// Returns settings with the built parts.
///
/// # Panics
/// Nothing was built.
pub fn settings() -> Settings {
    Settings {
        parts: Parts::in_directory(parts()),
        ..Settings::find().expect("path of this program")
    }
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("tests/ has a parent").to_owned()
}

/// Returns the file of a baseline of the host's release.
///
/// # Errors
/// The repository has none of this release.
pub fn baseline_of_release(name: &str) -> Result<PathBuf, String> {
    let directory = baselines(Path::new("/etc/os-release"));
    let file = root().join(&directory).join(name);
    if file.is_file() {
        Ok(file)
    } else {
        Err(format!(
            "there is no {directory}/{name}; `make baseline` makes it"
        ))
    }
}

/// Returns the directory of the baselines of a release, relative to the repository.
fn baselines(release: &Path) -> String {
    let mut command = Command::new(root().join("scripts/baselines.sh"));
    let output = command.arg(release).output().expect("script starts");
    let directory = String::from_utf8(output.stdout).expect("directory is UTF-8");
    directory.trim().to_owned()
}

/// Returns whether QEMU is installed; otherwise records `what` as skipped.
pub fn has_qemu(feature: &str) -> bool {
    let found = on_path("qemu-system-x86_64").is_some();
    if !found {
        skip(feature, "QEMU is not installed (package qemu-system-x86)");
    }
    found
}

/// Returns whether Bochs is installed; otherwise records `what` as skipped.
pub fn has_bochs(feature: &str) -> bool {
    let found = on_path("bochs-bin").or_else(|| on_path("bochs")).is_some();
    if !found {
        skip(feature, "Bochs is not installed (package bochs)");
    }
    found
}

/// Returns whether git is installed; otherwise records `what` as skipped.
pub fn has_git(feature: &str) -> bool {
    let found = on_path("git").is_some();
    if !found {
        skip(feature, "git is not installed (package git)");
    }
    found
}

/// Returns whether `/dev/kvm` can be opened; otherwise records `what` as skipped.
pub fn has_kvm(feature: &str) -> bool {
    let mut options = std::fs::OpenOptions::new();
    match options.read(true).write(true).open("/dev/kvm") {
        Ok(_) => true,
        Err(error) => {
            skip(feature, &format!("/dev/kvm cannot be used: {error}"));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_are_those_of_the_release() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        for (release, expected) in [
            (
                "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\nID=debian\n",
                "baselines/debian-13",
            ),
            ("ID=debian\n", "baselines/debian"),
            ("", ""),
        ] {
            std::fs::write(&file, release).expect("writable file");
            assert_eq!(baselines(file.path()), expected);
        }
    }
}
