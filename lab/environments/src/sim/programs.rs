//! Any programs on the simulated machine, one after the other: how the floor is
//! measured and the conformance suite is run on its KVM.

use super::base::Base;
use super::initramfs::Archive;
use super::kernel::Maker;
use super::listener::Inmates;
use super::machine::Machine;
use super::script::Script;
use crate::environment::Watch;
use crate::error::EnvError;
use crate::process::Command;
use crate::settings::Settings;
use crate::transcript::MOST_BYTES;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use trapline_abi::record::Channel;

/// A static program of this host that is to run on the simulated machine.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub file: PathBuf,
    /// Its arguments, without its own name.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Where it is on the machine.
    fn place(&self) -> String {
        let name = self.file.file_name().unwrap_or_default();
        format!("/trapline/programs/{}", name.to_string_lossy())
    }
}

/// What a program did.
#[derive(Clone, Debug)]
pub struct Output {
    /// What it wrote to its standard output.
    pub console: Vec<u8>,
    /// What it wrote to its standard error.
    pub errors: Vec<u8>,
    /// What it wrote to its descriptor 3.
    pub events: Vec<u8>,
    /// How it ended.
    pub status: ExitStatus,
    /// Instructions from its exec until it was reaped.
    pub took: u64,
}

/// Memory that the programs may use together, in MiB.
const MEMORY: u32 = 256;

/// A file of the machine besides the programs: where, and what it holds.
pub type Extra<'a> = (&'a str, &'a [u8]);

/// Runs `programs` in Linux on the simulated machine, on which /dev/kvm is there,
/// and returns what each did and the hash of all that the machine said: equal
/// for two runs in which everything was equal.
///
/// # Errors
/// Something is missing, or the machine did not end well.
pub fn run(
    settings: &Settings,
    programs: &[Program],
    watch: &Watch,
) -> Result<(Vec<Output>, String), EnvError> {
    run_with(settings, programs, &[], watch)
}

/// The same with further files on the machine.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    settings: &Settings,
    programs: &[Program],
    files: &[Extra<'_>],
    watch: &Watch,
) -> Result<(Vec<Output>, String), EnvError> {
    let base = Base::linux(settings, Maker::Amd)?;
    let machine = Machine::new(settings, base, MEMORY, &mut |archive, _| {
        for (place, bytes) in files {
            archive.file(place, bytes.to_vec());
        }
        add(programs, archive)
    })?;
    let mut script = Script::default();
    for program in programs {
        let arguments = program.arguments.iter().cloned();
        let command = arguments.fold(Command::new(program.place()), Command::arg);
        script.launch(&command, false);
    }
    let expected = programs.len();
    run_script(&machine, &script, expected, watch)
}

/// Lets a machine follow a script that starts so many programs.
///
/// # Errors
/// As [`run`].
pub(super) fn run_script(
    machine: &Machine,
    script: &Script,
    expected: usize,
    watch: &Watch,
) -> Result<(Vec<Output>, String), EnvError> {
    let mut poised = machine.poise(script, watch)?;
    poised.go(watch)?;
    let (outputs, hash, judged) = poised.hear(Outputs::of(expected), watch);
    judged.map(|()| (outputs.finished, hash))
}

fn add(programs: &[Program], archive: &mut Archive) -> Result<(), EnvError> {
    let mut programs = programs.iter();
    programs.try_for_each(|program| super::add_as(archive, &program.place(), &program.file))
}

/// What programs did that run one after the other.
pub(crate) struct Outputs {
    expected: usize,
    current: Unfinished,
    /// What those did that have ended.
    pub finished: Vec<Output>,
}

impl Outputs {
    /// Those of so many programs.
    pub fn of(expected: usize) -> Self {
        Self {
            expected,
            current: Unfinished::default(),
            finished: Vec::new(),
        }
    }
}

#[derive(Default)]
struct Unfinished {
    exec: u64,
    console: Vec<u8>,
    errors: Vec<u8>,
    events: Vec<u8>,
}

impl Inmates for Outputs {
    fn expected(&self) -> usize {
        self.expected
    }

    fn start(&mut self, exec: u64) {
        self.current.exec = exec;
    }

    fn relay(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), EnvError> {
        let stream = match channel {
            Channel::Console => &mut self.current.console,
            Channel::Errors => &mut self.current.errors,
            Channel::Events => &mut self.current.events,
        };
        stream.extend(bytes);
        if stream.len() as u64 > MOST_BYTES {
            let words = String::new();
            return Err(EnvError::Flooded { words });
        }
        Ok(())
    }

    fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), EnvError> {
        let Unfinished {
            exec,
            console,
            errors,
            events,
        } = std::mem::take(&mut self.current);
        self.finished.push(Output {
            console,
            errors,
            events,
            status,
            took: at.saturating_sub(exec),
        });
        Ok(())
    }

    fn cut(&mut self, _: &str) {}
}
