//! Running the lab as people do, each test in a place of its own.

use crate::parts;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The name under which the lab looks for QEMU.
const QEMU: &str = "qemu-system-x86_64";

/// A place of a test's own: parts, store and data live in it, and go with it.
pub struct Place {
    directory: TempDir,
}

impl Place {
    /// A new place with every built part in it (as links, so that a test may
    /// replace one).
    ///
    /// # Panics
    /// If nothing was built, or there is no room for temporary files.
    pub fn new() -> Self {
        let place = Self {
            directory: tempfile::tempdir().expect("a temporary directory can be made"),
        };
        std::fs::create_dir(place.parts()).expect("the directory is new");
        for part in std::fs::read_dir(parts())
            .expect("parts can be listed")
            .flatten()
        {
            let link = place.parts().join(part.file_name());
            std::os::unix::fs::symlink(part.path(), link).expect("the link is new");
        }
        place
    }

    /// The directory of it all.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the directory of this test's parts.
    pub fn parts(&self) -> PathBuf {
        self.path().join("parts")
    }

    /// Returns the path of this test's store.
    pub fn store(&self) -> PathBuf {
        self.path().join("samples.db")
    }

    /// Replaces a part by other bytes.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn replace(&self, part: &str, bytes: &[u8]) {
        let path = self.parts().join(part);
        std::fs::remove_file(&path).expect("the part was there");
        std::fs::write(&path, bytes).expect("the part can be replaced");
    }

    /// Replaces a part by another program.
    ///
    /// # Panics
    /// As [`Self::replace`].
    pub fn replace_program(&self, part: &str, bytes: &[u8]) {
        self.replace(part, bytes);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.parts().join(part), executable).expect("it is ours");
    }

    /// Lets this place's lab find a QEMU that first does what `script`, in the words
    /// of a shell, says, and then is the one that is installed.
    ///
    /// # Panics
    /// If none is installed, or this place has one of its own already.
    pub fn wrap_qemu(&self, script: &str) {
        let real = crate::on_path(QEMU).expect("QEMU is installed");
        std::fs::create_dir(self.bin()).expect("the directory is new");
        let wrapper = self.bin().join(QEMU);
        let text = format!("#!/bin/sh\n{script}\nexec {} \"$@\"\n", real.display());
        std::fs::write(&wrapper, text).expect("the wrapper is new");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&wrapper, executable).expect("it is ours");
    }

    /// Directory that comes first in $PATH.
    fn bin(&self) -> PathBuf {
        self.path().join("bin")
    }

    /// A command of this place, ready to be started: `trapline WORD...`.
    pub fn trapline(&self, words: &[&str]) -> Command {
        let mut command = Command::new(parts().join("trapline"));
        command
            .args(words)
            .env("TRAPLINE_PARTS", self.parts())
            .env("XDG_DATA_HOME", self.path())
            .env("PATH", self.search_path())
            .env_remove("NO_COLOR")
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        command
    }

    fn search_path(&self) -> OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(self.bin()).chain(std::env::split_paths(&path));
        std::env::join_paths(all).expect("no directory has a colon in its name")
    }

    /// Runs `trapline WORD...` to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run(&self, words: &[&str]) -> Ended {
        Ended::from(
            self.trapline(words)
                .output()
                .expect("trapline can be started"),
        )
    }

    /// Runs a command of `trapline` that stores, with this place's store and `words`, which are
    /// separated by spaces.
    pub fn run_storing(&self, command: &str, words: &str) -> Ended {
        let store = self.store();
        let store = store.to_str().expect("the path is text");
        let mut all = vec![command, "--store", store];
        all.extend(words.split(' '));
        self.run(&all)
    }

    /// Runs `trapline run --store … --format json WORD...`, whatever comes of it.
    ///
    /// # Panics
    /// If it prints anything but one JSON object.
    pub fn measure(&self, words: &[&str]) -> serde_json::Value {
        let store = self.store();
        let store = store.to_str().expect("the path is text");
        let fixed = ["run", "--format", "json", "--store", store];
        let ended = self.run(&[&fixed[..], words].concat());
        ended.json()
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

/// A command that ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl Ended {
    /// Parses standard output as JSON.
    ///
    /// # Panics
    /// If it is not.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
