//! Finds Bochs and checks its capabilities.

use std::path::{Path, PathBuf};
use trapline_host::probe::Probe;
use trapline_host::Error;

/// Command that installs Bochs.
pub const REMEDY: &str = "sudo apt-get install --no-install-recommends bochs bochs-term";

/// CPU models, by the first major version of Bochs for which each is used: the newest whose timers Linux trusts. Later
/// versions emulate Skylake's posted interrupts, too, and refuse those that KVM sets up.
const MODELS: [(u32, &str); 2] = [(3, "corei7_haswell_4770"), (0, "corei7_skylake_x")];

/// Display library, required by Bochs. It opens a terminal of its own.
const DISPLAY: &str = "libbx_term_gui.so";

/// A Bochs of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bochs {
    /// Its file.
    pub program: PathBuf,
    /// Its version.
    pub version: String,
    /// The CPU model of its machines, but those for NOVA.
    pub model: &'static str,
    /// Its debugger.
    pub debugger: Debugger,
}

/// Start of the debugger, which has to continue the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debugger {
    /// There is none.
    Missing,
    /// With each machine, up to Bochs 2.8.
    Always,
    /// With an option, since Bochs 3.0.
    Option,
}

impl Debugger {
    fn in_help(help: &str) -> Self {
        let has = |option: &str| help.contains(option);
        match (has("-rc filename"), has("-debugger ")) {
            (false, _) => Self::Missing,
            (true, false) => Self::Always,
            (true, true) => Self::Option,
        }
    }
}

/// Names of its program. Where the first exists, the second is an interactive wrapper.
const NAMES: [&str; 2] = ["bochs-bin", "bochs"];

impl Bochs {
    /// Returns the Bochs in `$PATH`.
    ///
    /// # Errors
    /// It is missing, does not start, or lacks a capability.
    pub fn find() -> Result<Self, Error> {
        Self::called(&NAMES)
    }

    fn called(names: &[&str]) -> Result<Self, Error> {
        let found = names.iter().copied().find_map(trapline_host::find_program);
        let none = || Error::missing("there is no Bochs in $PATH", REMEDY);
        Self::at(found.ok_or_else(none)?)
    }

    fn at(program: PathBuf) -> Result<Self, Error> {
        let lacks = |what: &str| {
            let program = program.display();
            Error::missing(format!("{program} {what}"), REMEDY)
        };
        let help = ask(&program, &["--help"])?;
        let version = after(&help, "Bochs x86 Emulator ")
            .ok_or_else(|| lacks("does not report its version"))?
            .to_owned();
        let model = model(&version);
        if !ask(&program, &["--help", "cpu"])?.contains(model) {
            return Err(lacks(&format!(
                "({version}) has no processor {model} with Intel's virtualization"
            )));
        }
        // Builds without plugins contain their displays.
        let plugins =
            after(&help, "using compile time default '").map(|path| path.trim_end_matches('\''));
        if plugins.is_some_and(|path| !Path::new(path).join(DISPLAY).exists()) {
            return Err(lacks(&format!("has no {DISPLAY}")));
        }
        Ok(Self {
            debugger: Debugger::in_help(&help),
            program,
            version,
            model,
        })
    }
}

/// Returns the CPU model for a version of Bochs.
fn model(version: &str) -> &'static str {
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    let major: u32 = major.unwrap_or_default();
    let found = MODELS.iter().find(|(first, _)| major >= *first);
    found.map(|(_, model)| *model).expect("the last is for all")
}

/// Returns the word after `prefix`.
fn after<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.split_once(prefix)?.1.split_ascii_whitespace().next()
}

/// Returns the output of Bochs on both streams. It starts no machine.
fn ask(program: &Path, question: &[&str]) -> Result<String, Error> {
    let output = Probe::new(program, question).output()?;
    Ok(format!("{}{}", output.stdout, output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_host::testing::write_program;

    #[test]
    fn missing_program_and_other_programs_are_rejected() {
        let none = Bochs::called(&["no-such-bochs"]).unwrap_err();
        let missing = Bochs::at("/nonexistent/bochs".into()).unwrap_err();
        let other = Bochs::at("/bin/true".into()).unwrap_err();
        expect![[r#"
            there is no Bochs in $PATH: sudo apt-get install --no-install-recommends bochs bochs-term
            cannot start /nonexistent/bochs: No such file or directory (os error 2)
            /bin/true does not report its version: sudo apt-get install --no-install-recommends bochs bochs-term"#]].assert_eq(&format!("{none}\n{missing}\n{other}"));
    }

    #[test]
    fn cpu_model_depends_on_the_version() {
        let models = ["2.7", "2.8", "3.0", "3.1.devel", "unknown"].map(model);
        expect!["corei7_skylake_x corei7_skylake_x corei7_haswell_4770 corei7_haswell_4770 corei7_skylake_x"]
            .assert_eq(&models.join(" "));
    }

    #[test]
    fn help_says_how_the_debugger_starts() {
        let old = "  -rc filename     execute debugger commands stored in file\n";
        let new = format!("  -debugger        start Bochs internal debugger on startup\n{old}");
        let found = ["", old, &new].map(Debugger::in_help);
        assert_eq!(
            found,
            [Debugger::Missing, Debugger::Always, Debugger::Option]
        );
    }

    #[test]
    fn bochs_without_the_cpu_model_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bochs");
        write_program(&path, "#!/bin/sh\necho Bochs x86 Emulator 2.6\n");
        let error = Bochs::at(path).unwrap_err().to_string();
        let directory = directory.path().display().to_string();
        expect!["DIR/bochs (2.6) has no processor corei7_skylake_x with Intel's virtualization: sudo apt-get install --no-install-recommends bochs bochs-term"].assert_eq(&error.replace(&directory, "DIR"));
    }
}
