//! Runs arbitrary programs on the simulated machine, one after the other.

use crate::base::Base;
use crate::initramfs::{add_as, Archive};
use crate::kernel::Maker;
use crate::listener::ProgramObserver;
use crate::machine::SimMachine;
use crate::script::Script;
use crate::settings::Settings;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use trapline_abi::record::Channel;
use trapline_host::process::Command;
use trapline_host::{Error, Limits};
use trapline_protocol::MAX_BYTES;

/// A static program of this host to run on the simulated machine.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub file: PathBuf,
    /// Arguments after its name.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Returns its path on the machine.
    fn place(&self) -> String {
        let name = self.file.file_name().unwrap_or_default();
        format!("/trapline/programs/{}", name.to_string_lossy())
    }
}

/// Result of a program.
#[derive(Clone, Debug)]
pub struct Output {
    /// Standard output.
    pub console: Vec<u8>,
    /// Standard error.
    pub errors: Vec<u8>,
    /// Output on descriptor 3.
    pub events: Vec<u8>,
    /// Exit status.
    pub status: ExitStatus,
    /// Instructions from its exec to its end.
    pub took: u64,
}

/// Memory of all programs together, in MiB.
const MEMORY: u32 = 256;

/// An additional file: path and contents.
pub type Extra<'a> = (&'a str, &'a [u8]);

/// Runs `programs` in a Linux with /dev/kvm on the simulated machine. Returns their results and the hash of
/// the machine's whole output.
///
/// # Errors
/// A file is missing, or the machine failed.
pub fn run(
    settings: &Settings,
    programs: &[Program],
    limits: &Limits,
) -> Result<(Vec<Output>, String), Error> {
    run_with(settings, programs, &[], limits)
}

/// Runs `programs` with additional files, see [`run`].
///
/// # Errors
/// See [`run`].
pub fn run_with(
    settings: &Settings,
    programs: &[Program],
    files: &[Extra<'_>],
    limits: &Limits,
) -> Result<(Vec<Output>, String), Error> {
    let base = Base::linux(settings, Maker::Amd)?;
    let machine = SimMachine::new(settings, base, MEMORY, &mut |archive, _| {
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
    run_script(&machine, &script, expected, limits)
}

/// Runs a script that starts `expected` programs.
///
/// # Errors
/// See [`run`].
pub fn run_script(
    machine: &SimMachine,
    script: &Script,
    expected: usize,
    limits: &Limits,
) -> Result<(Vec<Output>, String), Error> {
    let mut ready = machine.prepare(script, limits)?;
    ready.go(limits)?;
    let (outputs, hash, judged) = ready.wait(Outputs::of(expected), limits);
    judged.map(|()| (outputs.finished, hash))
}

fn add(programs: &[Program], archive: &mut Archive) -> Result<(), Error> {
    let mut programs = programs.iter();
    programs.try_for_each(|program| add_as(archive, &program.place(), &program.file))
}

/// Collects the results of programs.
pub struct Outputs {
    expected: usize,
    current: Unfinished,
    /// Results of ended programs.
    pub finished: Vec<Output>,
}

impl Outputs {
    /// Expects this number of programs.
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

impl ProgramObserver for Outputs {
    fn expected(&self) -> usize {
        self.expected
    }

    fn start(&mut self, exec: u64) {
        self.current.exec = exec;
    }

    fn output(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), Error> {
        let stream = match channel {
            Channel::Console => &mut self.current.console,
            Channel::Errors => &mut self.current.errors,
            Channel::Events => &mut self.current.events,
        };
        stream.extend(bytes);
        if stream.len() as u64 > MAX_BYTES {
            let words = String::new();
            return Err(Error::Flooded { output: words });
        }
        Ok(())
    }

    fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), Error> {
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

    fn abort(&mut self, _: &str) {}
}
