//! Store of raw observations: one SQLite file.
//!
//! Each boot is written in one transaction as it completes, before anything is computed from it. The store
//! uses the rollback journal, not the write-ahead log: between two boots it is one file that can be copied
//! or read on a read-only medium. After `kill -9` or a loss of power every finished boot is still there;
//! the next process to open the file rolls the unfinished one back.
//!
//! ```no_run
//! # use trapline_store::{NewRun, Store};
//! # fn example(observation: &trapline_model::Observation) -> Result<(), trapline_store::StoreError> {
//! let mut store = Store::open("trapline.db".as_ref())?;
//! let run = store.begin_run(&NewRun { seed: 1, ..NewRun::default() })?;
//! store.add_observation(run, observation)?;
//! store.finish_run(run)?;
//! assert_eq!(store.load(run)?.observations.len(), 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod definitions;
mod earlier;
mod error;
mod heartbeat;
mod merge;
mod owner;
mod pack;
mod packets;
mod read;
mod rows;
mod schema;
mod settings;
mod write;

pub use error::{Problem, StoreError};
pub use merge::{Merged, NotMergeable, MERGED};
pub use owner::{Owner, ALIVE};
pub use schema::VERSION;

use heartbeat::Heartbeat;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trapline_model::{time, Config, Host, Observation, RecordedRequest};

/// Timeout for the lock of another process that writes to the same store.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Copies all pages of a store at once (`sqlite3_backup_step`).
const ALL_PAGES: i32 = -1;

/// An open store.
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// Device and inode of the file that is open; unknown until it was created.
    file: Option<(u64, u64)>,
    /// Heartbeat of the run that this process adds to.
    heartbeat: Option<Heartbeat>,
}

/// Number of a run within its store, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub i64);

impl RunId {
    /// A run that is in no store.
    pub const UNSTORED: Self = Self(0);
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A run at its start.
#[derive(Clone, Debug, Default)]
pub struct NewRun<'a> {
    /// Seed of the plan.
    pub seed: u64,
    /// Request.
    pub request: RecordedRequest,
    /// Version of Trapline.
    pub version: &'a str,
    /// Facts of the host.
    pub facts: BTreeMap<String, String>,
    /// The process that adds to the run.
    pub owner: Option<&'a Owner>,
    /// A random identity.
    pub uuid: &'a str,
    /// The host of this process.
    pub host: Option<&'a Host>,
    /// Text of the plan file, if there is one.
    pub plan: Option<&'a str>,
}

/// A run, without its observations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunInfo {
    /// Number of the run.
    pub id: RunId,
    /// Start, in milliseconds since 1970 (UTC).
    pub started_at: u64,
    /// End; `None` if the run is in progress or was interrupted.
    pub finished_at: Option<u64>,
    /// Seed of the plan.
    pub seed: u64,
    /// Request.
    pub request: RecordedRequest,
    /// Version of Trapline.
    pub version: String,
    /// Facts of the host.
    pub facts: BTreeMap<String, String>,
    /// Number of stored boots.
    pub boots: u64,
    /// The process that last added to the run, as the text of an [`Owner`]; `None` in formats 1 to 3.
    pub owner: Option<String>,
    /// When that process last said that it still ran, in milliseconds since 1970; `None` before format 34.
    pub heartbeat: Option<u64>,
    /// A random identity; empty before format 34, and of merged runs.
    pub uuid: String,
    /// Text of the plan file, if there is one.
    pub plan: Option<String>,
}

/// A run with its observations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The run itself.
    pub info: RunInfo,
    /// Boots, in the order in which they were stored.
    pub observations: Vec<Observation>,
    /// Requested configurations that could not be booted, with reasons.
    pub skips: Vec<(Config, String)>,
    /// Hosts of the boots, as far as they are known, by their ids.
    pub hosts: BTreeMap<String, Host>,
}

impl RunInfo {
    /// Returns whether the owner has said within the last minute that it still ran.
    pub fn has_heartbeat(&self) -> bool {
        self.heartbeat
            .is_some_and(|last| time::now().abs_diff(last) < ALIVE)
    }
}

/// Last bytes of a rollback journal that names a super-journal, a file of a transaction in several databases (SQLite,
/// "Database File Format", 3). SQLite deletes that file when it rolls the journal back, before a query.
const NAMES_ANOTHER: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Returns whether the journal that SQLite would roll back names another file. Ours are of one database.
fn has_foreign_journal(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut journal = real.into_os_string();
    journal.push("-journal");
    let read_end = || -> std::io::Result<[u8; NAMES_ANOTHER.len()]> {
        let mut file = std::fs::File::open(journal)?;
        file.seek(SeekFrom::End(-(NAMES_ANOTHER.len() as i64)))?;
        let mut end = [0; NAMES_ANOTHER.len()];
        file.read_exact(&mut end)?;
        Ok(end)
    };
    read_end().is_ok_and(|end| end == NAMES_ANOTHER)
}

/// Checks that an existing file is a regular file and readable, which SQLite would not report, and its journal.
fn check(path: &Path) -> Result<(), StoreError> {
    if has_foreign_journal(path) {
        return Err(StoreError::new(path, Problem::ForeignJournal));
    }
    let problem = match std::fs::metadata(path) {
        Ok(file) if !file.is_file() => Problem::NotAFile,
        Ok(_) => match std::fs::File::open(path) {
            Ok(_) => return Ok(()),
            Err(error) => Problem::Unreadable(error.to_string()),
        },
        // It does not exist, or opening it fails with the reason.
        Err(_) => return Ok(()),
    };
    Err(StoreError::new(path, problem))
}

/// Returns a copy of a store of an earlier format, migrated: in a temporary file, which SQLite keeps in memory while it is small.
fn migrated_copy(of: &Connection) -> Result<Connection, Problem> {
    let mut copy = Connection::open("")?;
    copy.pragma_update(None, "trusted_schema", false)?;
    match Backup::new(of, &mut copy)?.step(ALL_PAGES)? {
        StepResult::Done => {}
        // Another process writes to it.
        _ => return Err(Problem::Locked),
    }
    schema::migrate(&mut copy)?;
    Ok(copy)
}

impl Store {
    /// Opens the store at `path`. Creates it, with its parent directories, if it does not exist.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with_timeout(path, LOCK_TIMEOUT)
    }

    /// Like [`Self::open`], with a timeout for locks of other processes, now and at every later call.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn open_with_timeout(path: &Path, timeout: Duration) -> Result<Self, StoreError> {
        check(path)?;
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            let mut builder = std::fs::DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(|error| StoreError::new(path, Problem::Unwritable(error.to_string())))?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut store = Self::connect(path, flags, timeout)?;
        store.attempt(schema::prepare)?;
        Ok(store)
    }

    /// Opens the store at `path` for reading. Does not create or change it: one of an earlier format is migrated as a copy.
    ///
    /// # Errors
    /// [`Problem::Missing`], or as [`Self::open`].
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        check(path)?;
        if !path.exists() {
            return Err(StoreError::new(path, Problem::Missing));
        }
        // For writing if possible, to roll back the transaction of a killed writer. SQLite falls back to
        // reading.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let mut store = Self::connect(path, flags, LOCK_TIMEOUT)?;
        store.attempt(|connection| {
            schema::verify(connection)?;
            if schema::is_earlier(connection)? {
                *connection = migrated_copy(connection)?;
            }
            Ok(())
        })?;
        Ok(store)
    }

    fn connect(path: &Path, flags: OpenFlags, timeout: Duration) -> Result<Self, StoreError> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .and_then(|connection| {
                connection.busy_timeout(timeout)?;
                connection.pragma_update(None, "trusted_schema", false)?;
                Ok(connection)
            })
            .map_err(|error| StoreError::new(path, error.into()))?;
        Ok(Self {
            connection,
            path: path.to_owned(),
            file: None,
            heartbeat: None,
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a run. If it has an owner, other hosts see a heartbeat of it until it is finished or this is dropped.
    ///
    /// # Errors
    /// [`Problem::OtherHost`], or another [`Problem`].
    pub fn begin_run(&mut self, run: &NewRun<'_>) -> Result<RunId, StoreError> {
        let number = self.attempt(|connection| write::begin_run(connection, run))?;
        self.heartbeat = run
            .owner
            .map(|owner| Heartbeat::start(&self.path, number, owner));
        Ok(number)
    }

    /// Stores an observation completely, or nothing of it on error.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn add_observation(&mut self, run: RunId, seen: &Observation) -> Result<(), StoreError> {
        let owner = self.owner_of(run);
        self.attempt(|connection| write::add_observation(connection, run, seen, owner.as_deref()))
    }

    /// Stores the reason why a requested configuration could not be booted.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn add_skip(
        &mut self,
        run: RunId,
        config: &Config,
        reason: &str,
    ) -> Result<(), StoreError> {
        self.attempt(|connection| write::add_skip(connection, run, config, reason))
    }

    /// Returns the boots of a run: configuration and replicate.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn booted(&mut self, run: RunId) -> Result<Vec<(Config, u32)>, StoreError> {
        self.attempt(|connection| read::booted(connection, run))
    }

    /// Makes `owner` the owner of an unfinished run; false if `before` was not. Of two processes that try,
    /// one succeeds, whose heartbeat others see from then on.
    ///
    /// # Errors
    /// [`Problem::OtherHost`], or another [`Problem`].
    pub fn take_over(
        &mut self,
        run: RunId,
        before: Option<&str>,
        (owner, host): (&Owner, &Host),
    ) -> Result<bool, StoreError> {
        let taken =
            self.attempt(|connection| write::take_over(connection, run, before, owner, host))?;
        if taken {
            self.heartbeat = Some(Heartbeat::start(&self.path, run, owner));
        }
        Ok(taken)
    }

    /// Marks a run as complete.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn finish_run(&mut self, run: RunId) -> Result<(), StoreError> {
        let owner = self.owner_of(run);
        self.heartbeat = None;
        self.attempt(|connection| write::finish_run(connection, run, owner.as_deref()))
    }

    /// Adds a run that has the boots of others, each with a name: slices of a plan, or the same plan on several hosts. If one
    /// fails or does not belong to those before it, nothing is added.
    ///
    /// # Errors
    /// [`NotMergeable`], a [`Problem`] of this store, or an error of a source.
    pub fn merge<E: From<StoreError> + From<NotMergeable>>(
        &mut self,
        sources: impl IntoIterator<Item = Result<(String, Run), E>>,
    ) -> Result<Merged, E> {
        let path = self.path.clone();
        let failed = |problem: Problem| E::from(StoreError::new(&path, problem));
        let transaction = rows::begin(&mut self.connection).map_err(failed)?;
        let mut merge = merge::Merge::new(&transaction);
        for source in sources {
            let (name, run) = source?;
            if let Some(difference) = merge.add(&name, &run).map_err(failed)? {
                return Err(NotMergeable { name, difference }.into());
            }
        }
        let merged = merge.finish().map_err(failed)?;
        transaction.commit().map_err(|error| failed(error.into()))?;
        Ok(merged)
    }

    /// Returns all runs, the oldest first.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn runs(&mut self) -> Result<Vec<RunInfo>, StoreError> {
        self.attempt(|connection| read::runs(connection))
    }

    /// Returns the run that began last, of those with boots.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn latest(&mut self) -> Result<Option<RunInfo>, StoreError> {
        let mut runs = self.runs()?.into_iter();
        Ok(runs.rfind(|run| run.boots > 0))
    }

    /// Returns a run with its observations.
    ///
    /// # Errors
    /// [`Problem::NoSuchRun`], or another [`Problem`].
    pub fn load(&mut self, run: RunId) -> Result<Run, StoreError> {
        self.attempt(|connection| read::load(connection, run))
    }

    /// Returns the owner of a run that this process has begun or taken over, as the store must have it.
    fn owner_of(&self, run: RunId) -> Option<String> {
        let heartbeat = self.heartbeat.as_ref();
        let of_run = heartbeat.filter(|heartbeat| heartbeat.run() == run);
        of_run.map(|heartbeat| heartbeat.owner().to_owned())
    }

    fn attempt<T>(
        &mut self,
        action: impl FnOnce(&mut Connection) -> Result<T, Problem>,
    ) -> Result<T, StoreError> {
        let mut done = action(&mut self.connection);
        if self.has_vanished(done.is_ok()) {
            done = Err(Problem::Vanished);
        }
        done.map_err(|problem| StoreError::new(&self.path, problem))
    }

    /// Returns whether the path no longer names the open file: SQLite goes on with one that was removed, or calls it
    /// read-only. `is_used`: the file was read or written, so that it existed.
    fn has_vanished(&mut self, is_used: bool) -> bool {
        let now = std::fs::metadata(&self.path).ok();
        let now = now.map(|file| (file.dev(), file.ino()));
        match (self.file, now) {
            (None, None) => is_used,
            (None, Some(now)) => {
                self.file = Some(now);
                false
            }
            (before, now) => before != now,
        }
    }
}

impl Drop for Store {
    /// Ends the heartbeat of a run that is not finished, so that other hosts need not wait.
    fn drop(&mut self) {
        if let Some(heartbeat) = self.heartbeat.take() {
            let (run, owner) = (heartbeat.run(), heartbeat.owner().to_owned());
            drop(heartbeat);
            // Without it other hosts wait for a minute.
            let _ = write::end_heartbeat(&mut self.connection, run, &owner);
        }
    }
}

#[cfg(test)]
mod tests;
