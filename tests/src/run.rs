//! Runs `trapline`, each test in a directory of its own.

use crate::measurements::estimate;
use crate::{parts, root};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;
use trapline_model::EXACT_BOOTS;

/// Program name of QEMU.
const QEMU: &str = "qemu-system-x86_64";

/// A temporary directory of a test with its parts, store and data.
pub struct Place {
    directory: TempDir,
    exact_boots: u32,
    is_replaying: bool,
}

impl Place {
    /// Creates a directory with links to every built part, which a test may replace.
    ///
    /// # Panics
    /// Nothing was built, or a file cannot be created.
    pub fn new() -> Self {
        Self::with_exact_boots(1)
    }

    /// Creates a directory as [`Self::new`] does, whose runs boot each environment on an exact clock twice.
    ///
    /// # Panics
    /// Nothing was built, or a file cannot be created.
    pub fn reproducing() -> Self {
        Self::with_exact_boots(EXACT_BOOTS)
    }

    /// Creates a directory as [`Self::new`] does, in which workload basic of the bare simulated machine is replayed from the
    /// recording in the repository. A recording has no profiles: the plugin is unusable.
    ///
    /// # Panics
    /// Nothing was built, or a file cannot be created.
    pub fn replaying() -> Self {
        let mut place = Self::new();
        place.is_replaying = true;
        place.replace("libtrapline_profile.so", b"no library");
        place
    }

    fn with_exact_boots(exact_boots: u32) -> Self {
        let place = Self {
            directory: tempfile::tempdir().expect("temporary directory"),
            exact_boots,
            is_replaying: false,
        };
        std::fs::create_dir(place.parts()).expect("path is unused");
        for part in std::fs::read_dir(parts())
            .expect("directory of parts")
            .flatten()
        {
            let link = place.parts().join(part.file_name());
            std::os::unix::fs::symlink(part.path(), link).expect("path is unused");
        }
        place
    }

    /// Returns the directory.
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

    /// Replaces the content of a part.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn replace(&self, part: &str, bytes: &[u8]) {
        let path = self.parts().join(part);
        std::fs::remove_file(&path).expect("part exists");
        std::fs::write(&path, bytes).expect("write succeeds");
    }

    /// Replaces the program of a part.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn replace_program(&self, part: &str, bytes: &[u8]) {
        crate::write_program(&self.parts().join(part), bytes);
    }

    /// Puts a wrapper before QEMU in $PATH that runs the shell script `script` first.
    ///
    /// # Panics
    /// QEMU is not installed, or has a wrapper already.
    pub fn wrap_qemu(&self, script: &str) {
        let real = crate::on_path(QEMU).expect("QEMU is installed");
        self.use_qemu(script, &real);
    }

    /// Puts the same wrapper before the QEMU at `real`.
    ///
    /// # Panics
    /// QEMU has a wrapper already.
    pub fn use_qemu(&self, script: &str, real: &Path) {
        std::fs::create_dir(self.bin()).expect("path is unused");
        let wrapper = self.bin().join(QEMU);
        let text = format!("#!/bin/sh\n{script}\nexec {} \"$@\"\n", real.display());
        crate::write_program(&wrapper, text);
    }

    /// Returns the first directory of $PATH.
    fn bin(&self) -> PathBuf {
        self.path().join("bin")
    }

    /// Returns the command `trapline WORD...` with this directory's parts and data.
    pub fn trapline(&self, words: &[&str]) -> Command {
        let mut command = Command::new(parts().join("trapline"));
        command
            .args(words)
            .env("TRAPLINE_PARTS", self.parts())
            .env("XDG_DATA_HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path())
            .env("TRAPLINE_EXACT_BOOTS", self.exact_boots.to_string())
            .env("PATH", self.search_path())
            .env_remove("NO_COLOR")
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        if self.is_replaying {
            command.env("TRAPLINE_REPLAY", root().join("tests/recordings"));
        }
        command
    }

    /// Returns the figure of one operation, given as `WORKLOAD/NAME`.
    ///
    /// # Panics
    /// It was not measured.
    #[track_caller]
    pub fn figure(&self, environment: &str, operation: &str) -> f64 {
        let run = self.measure(&["-q", "--env", environment, "--workload", operation]);
        estimate(&run, environment, operation)
    }

    /// Returns why `trapline list` reports an environment as unavailable, if it does.
    ///
    /// # Panics
    /// There is no such environment.
    pub fn unavailable_reason(&self, environment: &str) -> Option<String> {
        unavailable_reason(&self.run(&["list", "--format", "json"]), environment)
    }

    /// Returns whether an environment is available with the configuration of this directory; otherwise records `feature`
    /// as skipped.
    ///
    /// # Panics
    /// There is no such environment.
    pub fn has(&self, environment: &str, feature: &str) -> bool {
        is_available(self.unavailable_reason(environment), environment, feature)
    }

    fn search_path(&self) -> OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(self.bin()).chain(std::env::split_paths(&path));
        std::env::join_paths(all).expect("no colon in $PATH entries")
    }

    /// Runs `trapline WORD...`.
    ///
    /// # Panics
    /// It does not start.
    pub fn run(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::from(self.trapline(words).output().expect("trapline starts"))
    }

    /// Runs a command of `trapline` with `--store` and `words`, which are separated by spaces.
    pub fn run_storing(&self, command: &str, words: &str) -> CommandOutput {
        let store = self.store();
        let store = store.to_str().expect("path is UTF-8");
        let mut all = vec![command, "--store", store];
        all.extend(words.split(' '));
        self.run(&all)
    }

    /// Returns the JSON of `trapline run --store … --format json WORD...`, whatever its exit status.
    ///
    /// # Panics
    /// It does not print one JSON object.
    pub fn measure(&self, words: &[&str]) -> serde_json::Value {
        let store = self.store();
        let store = store.to_str().expect("path is UTF-8");
        let fixed = ["run", "--format", "json", "--store", store];
        let result = self.run(&[&fixed[..], words].concat());
        result.json()
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns whether an environment is available on this host; otherwise records `feature` as skipped.
///
/// # Panics
/// There is no such environment.
pub fn has(environment: &str, feature: &str) -> bool {
    static LIST: OnceLock<CommandOutput> = OnceLock::new();
    let list = LIST.get_or_init(|| Place::new().run(&["list", "--format", "json"]));
    is_available(unavailable_reason(list, environment), environment, feature)
}

fn is_available(reason: Option<String>, environment: &str, feature: &str) -> bool {
    if let Some(reason) = &reason {
        crate::skip(&format!("{feature} in {environment}"), reason);
    }
    reason.is_none()
}

/// Returns why the output of `trapline list --format json` has an environment as unavailable.
///
/// # Panics
/// There is no such environment.
pub fn unavailable_reason(list: &CommandOutput, environment: &str) -> Option<String> {
    let list = list.json();
    let environments = list["environments"].as_array().expect("list");
    let found = environments.iter().find(|it| it["name"] == environment);
    let reason = found.expect("environment is listed")["reason"].as_str();
    reason.map(str::to_owned)
}

/// Exit status and output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// Exit status; `None` after a signal.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Parses standard output as JSON.
    ///
    /// # Panics
    /// It is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Start of the line with the command that prints all of a run. It has the path of the store.
const EVERYTHING: &str = "Everything: trapline show ";

/// Fails if a line of `text` does not fit a terminal of 80 columns, the path of the store aside.
pub fn assert_fits_80_columns(text: &str) {
    let mut lines = text.lines().filter(|line| !line.starts_with(EVERYTHING));
    let wide = lines.find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "{text}");
}
