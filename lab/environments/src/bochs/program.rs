//! Bochs: whether it is there, and can be what it is needed for.

use crate::error::EnvError;
use std::path::{Path, PathBuf};
use std::process::Output;

/// What installs Bochs.
pub const REMEDY: &str = "sudo apt-get install --no-install-recommends bochs bochs-term";

/// The processor: the newest of Bochs 2.7 with which Linux trusts its timers.
pub const MODEL: &str = "corei7_skylake_x";

/// The display, without which no machine is made. It needs a terminal by name only:
/// it opens one of its own.
const DISPLAY: &str = "libbx_term_gui.so";

/// A Bochs of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bochs {
    /// Its file.
    pub program: PathBuf,
    /// What it says its version is.
    pub version: String,
    /// Whether it has a debugger, which is to be told to let the machine go.
    pub debugger: bool,
}

/// The names of its program; where there is a first, the second asks questions.
const NAMES: [&str; 2] = ["bochs-bin", "bochs"];

impl Bochs {
    /// Bochs in $PATH.
    ///
    /// # Errors
    /// It is not there, does not start, or lacks something.
    pub fn find() -> Result<Self, EnvError> {
        Self::called(&NAMES)
    }

    fn called(names: &[&str]) -> Result<Self, EnvError> {
        let found = names.iter().copied().find_map(crate::qemu::in_path);
        let none = || EnvError::Missing(format!("there is no Bochs in $PATH: {REMEDY}"));
        Self::at(found.ok_or_else(none)?)
    }

    fn at(program: PathBuf) -> Result<Self, EnvError> {
        let lacks = |what: &str| {
            let program = program.display();
            EnvError::Missing(format!("{program} {what}: {REMEDY}"))
        };
        let told = ask(&program, &["--help"])?;
        let version = after(&told, "Bochs x86 Emulator ")
            .ok_or_else(|| lacks("does not tell its version"))?
            .to_owned();
        if !ask(&program, &["--help", "cpu"])?.contains(MODEL) {
            return Err(lacks(&format!(
                "({version}) has no processor {MODEL} with Intel's virtualization"
            )));
        }
        // Other builds have their displays within.
        let plugins =
            after(&told, "using compile time default '").map(|path| path.trim_end_matches('\''));
        if plugins.is_some_and(|path| !Path::new(path).join(DISPLAY).exists()) {
            return Err(lacks(&format!("has no {DISPLAY}")));
        }
        Ok(Self {
            debugger: told.contains("-rc filename"),
            program,
            version,
        })
    }
}

/// The word behind `prefix`.
fn after<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.split_once(prefix)?.1.split_ascii_whitespace().next()
}

/// What Bochs answers, on either stream. It starts no machine.
fn ask(program: &Path, question: &[&str]) -> Result<String, EnvError> {
    let output = std::process::Command::new(program)
        .args(question)
        .env_remove("LTDL_LIBRARY_PATH")
        .stdin(std::process::Stdio::null())
        .output();
    let Output { stdout, stderr, .. } = output.map_err(|source| EnvError::Start {
        program: program.to_owned(),
        source,
    })?;
    Ok(String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_or_is_no_bochs_is_explained() {
        let error = Bochs::called(&["no-such-bochs"]).unwrap_err().to_string();
        assert_eq!(error, format!("there is no Bochs in $PATH: {REMEDY}"));
        let error = Bochs::at("/nonexistent/bochs".into()).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/bochs"), "{error}");
        let error = Bochs::at("/bin/true".into()).unwrap_err().to_string();
        assert!(error.contains("does not tell its version"), "{error}");
        assert!(error.ends_with(REMEDY), "{error}");
    }

    #[test]
    fn a_bochs_without_the_processor_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bochs");
        std::fs::write(&path, "#!/bin/sh\necho Bochs x86 Emulator 2.6\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        let error = Bochs::at(path).unwrap_err().to_string();
        assert!(error.contains("(2.6) has no processor"), "{error}");
    }
}
