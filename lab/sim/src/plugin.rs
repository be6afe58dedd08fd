//! The QEMU plugin that counts executed instructions, loaded only to explain a figure.

use crate::qemu::Qemu;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use trapline_host::process;
use trapline_host::{tool, Error};

/// A plugin and its output, for one machine.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its file.
    pub library: PathBuf,
    /// Anonymous file that it writes.
    pub output: Arc<File>,
    /// Its arguments.
    pub words: Vec<String>,
}

impl Plugin {
    /// Returns the plugin in the file `library` after a test load into `qemu`, where it has to print
    /// `ready`.
    ///
    /// # Errors
    /// This QEMU cannot load it, or it is of another build.
    pub fn load(library: PathBuf, qemu: &Qemu, ready: &str) -> Result<Self, Error> {
        try_on(qemu, &library, ready)?;
        Self::of(library)
    }

    /// Returns the same plugin with an output of its own.
    ///
    /// # Errors
    /// There is no memory for the output.
    pub fn another(&self) -> Result<Self, Error> {
        Ok(Self {
            words: self.words.clone(),
            ..Self::of(self.library.clone())?
        })
    }

    /// Replaces the arguments of the plugin.
    pub fn with_arguments(self, words: Vec<String>) -> Self {
        Self { words, ..self }
    }

    fn of(library: PathBuf) -> Result<Self, Error> {
        let file = rustix::fs::memfd_create("windows", MemfdFlags::CLOEXEC);
        let file = file.map_err(|errno| Error::file("windows in memory")(errno.into()))?;
        Ok(Self {
            library,
            output: Arc::new(File::from(file)),
            words: Vec::new(),
        })
    }

    /// Returns its output.
    ///
    /// # Errors
    /// The output cannot be read.
    pub fn written(&self) -> Result<String, Error> {
        let mut text = String::new();
        let mut file: &File = &self.output;
        let read = file.read_to_string(&mut text);
        read.map_err(Error::file("windows in memory"))?;
        Ok(text)
    }
}

/// Loads `plugin`, if any, into a QEMU.
pub fn with_plugin(mut command: process::Command, plugin: Option<&Plugin>) -> process::Command {
    let Some(plugin) = plugin else {
        return command;
    };
    let number = command.pass_file(Arc::clone(&plugin.output));
    let mut option = format!("{},out=/proc/self/fd/{number}", escaped(&plugin.library));
    for argument in &plugin.words {
        option.push(',');
        option.push_str(argument);
    }
    command.arg("-plugin").arg(option)
}

/// Escapes a path for an option of QEMU, where commas separate.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// Prefix of messages of the plugin.
const PLUGIN_SAYS: &str = "trapline-profile: ";

/// Loads the plugin into QEMU with `probe=on`: it prints its version and refuses to run.
fn try_on(qemu: &Qemu, library: &Path, ready: &str) -> Result<(), Error> {
    let mut command = Command::new(&qemu.program);
    command
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
        .arg(format!("{},probe=on", escaped(library)));
    let output = tool::output(&mut command)?;
    let words = String::from_utf8_lossy(&output.stderr);
    if words.lines().any(|line| line.ends_with(ready)) {
        return Ok(());
    }
    if words.lines().any(|line| line.starts_with(PLUGIN_SAYS)) {
        return Err(Error::missing(
            format!("{} is of another build than this lab", library.display()),
            "build both from one source with 'make build'",
        ));
    }
    Err(Error::missing(
        format!(
            "QEMU {} cannot load the plugin that counts ({})",
            qemu.version,
            words.lines().next().unwrap_or("without a message").trim()
        ),
        "use a QEMU with plugins of API version 1 to 6, as in Debian 12 and 13, and the plugin of 'make build'",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_host::testing::write_program;

    #[test]
    fn qemu_without_plugins_is_reported_with_a_remedy() {
        let qemu = Qemu {
            program: "/bin/false".into(),
            version: "99".to_owned(),
        };
        let error = try_on(&qemu, Path::new("/a,b.so"), "ready").unwrap_err();
        expect!["QEMU 99 cannot load the plugin that counts (without a message): use a QEMU with plugins of API version 1 to 6, as in Debian 12 and 13, and the plugin of 'make build'"].assert_eq(&error.to_string());
        assert_eq!(escaped(Path::new("/a,b.so")), "/a,,b.so");
    }

    #[test]
    fn plugin_of_another_build_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("qemu");
        write_program(
            &program,
            "#!/bin/sh\necho 'trapline-profile: ready 1' >&2\n",
        );
        let version = "7.2".to_owned();
        let qemu = Qemu { program, version };
        let library = Path::new("/parts/plugin.so");
        try_on(&qemu, library, "ready 1").unwrap();
        let error = try_on(&qemu, library, "ready 2").unwrap_err().to_string();
        expect!["/parts/plugin.so is of another build than this lab: build both from one source with 'make build'"].assert_eq(&error);
    }
}
