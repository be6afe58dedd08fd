//! What can go wrong with a store, and what to do about it.

use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// A store could not be used.
#[derive(Debug, thiserror::Error)]
#[error("store {}: {problem}", path.display())]
pub struct StoreError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
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

/// What is wrong, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// There is no such file.
    #[error("there is no such file; `trapline run` makes one, --store FILE names another")]
    Missing,
    /// It cannot be made or written.
    #[error("it cannot be written ({0}); choose another place with --store FILE")]
    Unwritable(String),
    /// Another program holds it.
    #[error(
        "another program is using it; wait until that is done, or choose another with --store FILE"
    )]
    Locked,
    /// It is damaged, or it is no database at all.
    #[error(
        "it is damaged or not a store ({0}); move it away, or choose another with --store FILE"
    )]
    Corrupt(String),
    /// It is an SQLite database of some other program.
    #[error("it is a database of another program; choose another with --store FILE")]
    Foreign,
    /// A newer Trapline made it.
    #[error(
        "it is of format {found}, and this version knows formats up to {known}; \
         use a newer version, or choose another with --store FILE"
    )]
    Newer {
        /// The file's format.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// No room is left.
    #[error("the disk is full; all finished boots are safe; make room and run again")]
    Full,
    /// It has no run of this number.
    #[error("it has no run {0}; `trapline show --list` lists the runs it has")]
    NoSuchRun(i64),
    /// Anything else, in SQLite's words.
    #[error("{0}")]
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error::{
            FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType,
        };
        // Somebody has put into a column what does not belong there.
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
