//! Errors of a store, with remedies.

use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};
use trapline_model::line::one_line;

/// A store could not be used.
#[derive(Debug, thiserror::Error)]
#[error("store {}: {}", path.display(), one_line(problem.to_string()))]
pub struct StoreError {
    /// Path of the store.
    pub path: PathBuf,
    /// Cause.
    #[source]
    pub problem: Problem,
}

impl StoreError {
    pub(crate) fn new(path: &Path, problem: Problem) -> Self {
        Self {
            path: path.to_owned(),
            problem,
        }
    }
}

/// Cause of a [`StoreError`].
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file does not exist.
    #[error("there is no such file")]
    Missing,
    /// The file is empty: the program that made it was killed before it wrote to it.
    #[error("it has no run yet")]
    Empty,
    /// The file cannot be read.
    #[error("it cannot be read ({0})")]
    Unreadable(String),
    /// The path is a directory, a FIFO or a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// The file cannot be created or written.
    #[error("it cannot be written ({0})")]
    Unwritable(String),
    /// The file was removed or replaced while it was open.
    #[error("it was removed or replaced while this program used it, and what was added is lost")]
    Vanished,
    /// Another process holds the lock.
    #[error("another program is using it")]
    Locked,
    /// The file is damaged or not a database.
    #[error("it is damaged or not a store ({0})")]
    Corrupt(String),
    /// The file is an SQLite database of another program.
    #[error("it is a database of another program")]
    Foreign,
    /// The file has triggers, constraints, indices or the like of others.
    #[error("it has {0}, which no version of Trapline adds")]
    Unknown(String),
    /// The journal beside the file names another file, which SQLite would delete.
    #[error("its journal names another file to be removed, which no version of Trapline writes")]
    ForeignJournal,
    /// A later version of Trapline wrote the file.
    #[error("it is of format {found}, and this version reads formats up to {known}")]
    Newer {
        /// Format of the file.
        found: i64,
        /// Newest format of this version.
        known: i64,
    },
    /// The disk is full.
    #[error("the disk is full; all finished boots are stored")]
    Full,
    /// The store has no run of this number.
    #[error("it has no run {0}")]
    NoSuchRun(i64),
    /// A process of another host adds to a run of the store.
    #[error(
        "run {run} of it is being measured on another host ({host}), which said so {seconds} s ago"
    )]
    OtherHost {
        /// The run.
        run: i64,
        /// Name of the other host.
        host: String,
        /// Seconds since its last heartbeat.
        seconds: i64,
    },
    /// Another process is the owner of the run now.
    #[error("another process has taken over run {0} of it")]
    TakenOver(i64),
    /// The run has this boot.
    #[error("run {run} of it has boot {replicate} of {config} already")]
    Repeated {
        /// The run.
        run: i64,
        /// Configuration of the boot.
        config: String,
        /// Its number.
        replicate: u32,
    },
    /// Another error of SQLite.
    #[error("{0}")]
    Database(rusqlite::Error),
}

impl Problem {
    /// Returns the remedy, as an instruction to the user.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::Missing => "`trapline run` makes one, --store FILE names another",
            Self::Empty => "`trapline run` adds one, --store FILE names another",
            Self::Unreadable(_) => "make it readable, or choose another with --store FILE",
            Self::Unwritable(_) | Self::NotAFile => "choose another place with --store FILE",
            Self::Locked => "wait until that is done, or choose another with --store FILE",
            Self::Unknown(_) | Self::ForeignJournal => {
                "ask where it is from before you use it, or choose another with --store FILE"
            }
            Self::Corrupt(_) => "move it away, or choose another with --store FILE",
            Self::Foreign => "choose another with --store FILE",
            Self::Newer { .. } => "use a newer version, or choose another with --store FILE",
            Self::Vanished => "run again, and keep the file until the command ends",
            Self::Full => "make room and run again",
            Self::OtherHost { .. } => {
                "wait until that run ends, or give each host a store of its own: --store FILE"
            }
            Self::TakenOver(_) => "let one of them finish it",
            Self::Repeated { .. } => "run again: another process has added to the run",
            Self::NoSuchRun(_) => "`trapline show --list` lists the runs it has",
            Self::Database(_) => return None,
        })
    }
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error::{
            FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType,
        };
        // A value of an edited file.
        if matches!(
            error,
            FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..)
        ) {
            return Self::Corrupt(error.to_string());
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt(error.to_string())
            }
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                Self::Unwritable(error.to_string())
            }
            Some(ErrorCode::DiskFull) => Self::Full,
            _ => Self::Database(error),
        }
    }
}
