//! A guest of a custom VMM: its command, and the check of its end.

use super::{CustomVmm, Piece, Placeholder, FIRST_RECORD_TIMEOUT};
use crate::process::Command;
use crate::Error;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use trapline_abi::job::{self, Shutdown};
use trapline_abi::Job;
use trapline_model::vmms::{Console, ImageFormat, Transport};
use trapline_model::GuestConfig;
use trapline_protocol::{EndState, GuestDecoder};

/// A guest of a custom VMM: the values of the command's placeholders.
#[derive(Clone, Debug)]
pub struct CustomGuest {
    /// The command.
    pub vmm: CustomVmm,
    /// Its program.
    pub program: PathBuf,
    /// Path of the image, or of the kernel of a Linux guest.
    pub image: PathBuf,
    /// Path of the image in another format than its own, if the VMM boots that.
    pub converted: PathBuf,
    /// Path of the initramfs of a Linux guest.
    pub initramfs: PathBuf,
    /// Words of the command line before the job, each followed by a space: those of a Linux guest.
    pub options: String,
    /// Path of its configuration file, if it has one.
    pub config: PathBuf,
    /// Home directory of the VMM.
    pub home: PathBuf,
    /// The program may be a wrapper, which starts the VMM.
    pub is_wrapped: bool,
    /// Configuration of the guest.
    pub machine: GuestConfig,
    /// The ring for the image.
    pub ring: u8,
}

impl CustomGuest {
    /// Returns the command for `job`.
    pub fn command(&self, job: &Job) -> Command {
        let job = self.adapted(job);
        let words = self.vmm.words.iter().skip(1);
        let command = words
            .map(|word| self.filled(word, &job))
            .fold(Command::new(&self.program).as_foreign(), Command::arg)
            .with_terminal()
            .env("HOME", &self.home);
        let variables = self.vmm.variables.iter();
        variables.fold(command, |command, (name, value)| command.env(name, value))
    }

    /// Returns the text of its configuration file for `job`, if it has one.
    pub fn config_text(&self, job: &Job) -> Option<String> {
        let text = self.vmm.config.as_ref()?;
        Some(self.filled(text, &self.adapted(job)))
    }

    /// Returns `job` for a machine without ports of Trapline.
    fn adapted(&self, job: &Job) -> Job {
        Job {
            console: match self.vmm.console {
                Console::Serial => job::Console::Serial,
                Console::Debugcon => job::Console::Port,
            },
            transport: match self.vmm.transport {
                Transport::Mmio => job::Transport::Mmio,
                Transport::Pci => job::Transport::Pci,
            },
            ports: false,
            ring: self.ring,
            shutdown: Shutdown::PowerOff,
            ..*job
        }
    }

    fn filled(&self, word: &[Piece], job: &Job) -> String {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let memory_bytes = u64::from(self.machine.memory_mib) << 20;
        let is_converted = self.vmm.format != ImageFormat::Pvh;
        let filled = word.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Placeholder(Placeholder::Image) if !is_converted => path(&self.image),
            Piece::Placeholder(Placeholder::Image | Placeholder::BzImage) => path(&self.converted),
            Piece::Placeholder(Placeholder::Memory) => self.machine.memory_mib.to_string(),
            Piece::Placeholder(Placeholder::MemoryBytes) => memory_bytes.to_string(),
            Piece::Placeholder(Placeholder::Cpus) => self.machine.cpus.to_string(),
            Piece::Placeholder(Placeholder::Kernel) => path(&self.image),
            Piece::Placeholder(Placeholder::Initramfs) => path(&self.initramfs),
            Piece::Placeholder(Placeholder::CommandLine) => self.command_line(job),
            Piece::Placeholder(Placeholder::Config) => path(&self.config),
        });
        filled.collect()
    }

    fn command_line(&self, job: &Job) -> String {
        format!("{}{job}", self.options)
    }

    /// Returns the command line for `job` if the image's file contains it.
    pub fn contained_command_line(&self, job: &Job) -> Option<String> {
        let is_contained = self.vmm.format() == ImageFormat::Raw;
        is_contained.then(|| self.command_line(&self.adapted(job)))
    }

    /// Checks the end of the VMM and the records of its guest.
    ///
    /// # Errors
    /// The guest did not end well.
    pub fn check_exit(
        &self,
        job: &Job,
        status: ExitStatus,
        records: &GuestDecoder,
    ) -> Result<(), Error> {
        let words = records.last_output();
        let program = self.command(job).name();
        match (records.end(), status.code()) {
            (EndState::Done, _) => Ok(()),
            (EndState::Panicked(message), _) => Err(Error::Panicked {
                message: message.clone(),
            }),
            (EndState::Incomplete, _) if !records.has_started() => {
                Err(self.no_records(job, Some(status), words))
            }
            (EndState::Incomplete, _) if records.has_restarted() => {
                Err(Error::Restarted { program })
            }
            (EndState::Incomplete, Some(0)) => Err(Error::NoDone { output: words }),
            (EndState::Incomplete, Some(status)) => Err(Error::Failed {
                program,
                status,
                output: words,
            }),
            (EndState::Incomplete, None) => Err(Error::Killed {
                program,
                signal: status.signal().unwrap_or_default(),
                output: words,
            }),
        }
    }

    /// Returns the error of a guest without records; `status` is `None` if the VMM was killed.
    pub fn no_records(&self, job: &Job, status: Option<ExitStatus>, words: String) -> Error {
        let command = self.command(job);
        let name = command.name();
        let how = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("{name} ended with status {code}"),
            Some((_, Some(signal))) if signal != libc::SIGKILL => {
                format!("{name} ended by signal {signal}")
            }
            _ => format!(
                "{name} was killed after {} s",
                FIRST_RECORD_TIMEOUT.as_secs()
            ),
        };
        Error::NoRecords {
            how,
            command: shown(&command),
            output: words,
        }
    }
}

/// Formats a command for a shell.
fn shown(command: &Command) -> String {
    let program = command.program.to_string_lossy();
    let arguments = command.arguments.iter().map(|word| word.to_string_lossy());
    let words: Vec<_> = std::iter::once(program).chain(arguments).collect();
    let joined = shlex::try_join(words.iter().map(AsRef::as_ref));
    joined.unwrap_or_else(|_| words.join(" "))
}
