//! A VMM that Trapline knows nothing about: a command with places to be filled in.
//!
//! It has to boot the image and to print what the image says on its first serial
//! port, no more. What its exit status means, whether it ends with its guest,
//! and what else it prints is its own business: the guest's last record is the
//! end, and what decides.

use crate::error::EnvError;
use crate::process::Command;
use crate::transcript::{Ending, Transcript};
use rustix::fs::{access, Access};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::str::FromStr;
use std::time::Duration;
use trapline_abi::job::{Console, End, FIRST_WORD_SECONDS};
use trapline_abi::Job;
use trapline_model::MachineSpec;

/// How long a guest's first word is waited for.
pub const FIRST_WORD: Duration = Duration::from_secs(FIRST_WORD_SECONDS);

/// How long a VMM is waited for once its guest was done.
pub const GRACE: Duration = Duration::from_secs(1);

/// What there is to say where no VMM was given.
pub const NONE_GIVEN: &str = "no VMM is given: give one with \
                              --vmm 'COMMAND with {image} {memory} {cpus} {cmdline}'";

/// A VMM's command as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomVmm {
    text: String,
    words: Vec<Vec<Piece>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(Place),
}

/// What a command leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The image's file, an ELF with a PVH note.
    Image,
    /// The image's file as a bzImage.
    BzImage,
    /// Guest memory in MiB.
    Memory,
    /// Guest memory in bytes.
    MemoryBytes,
    /// The number of virtual CPUs.
    Cpus,
    /// The image's command line, in one piece.
    CommandLine,
}

impl Place {
    const NAMES: [(&'static str, Place); 6] = [
        ("image", Place::Image),
        ("bzimage", Place::BzImage),
        ("memory", Place::Memory),
        ("memory_bytes", Place::MemoryBytes),
        ("cpus", Place::Cpus),
        ("cmdline", Place::CommandLine),
    ];

    fn from_name(name: &str) -> Option<Self> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, place)| *place)
    }
}

/// Why a VMM's command cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// A quotation is not closed, or a backslash is last.
    #[error("it is split into words as a shell does, and a quotation in it has no end")]
    Unquoted,
    /// It does not name a program.
    #[error("it begins with the program, in $PATH or by its path")]
    NoProgram,
    /// A place that it must have.
    #[error("it has no {0}; without it the guest would have nothing to do")]
    Missing(&'static str),
    /// A place that means nothing.
    #[error("'{{{0}}}' means nothing here; there are {{image}}, {{bzimage}}, {{memory}} (MiB), {{memory_bytes}}, {{cpus}} and {{cmdline}}")]
    Unknown(String),
}

impl FromStr for CustomVmm {
    type Err = BadCommand;

    fn from_str(text: &str) -> Result<Self, BadCommand> {
        let words = shlex::split(text).ok_or(BadCommand::Unquoted)?;
        let words = words
            .iter()
            .map(|word| pieces(word))
            .collect::<Result<Vec<_>, _>>()?;
        let vmm = Self {
            text: text.trim().to_owned(),
            words,
        };
        vmm.check().map(|()| vmm)
    }
}

impl CustomVmm {
    fn check(&self) -> Result<(), BadCommand> {
        let first = self.words.first().map(Vec::as_slice);
        if !matches!(first, Some([Piece::Text(_)])) {
            return Err(BadCommand::NoProgram);
        }
        if !self.has(Place::Image) && !self.has(Place::BzImage) {
            return Err(BadCommand::Missing("{image} or {bzimage}"));
        }
        match self.has(Place::CommandLine) {
            true => Ok(()),
            false => Err(BadCommand::Missing("{cmdline}")),
        }
    }

    fn has(&self, place: Place) -> bool {
        let mut pieces = self.words.iter().flatten();
        pieces.any(|piece| *piece == Piece::Place(place))
    }

    /// Whether it names the image as a bzImage.
    pub fn wants_bzimage(&self) -> bool {
        self.has(Place::BzImage)
    }

    /// The command as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The program's file: in $PATH, or where the command says.
    ///
    /// # Errors
    /// It is not there, or may not be executed.
    pub fn program(&self) -> Result<PathBuf, EnvError> {
        let Some([Piece::Text(name)]) = self.words.first().map(Vec::as_slice) else {
            return Err(EnvError::Missing(NONE_GIVEN.to_owned()));
        };
        let missing = |told: String| EnvError::Missing(format!("--vmm: {told}"));
        if !name.contains('/') {
            return in_path(name)
                .ok_or_else(|| missing(format!("there is no program {name} in $PATH")));
        }
        let path = std::path::absolute(name).map_err(EnvError::file(name))?;
        match can_be_executed(&path) {
            true => Ok(path),
            false => Err(missing(format!("{name} is no program"))),
        }
    }

    /// Files of this host that the command names by absolute paths, such as
    /// firmware; also within a word, as in `path=/a/b,readonly=on`.
    pub fn files(&self) -> Vec<PathBuf> {
        let texts = self.words.iter().skip(1).flatten();
        let texts = texts.filter_map(|piece| match piece {
            Piece::Text(text) => Some(text),
            Piece::Place(_) => None,
        });
        let parts = texts.flat_map(|text| text.split(['=', ',', ':']));
        let paths = parts.map(PathBuf::from);
        paths.filter(|path| is_ordinary_file(path)).collect()
    }
}

/// Those of the kernel's own filesystems are everywhere.
fn is_ordinary_file(path: &Path) -> bool {
    let of_kernel = ["/dev", "/proc", "/sys"];
    path.is_absolute() && path.is_file() && !of_kernel.iter().any(|root| path.starts_with(root))
}

/// Why `program` cannot be packed for another machine, if it cannot.
///
/// # Errors
/// It is a script, or cannot be read.
pub fn check_packable(program: &Path) -> Result<(), EnvError> {
    let mut start = [0; 2];
    let mut file = File::open(program).map_err(EnvError::file(program))?;
    match file.read(&mut start).map_err(EnvError::file(program))? {
        2 if &start == b"#!" => Err(EnvError::Missing(format!(
            "{} is a script, and what it starts cannot be found by looking at it: \
             name the VMM itself with --vmm",
            program.display()
        ))),
        _ => Ok(()),
    }
}

/// `{name}` is a place; braces around anything but a name are text.
fn pieces(word: &str) -> Result<Vec<Piece>, BadCommand> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('{') {
        text.push_str(before);
        let named = behind.split_once('}').filter(|(name, _)| is_name(name));
        let Some((name, behind_place)) = named else {
            text.push('{');
            rest = behind;
            continue;
        };
        let unknown = || BadCommand::Unknown(name.to_owned());
        let place = Place::from_name(name).ok_or_else(unknown)?;
        push_text(&mut pieces, &mut text);
        pieces.push(Piece::Place(place));
        rest = behind_place;
    }
    text.push_str(rest);
    // An empty word is a word.
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, text: &mut String) {
    if !text.is_empty() {
        pieces.push(Piece::Text(std::mem::take(text)));
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let programs = std::env::split_paths(&path).map(|directory| directory.join(name));
    let found = programs
        .into_iter()
        .find(|program| can_be_executed(program));
    found.and_then(|program| std::path::absolute(program).ok())
}

fn can_be_executed(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Such a VMM with all that its command needs.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// The command.
    pub vmm: CustomVmm,
    /// Its program.
    pub program: PathBuf,
    /// The image, where the VMM will find it.
    pub image: PathBuf,
    /// The same as a bzImage, if the command asks for one.
    pub bzimage: PathBuf,
    /// What its guest gets.
    pub machine: MachineSpec,
    /// The ring for the image.
    pub ring: u8,
}

impl Foreign {
    /// The command for `job`.
    pub fn command(&self, job: &Job) -> Command {
        let job = Job {
            console: Console::Serial,
            ports: false,
            ring: self.ring,
            end: End::Reset,
            ..*job
        };
        let words = self.vmm.words.iter().skip(1);
        words
            .map(|word| self.filled(word, &job))
            .fold(Command::new(&self.program), Command::arg)
            .with_terminal()
    }

    fn filled(&self, word: &[Piece], job: &Job) -> String {
        let memory_bytes = u64::from(self.machine.memory_mib) << 20;
        let filled = word.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Place(Place::Image) => self.image.to_string_lossy().into_owned(),
            Piece::Place(Place::BzImage) => self.bzimage.to_string_lossy().into_owned(),
            Piece::Place(Place::Memory) => self.machine.memory_mib.to_string(),
            Piece::Place(Place::MemoryBytes) => memory_bytes.to_string(),
            Piece::Place(Place::Cpus) => self.machine.cpus.to_string(),
            Piece::Place(Place::CommandLine) => job.to_string(),
        });
        filled.collect()
    }

    /// Whether all is well after an end with `status`.
    ///
    /// # Errors
    /// The guest was not done.
    pub fn judge(&self, job: &Job, status: ExitStatus, heard: &Transcript) -> Result<(), EnvError> {
        let words = heard.last_words();
        let program = self.command(job).name();
        match (heard.ending(), status.code()) {
            (Ending::Done, _) => Ok(()),
            (Ending::Panicked(message), _) => Err(EnvError::Panicked {
                message: message.clone(),
            }),
            (Ending::Cut, _) if !heard.spoke() => Err(self.never_spoke(job, Some(status), words)),
            (Ending::Cut, Some(0)) => Err(EnvError::Silent { words }),
            (Ending::Cut, Some(status)) => Err(EnvError::Failed {
                program,
                status,
                words,
            }),
            (Ending::Cut, None) => Err(EnvError::Killed {
                program,
                signal: status.signal().unwrap_or_default(),
                words,
            }),
        }
    }

    /// The guest was not heard before the VMM ended, or in all the time that it
    /// was given.
    pub fn never_spoke(&self, job: &Job, status: Option<ExitStatus>, words: String) -> EnvError {
        let command = self.command(job);
        let name = command.name();
        let how = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("{name} ended with status {code}"),
            Some((_, Some(signal))) if signal != libc::SIGKILL => {
                format!("{name} was ended by signal {signal}")
            }
            _ => format!("{name} was killed after {} s", FIRST_WORD.as_secs()),
        };
        EnvError::NeverSpoke {
            how,
            command: shown(&command),
            words,
        }
    }
}

/// A command as one would type it.
fn shown(command: &Command) -> String {
    let program = command.program.to_string_lossy();
    let arguments = command.arguments.iter().map(|word| word.to_string_lossy());
    let words: Vec<_> = std::iter::once(program).chain(arguments).collect();
    let joined = shlex::try_join(words.iter().map(AsRef::as_ref));
    joined.unwrap_or_else(|_| words.join(" "))
}

#[cfg(test)]
mod tests;
