//! The plugin that counts what the simulated machine executes: loaded into its
//! QEMU only where a figure is to be explained.

use crate::error::EnvError;
use crate::parts::Part;
use crate::qemu::Qemu;
use crate::settings::Settings;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A plugin and where it writes, for one machine.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its file.
    pub(crate) library: PathBuf,
    /// What it writes; has no name.
    pub(crate) output: Arc<File>,
    /// What else it is told.
    pub(crate) words: Vec<String>,
}

impl Plugin {
    /// The plugin of these parts, tried on the QEMU of these settings. `ready` is
    /// what it says when it would work.
    ///
    /// # Errors
    /// It is not there, or this QEMU cannot use it.
    pub fn find(settings: &Settings, ready: &str) -> Result<Self, EnvError> {
        let library = settings.parts.get(Part::Plugin)?;
        try_on(&Qemu::find(settings.qemu.as_deref())?, &library, ready)?;
        Self::of(library)
    }

    /// The same for another machine.
    ///
    /// # Errors
    /// There is no memory to write to.
    pub fn another(&self) -> Result<Self, EnvError> {
        Ok(Self {
            words: self.words.clone(),
            ..Self::of(self.library.clone())?
        })
    }

    /// The same, told `words`: arguments of the plugin's own.
    pub fn told(self, words: Vec<String>) -> Self {
        Self { words, ..self }
    }

    fn of(library: PathBuf) -> Result<Self, EnvError> {
        let file = rustix::fs::memfd_create("windows", MemfdFlags::CLOEXEC);
        let file = file.map_err(|errno| EnvError::file("windows in memory")(errno.into()))?;
        Ok(Self {
            library,
            output: Arc::new(File::from(file)),
            words: Vec::new(),
        })
    }

    /// What it has written.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn written(&self) -> Result<String, EnvError> {
        let mut text = String::new();
        let mut file: &File = &self.output;
        let read = file.read_to_string(&mut text);
        read.map_err(EnvError::file("windows in memory"))?;
        Ok(text)
    }
}

/// A path as it stands in an option of QEMU's, where commas separate.
pub(crate) fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// How the plugin begins what it says itself.
const PLUGIN_SAYS: &str = "trapline-profile: ";

/// Lets QEMU load the plugin, which then says that it would work, and refuses.
fn try_on(qemu: &Qemu, library: &Path, ready: &str) -> Result<(), EnvError> {
    let output = Command::new(&qemu.program)
        .args([
            "-M",
            "none",
            "-nodefaults",
            "-display",
            "none",
            "-accel",
            "tcg",
        ])
        .arg("-plugin")
        .arg(format!("{},probe=on", escaped(library)))
        .stdin(Stdio::null())
        .output()
        .map_err(|source| EnvError::Start {
            program: qemu.program.clone(),
            source,
        })?;
    let words = String::from_utf8_lossy(&output.stderr);
    if words.lines().any(|line| line.ends_with(ready)) {
        return Ok(());
    }
    if words.lines().any(|line| line.starts_with(PLUGIN_SAYS)) {
        return Err(EnvError::Missing(format!(
            "{} is of another build than this lab; build both from one source with 'make build'",
            library.display()
        )));
    }
    Err(EnvError::Missing(format!(
        "QEMU {} cannot load the plugin that counts ({}); this needs a QEMU with plugins \
         of API version 1, as Debian 12 and Ubuntu 24.04 have it, and the plugin as 'make build' \
         makes it",
        qemu.version,
        words.lines().next().unwrap_or("it does not say why").trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_that_cannot_is_told_with_the_remedy() {
        let qemu = Qemu {
            program: "/bin/false".into(),
            version: "99".to_owned(),
        };
        let error = try_on(&qemu, Path::new("/a,b.so"), "ready").unwrap_err();
        assert!(error.to_string().contains("QEMU 99 cannot"), "{error}");
        assert!(error.to_string().contains("API version 1"), "{error}");
        assert_eq!(escaped(Path::new("/a,b.so")), "/a,,b.so");
    }

    #[test]
    fn a_plugin_that_loads_and_says_something_else_is_of_another_build() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("qemu");
        std::fs::write(
            &program,
            "#!/bin/sh\necho 'trapline-profile: ready 1' >&2\n",
        )
        .unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        let version = "7.2".to_owned();
        let qemu = Qemu { program, version };
        let library = Path::new("/parts/plugin.so");
        try_on(&qemu, library, "ready 1").unwrap();
        let error = try_on(&qemu, library, "ready 2").unwrap_err().to_string();
        assert!(
            error.starts_with("/parts/plugin.so is of another build"),
            "{error}"
        );
        assert!(error.contains("make build"), "{error}");
    }
}
