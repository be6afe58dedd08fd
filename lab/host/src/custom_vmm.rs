//! Custom VMMs: a command line with placeholders.
//!
//! A custom VMM has to boot the image and to print its first serial port. Its exit status, its own
//! output and its end do not matter: the guest's last record decides.

mod guest;
mod paths;

pub use guest::CustomGuest;

use crate::Error;
use rustix::fs::{access, Access};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use trapline_abi::job::FIRST_RECORD_SECONDS;
use trapline_model::layers::Guest;
use trapline_model::vmms::{self, Console, Definition, ImageFormat, Transport};

/// Time limit for the first record of a guest.
pub const FIRST_RECORD_TIMEOUT: Duration = Duration::from_secs(FIRST_RECORD_SECONDS);

/// Time that a VMM may run after its guest ended.
pub const EXIT_GRACE: Duration = Duration::from_secs(1);

/// Returns the error where no custom VMM is given.
pub fn none_given() -> Error {
    Error::missing(
        "no custom VMM is given",
        "--vmm 'COMMAND with {image} {memory} {cpus} {cmdline}'",
    )
}

/// The command line of a custom VMM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomVmm {
    /// The option or key that has the command, for messages.
    source: String,
    text: String,
    words: Vec<Vec<Piece>>,
    format: ImageFormat,
    /// Files and directories besides those that the words name.
    files: Vec<PathBuf>,
    variables: BTreeMap<String, String>,
    /// Text of the configuration file.
    config: Option<Vec<Piece>>,
    console: Console,
    transport: Transport,
    guest: Guest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

/// A placeholder of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
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
    /// The kernel of a Linux guest.
    Kernel,
    /// Its initramfs.
    Initramfs,
    /// The guest's command line, in one piece.
    CommandLine,
    /// The configuration file.
    Config,
}

impl Placeholder {
    const NAMES: [(&'static str, Placeholder); 9] = [
        ("image", Placeholder::Image),
        ("bzimage", Placeholder::BzImage),
        ("memory", Placeholder::Memory),
        ("memory_bytes", Placeholder::MemoryBytes),
        ("cpus", Placeholder::Cpus),
        ("kernel", Placeholder::Kernel),
        ("initramfs", Placeholder::Initramfs),
        ("cmdline", Placeholder::CommandLine),
        ("config", Placeholder::Config),
    ];

    fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, place)| *place == self);
        known.map_or("", |(name, _)| name)
    }

    fn from_name(name: &str) -> Option<Self> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, place)| *place)
    }
}

/// An invalid command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCommand {
    /// A quotation is not closed, or a backslash is last.
    #[error("unterminated quotation (the command is split into words as by a shell)")]
    Unquoted,
    /// It does not name a program.
    #[error("the first word is not a program, in $PATH or by its path")]
    NoProgram,
    /// A required placeholder is missing.
    #[error("placeholder {0} is missing; the guest needs it")]
    Missing(&'static str),
    /// A configuration file is named and not given, or the other way round.
    #[error("{{config}} in the command and the key config of [vmm.NAME] go together")]
    Config,
    /// The placeholder of one format, and another format.
    #[error("{{bzimage}} in the command and format = \"multiboot\" or \"raw\" exclude each other: write {{image}}")]
    Formats,
    /// A placeholder is one of another kind of guest.
    #[error("placeholder {{{0}}} is one of another guest: {{image}} and {{bzimage}} are those of the image, {{kernel}} and {{initramfs}} of Linux guests, key linux")]
    OtherGuest(&'static str),
    /// A placeholder is unknown.
    #[error("unknown placeholder '{{{0}}}'; there are {{image}}, {{bzimage}}, {{memory}} (MiB), {{memory_bytes}}, {{cpus}}, {{cmdline}}, {{config}}, and {{kernel}} and {{initramfs}} for Linux guests")]
    Unknown(String),
}

impl FromStr for CustomVmm {
    type Err = InvalidCommand;

    fn from_str(text: &str) -> Result<Self, InvalidCommand> {
        Self::try_from(Definition {
            command: text.to_owned(),
            ..Definition::default()
        })
    }
}

impl TryFrom<Definition> for CustomVmm {
    type Error = InvalidCommand;

    fn try_from(definition: Definition) -> Result<Self, InvalidCommand> {
        let vmm = Self::parse(definition)?;
        vmm.check().map(|()| vmm)
    }
}

impl CustomVmm {
    /// Returns the VMM of a definition, unchecked.
    fn parse(definition: Definition) -> Result<Self, InvalidCommand> {
        let words = shlex::split(&definition.command).ok_or(InvalidCommand::Unquoted)?;
        let words = words.iter().map(|word| pieces(word));
        let config = definition.config.as_deref().map(pieces).transpose()?;
        Ok(Self {
            source: "--vmm".to_owned(),
            text: definition.command.trim().to_owned(),
            words: words.collect::<Result<_, _>>()?,
            format: definition.format,
            files: definition.files,
            variables: definition.env,
            config,
            console: definition.console,
            transport: definition.transport,
            guest: Guest::Image,
        })
    }

    /// Returns the VMM that a plan or the configuration defines as `[vmm.NAME]`, with its command for a kind of guest.
    ///
    /// # Errors
    /// Nothing defines it or that command, or the command is invalid.
    pub fn defined(name: &str, guest: Guest) -> Result<Self, Error> {
        let source = format!("vmm.{name}");
        let Some(definition) = vmms::definition(name) else {
            return Err(Error::missing(
                format!("no plan and no configuration defines the VMM {name}"),
                format!("add [{source}] with its command to the plan or to ~/.config/trapline/config.toml"),
            ));
        };
        let vmm =
            match guest {
                Guest::Image => Self::try_from(definition),
                Guest::Linux => match definition.linux.clone() {
                    Some(command) => Self::with_linux(definition, command),
                    None => return Err(Error::missing(
                        format!("{source} has no command for Linux guests"),
                        "add linux = 'COMMAND with {kernel} {initramfs} {memory} {cpus} {cmdline}'",
                    )),
                },
            };
        let vmm = vmm.map_err(|error| Error::unavailable(format!("{source}: {error}")))?;
        Ok(Self { source, ..vmm })
    }

    /// Returns the VMM with its command for Linux guests.
    fn with_linux(definition: Definition, command: String) -> Result<Self, InvalidCommand> {
        let config = definition.linux_config.clone();
        let vmm = Self::parse(Definition {
            command,
            config,
            format: ImageFormat::Pvh,
            ..definition
        })?;
        let vmm = Self {
            guest: Guest::Linux,
            ..vmm
        };
        vmm.check().map(|()| vmm)
    }

    fn check(&self) -> Result<(), InvalidCommand> {
        let first = self.words.first().map(Vec::as_slice);
        if !matches!(first, Some([Piece::Text(_)])) {
            return Err(InvalidCommand::NoProgram);
        }
        self.check_placeholders()?;
        if self.config.is_some() == self.has(Placeholder::Config) {
            Ok(())
        } else {
            Err(InvalidCommand::Config)
        }
    }

    /// Checks that the placeholders are those of the kind of guest.
    fn check_placeholders(&self) -> Result<(), InvalidCommand> {
        let others: &[Placeholder] = match self.guest {
            Guest::Image => &[Placeholder::Kernel, Placeholder::Initramfs],
            Guest::Linux => &[Placeholder::Image, Placeholder::BzImage],
        };
        if let Some(place) = others.iter().find(|place| self.has(**place)) {
            return Err(InvalidCommand::OtherGuest(place.name()));
        }
        let is_converted = !matches!(self.format, ImageFormat::Pvh | ImageFormat::Bzimage);
        if is_converted && self.has(Placeholder::BzImage) {
            return Err(InvalidCommand::Formats);
        }
        let image: (&[_], _) = (
            &[Placeholder::Image, Placeholder::BzImage],
            "{image} or {bzimage}",
        );
        let command_line: (&[_], _) = (&[Placeholder::CommandLine], "{cmdline}");
        let required: &[(&[Placeholder], &str)] = match (self.guest, self.format) {
            (Guest::Image, ImageFormat::Raw) => &[image],
            (Guest::Image, _) => &[image, command_line],
            (Guest::Linux, _) => &[
                (&[Placeholder::Kernel], "{kernel}"),
                (&[Placeholder::Initramfs], "{initramfs}"),
                command_line,
            ],
        };
        for (places, names) in required {
            if !places.iter().any(|place| self.has(*place)) {
                return Err(InvalidCommand::Missing(names));
            }
        }
        Ok(())
    }

    /// Returns whether the command or the configuration file has a placeholder.
    fn has(&self, place: Placeholder) -> bool {
        let all = self.words.iter().chain(&self.config).flatten();
        all.into_iter()
            .any(|piece| *piece == Piece::Placeholder(place))
    }

    /// Returns the format of the image that it boots.
    pub fn format(&self) -> ImageFormat {
        if self.has(Placeholder::BzImage) {
            ImageFormat::Bzimage
        } else {
            self.format
        }
    }

    /// Returns whether it has a configuration file.
    pub fn has_config(&self) -> bool {
        self.config.is_some()
    }

    /// Returns the command as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the command with relative paths resolved in `directory`: of its program, and of files there that
    /// its words name, also within a word, as in `path=a/b,readonly=on`. A path has a slash.
    pub fn in_directory(&self, directory: &Path) -> Self {
        let mut resolved = self.clone();
        for (index, word) in resolved.words.iter_mut().enumerate() {
            for piece in word {
                if let Piece::Text(text) = piece {
                    *text = paths::resolve(text, directory, index == 0);
                }
            }
        }
        for file in &mut resolved.files {
            *file = directory.join(&*file).components().collect();
        }
        resolved
    }

    /// Returns the relative paths in the command that stay in their directory, whether files exist or not.
    pub fn relative_paths(&self) -> Vec<PathBuf> {
        let texts = self.texts().flat_map(paths::parts);
        let files = self.files.iter().map(|path| path.to_string_lossy());
        let files = files.filter_map(|path| paths::relative(&format!("./{path}")));
        texts.filter_map(paths::relative).chain(files).collect()
    }

    /// Returns the words, without placeholders.
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.words.iter().flatten().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Placeholder(_) => None,
        })
    }

    /// Returns the path of the program, found in $PATH if it has no directory.
    ///
    /// # Errors
    /// It does not exist, or is not executable.
    pub fn program(&self) -> Result<PathBuf, Error> {
        let Some([Piece::Text(name)]) = self.words.first().map(Vec::as_slice) else {
            return Err(none_given());
        };
        let missing = |reason: String| Error::unavailable(format!("{}: {reason}", self.source));
        if !name.contains('/') {
            return in_path(name)
                .ok_or_else(|| missing(format!("there is no program {name} in $PATH")));
        }
        let path = std::path::absolute(name).map_err(Error::file(name))?;
        if can_be_executed(&path) {
            Ok(path)
        } else {
            Err(missing(format!("{name} is not an executable file")))
        }
    }

    /// Returns the files that the command names by absolute paths, such as firmware, also within a word, as in
    /// `path=/a/b,readonly=on`, and those of its key `files`.
    pub fn files(&self) -> Vec<PathBuf> {
        // The first word is the program.
        let texts = self.texts().skip(1).flat_map(paths::parts);
        let paths = texts.map(PathBuf::from);
        let further = self.files.iter().flat_map(|path| paths::files_below(path));
        let named = paths.filter(|path| paths::is_ordinary_file(path));
        named.chain(further).collect()
    }
}

/// Splits a word at its placeholders `{name}`. Other braces are text.
fn pieces(word: &str) -> Result<Vec<Piece>, InvalidCommand> {
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
        let unknown = || InvalidCommand::Unknown(name.to_owned());
        let place = Placeholder::from_name(name).ok_or_else(unknown)?;
        push_text(&mut pieces, &mut text);
        pieces.push(Piece::Placeholder(place));
        rest = behind_place;
    }
    text.push_str(rest);
    // An empty word is an argument, too.
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

#[cfg(test)]
mod tests;
