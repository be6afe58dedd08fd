//! Selection of a disk's engine.

use super::pool::Pool;
use super::uring::Uring;
use super::{DiskConfig, DiskError, DiskFile, Engine, Kind};
use crate::threads::Worker;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Starts an engine for `file` that waits for `bell`; returns it with its threads.
///
/// # Errors
/// The requested engine is not available.
pub fn start(
    wanted: &DiskConfig,
    name: &str,
    file: DiskFile,
    bell: BorrowedFd<'_>,
) -> Result<Started, DiskError> {
    if wanted.engine == Some(Kind::Pool) {
        return pool(name, file, bell.try_clone_to_owned()?);
    }
    match Uring::new(&file, bell) {
        Ok(ring) => Ok((Kind::Uring, Box::new(ring.working_on(file)), Vec::new())),
        Err(error) if wanted.engine.is_some() => Err(DiskError::NoUring(error)),
        Err(error) => {
            warn(name, &error);
            pool(name, file, bell.try_clone_to_owned()?)
        }
    }
}

pub type Started = (Kind, Box<dyn Engine>, Vec<Worker>);

fn pool(name: &str, file: DiskFile, bell: OwnedFd) -> Result<Started, DiskError> {
    let (pool, workers) = Pool::new(name, file, bell)?;
    Ok((Kind::Pool, Box::new(pool), workers))
}

fn warn(name: &str, error: &io::Error) {
    eprintln!("trapline-vmm: {name}: io_uring is not available ({error}); using threads");
}
