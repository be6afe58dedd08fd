//! A program with arguments, environment and open files.

use super::divert::Diversion;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// A program to start.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program's file.
    pub program: PathBuf,
    /// Arguments after the program's name.
    pub arguments: Vec<OsString>,
    /// Environment variables besides `PATH`.
    pub environment: Vec<(String, OsString)>,
    /// Files passed as descriptors, from [`FIRST_FILE`].
    pub(super) files: Vec<Arc<File>>,
    pub(super) terminal: bool,
    pub(super) input: Option<Arc<File>>,
    pub(super) diversion: Option<Diversion>,
    pub(super) guard: Option<PathBuf>,
    pub(super) is_emulator: bool,
    pub(super) is_foreign: bool,
    pub(super) works_in_children: bool,
}

/// First descriptor after standard input, output, error and events.
const FIRST_FILE: usize = 4;

impl Command {
    /// Returns a command without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            files: Vec::new(),
            terminal: false,
            input: None,
            diversion: None,
            guard: None,
            is_emulator: false,
            is_foreign: false,
            works_in_children: false,
        }
    }

    /// Appends an argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Appends the space-separated words of `text` as arguments.
    pub fn words(mut self, text: &str) -> Self {
        self.arguments
            .extend(text.split_ascii_whitespace().map(OsString::from));
        self
    }

    /// Sets an environment variable. All others but `PATH` are removed.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Passes `file` and appends its path in `/proc/self/fd` as an argument.
    pub fn arg_file(mut self, file: Arc<File>) -> Self {
        let number = self.pass_file(file);
        self.arg(format!("/proc/self/fd/{number}"))
    }

    /// Passes `file` and returns the number of its descriptor.
    pub fn pass_file(&mut self, file: Arc<File>) -> usize {
        self.files.push(file);
        FIRST_FILE + self.files.len() - 1
    }

    /// Makes standard input a terminal without input.
    pub fn with_terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    /// Makes `file` standard input.
    pub fn with_input(mut self, file: Arc<File>) -> Self {
        self.input = Some(file);
        self
    }

    /// Diverts a part of standard output.
    pub fn divert(mut self, diversion: Option<Diversion>) -> Self {
        self.diversion = diversion;
        self
    }

    /// Starts `agent` as a guard that kills the process group if this process dies, for programs
    /// that start processes of their own.
    pub fn guarded_by(mut self, agent: impl Into<PathBuf>) -> Self {
        self.guard = Some(agent.into());
        self
    }

    /// Marks an emulator with a clock of its own: [`Limits::timeout`](crate::Limits::timeout) is CPU time
    /// then.
    pub fn as_emulator(mut self) -> Self {
        self.is_emulator = true;
        self
    }

    /// Marks a program whose children do its work: their CPU time is part of its own.
    pub fn with_children(mut self) -> Self {
        self.works_in_children = true;
        self
    }

    /// Marks a program of the user's: all processes that it starts are killed with it, also those that leave
    /// its process group.
    pub fn as_foreign(mut self) -> Self {
        self.is_foreign = true;
        self
    }

    /// Returns the program's name without its directory.
    pub fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}
