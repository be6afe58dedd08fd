//! Where raw observations are kept: one SQLite file.
//!
//! Each boot is written in one transaction as it completes, before anything is
//! computed from it. The rollback journal is used, not the write-ahead log:
//! between two boots the store is one file that can be copied or read on a
//! read-only medium, and after `kill -9` or a loss of power every finished boot
//! is still there, because the next one to open the file takes the unfinished
//! one back.
//!
//! ```no_run
//! # use trapline_store::{NewRun, Store};
//! # fn example(observation: &trapline_model::Observation) -> Result<(), trapline_store::StoreError> {
//! let mut store = Store::open("trapline.db".as_ref())?;
//! let run = store.begin_run(&NewRun { seed: 1, request: "env=host", ..NewRun::default() })?;
//! store.add_observation(run, observation)?;
//! store.finish_run(run)?;
//! assert_eq!(store.load(run)?.observations.len(), 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod builds;
mod error;
mod pack;
mod read;
mod schema;
mod write;

pub use error::{Problem, StoreError};
pub use schema::VERSION;

use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trapline_model::kernel_build::Build;
use trapline_model::{Contender, Observation};

/// How long to wait for another program that is writing to the same store.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open store.
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

/// Number of a run within its store, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub i64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is known of a run when it begins.
#[derive(Clone, Debug, Default)]
pub struct NewRun<'a> {
    /// The seed of its plan.
    pub seed: u64,
    /// What was asked for, as words of a command line.
    pub request: &'a str,
    /// The version of Trapline that runs it.
    pub version: &'a str,
    /// What is known of the host.
    pub facts: BTreeMap<String, String>,
    /// Which process adds to it.
    pub keeper: Option<&'a str>,
    /// The plan that it is of, as it was written.
    pub plan: Option<&'a str>,
}

/// A run, without its observations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// Its number.
    pub id: RunId,
    /// When it began, in milliseconds since 1970 (UTC).
    pub started_at: u64,
    /// When it was complete; `None` if it is going on or was interrupted.
    pub finished_at: Option<u64>,
    /// The seed of its plan.
    pub seed: u64,
    /// What was asked for, as words of a command line.
    pub request: String,
    /// The version of Trapline that ran it.
    pub version: String,
    /// What was known of the host.
    pub facts: BTreeMap<String, String>,
    /// How many boots of it are stored; each build of a kernel is one.
    pub boots: u64,
    /// Which process adds to it, or did before it ended; of older stores nothing is known.
    pub keeper: Option<String>,
    /// The plan that it is of, as it was written, if it is of one.
    pub plan: Option<String>,
}

/// A run with all that was observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The run itself.
    pub info: RunInfo,
    /// Its boots, in the order in which they were stored.
    pub observations: Vec<Observation>,
    /// Who was asked for and could not be booted, with reasons.
    pub skips: Vec<(Contender, String)>,
    /// Its builds of kernels, in the order in which they were stored.
    pub builds: Vec<Build>,
}

impl Store {
    /// Opens the store at `path`, and makes it, with the folders that lead to it,
    /// if there is none.
    ///
    /// # Errors
    /// See [`Problem`]; the error names the file and what to do.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_patiently(path, PATIENCE)
    }

    /// Like [`Self::open`], waiting at most `patience` for others, now and at
    /// every later call.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_patiently(path: &Path, patience: Duration) -> Result<Self, StoreError> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            std::fs::create_dir_all(folder)
                .map_err(|error| StoreError::new(path, Problem::Unwritable(error.to_string())))?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut store = Self::connect(path, flags, patience)?;
        store.attempt(schema::prepare)?;
        Ok(store)
    }

    /// Opens the store at `path` to read it; never makes one.
    ///
    /// # Errors
    /// [`Problem::Missing`], or as [`Self::open`].
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::new(path, Problem::Missing));
        }
        // To read and write where possible: what a killed writer left
        // unfinished has to be taken back. SQLite falls back to reading.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let mut store = Self::connect(path, flags, PATIENCE)?;
        store.attempt(schema::verify)?;
        Ok(store)
    }

    fn connect(path: &Path, flags: OpenFlags, patience: Duration) -> Result<Self, StoreError> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .and_then(|connection| connection.busy_timeout(patience).map(|()| connection))
            .map_err(|error| StoreError::new(path, error.into()))?;
        Ok(Self {
            connection,
            path: path.to_owned(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that a run begins.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn begin_run(&mut self, run: &NewRun<'_>) -> Result<RunId, StoreError> {
        self.attempt(|connection| write::begin_run(connection, run))
    }

    /// Stores all that a boot yielded, or nothing of it if that fails.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn add_observation(&mut self, run: RunId, seen: &Observation) -> Result<(), StoreError> {
        self.attempt(|connection| write::add_observation(connection, run, seen))
    }

    /// Stores why a contender that was asked for could not be booted.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn add_skip(
        &mut self,
        run: RunId,
        contender: &Contender,
        reason: &str,
    ) -> Result<(), StoreError> {
        self.attempt(|connection| write::add_skip(connection, run, contender, reason))
    }

    /// Stores what came of a build.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn add_build(&mut self, run: RunId, build: &Build) -> Result<(), StoreError> {
        self.attempt(|connection| builds::add(connection, run, build))
    }

    /// Which boots of a run there are: whose, and which of his.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn booted(&mut self, run: RunId) -> Result<Vec<(Contender, u32)>, StoreError> {
        self.attempt(|connection| read::booted(connection, run))
    }

    /// Lets `keeper` go on with an unfinished run that `before` kept; whether that was so. Of
    /// two who try, one succeeds.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn take_over(
        &mut self,
        run: RunId,
        before: Option<&str>,
        keeper: &str,
    ) -> Result<bool, StoreError> {
        self.attempt(|connection| write::take_over(connection, run, before, keeper))
    }

    /// Notes that a run is complete.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn finish_run(&mut self, run: RunId) -> Result<(), StoreError> {
        self.attempt(|connection| write::finish_run(connection, run))
    }

    /// Every run, oldest first.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn runs(&mut self) -> Result<Vec<RunInfo>, StoreError> {
        self.attempt(|connection| read::runs(connection))
    }

    /// The run that began last, if there is any.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn latest(&mut self) -> Result<Option<RunInfo>, StoreError> {
        Ok(self.runs()?.pop())
    }

    /// A run with all that was observed.
    ///
    /// # Errors
    /// [`Problem::NoSuchRun`], or see there.
    pub fn load(&mut self, run: RunId) -> Result<Run, StoreError> {
        self.attempt(|connection| read::load(connection, run))
    }

    fn attempt<T>(
        &mut self,
        action: impl FnOnce(&mut Connection) -> Result<T, Problem>,
    ) -> Result<T, StoreError> {
        action(&mut self.connection).map_err(|problem| StoreError::new(&self.path, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use trapline_model::{Clock, EnvironmentId};

    /// SQLite reports a full disk and a file at its greatest size alike.
    #[test]
    fn on_a_full_disk_finished_boots_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
        store
            .connection
            .pragma_update(None, "max_page_count", 80)
            .unwrap();
        let run = store.begin_run(&NewRun::default()).unwrap();
        let boot = Observation {
            environment: EnvironmentId::Host,
            variant: Default::default(),
            clock: Clock::Wall,
            replicate: 0,
            unit_per_tick: 1.0,
            operations: vec![],
            launches: vec![],
            facts: BTreeMap::new(),
            log: "x".repeat(10_000),
            problems: vec![],
        };
        let mut stored = 0;
        let error = loop {
            match store.add_observation(run, &boot) {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error.problem, Problem::Full), "{error:?}");
        assert!(stored > 5);
        assert_eq!(store.load(run).unwrap().observations.len(), stored);
    }
}
