//! A thread that says in a store, now and then, that the owner of a run still runs.

use crate::owner::{Owner, HEARTBEAT};
use crate::{write, RunId};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Limit for the lock of the process itself, which writes a boot within it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// A thread that runs until this is dropped.
pub struct Heartbeat {
    run: RunId,
    owner: String,
    /// Dropped first, which ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts a thread for a run of the store at `path`. Without threads there is none: then other hosts take the run for
    /// abandoned a minute after its start.
    pub fn start(path: &Path, run: RunId, owner: &Owner) -> Self {
        let (stop, stopped) = mpsc::channel();
        let (path, owner) = (path.to_owned(), owner.to_string());
        let of_thread = owner.clone();
        let beat = move || beat(&path, (run, &of_thread), &stopped);
        let thread = thread::Builder::new().spawn(beat);
        Self {
            run,
            owner,
            stop: Some(stop),
            thread: thread.ok(),
        }
    }

    /// Returns the run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Returns the text of its owner.
    pub fn owner(&self) -> &str {
        &self.owner
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Most runs end before the first heartbeat, and open the store once.
fn beat(path: &PathBuf, (run, owner): (RunId, &str), stopped: &Receiver<()>) {
    let mut connection = None;
    while stopped.recv_timeout(Duration::from_secs(HEARTBEAT)) == Err(RecvTimeoutError::Timeout) {
        if connection.is_none() {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            connection = Connection::open_with_flags(path, flags).ok();
        }
        // A store that cannot be written fails the run where a boot is added.
        if let Some(connection) = &mut connection {
            let _ = connection.busy_timeout(LOCK_TIMEOUT);
            let _ = write::beat(connection, run, owner);
        }
    }
}
