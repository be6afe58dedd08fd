//! Who does a disk's work.

use super::pool::Pool;
use super::uring::Uring;
use super::{BadDisk, DiskFile, Wanted};
use crate::linux::Worker;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use trapline_monitor::virtio::block::{Order, Status};
use trapline_monitor::virtio::Memory;

/// A way to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's rings.
    Uring,
    /// Threads that make system calls.
    Pool,
}

/// What a disk's thread asks of whoever does the work. Guest memory that orders name has to stay
/// until they have landed.
pub trait Engine: Send {
    /// Takes an order; it begins at the next [`Self::wait`].
    fn submit(&mut self, order: &Order<'_>, memory: &Memory);

    /// Waits until the bell has rung, which is told, or an order has landed; not at all if there
    /// is `more` to be done.
    fn wait(&mut self, more: bool) -> bool;

    /// Tells of orders that have landed.
    fn reap(&mut self, landed: &mut dyn FnMut(u16, Status));
}

/// What works on `file`, waits for `bell`, and the threads that it needs.
///
/// # Errors
/// What was asked for is not to be had.
pub fn start(
    wanted: &Wanted,
    name: &str,
    file: DiskFile,
    bell: BorrowedFd<'_>,
) -> Result<Started, BadDisk> {
    if wanted.engine == Some(Kind::Pool) {
        return pool(name, file, bell.try_clone_to_owned()?);
    }
    match Uring::new(&file, bell) {
        Ok(ring) => Ok((Kind::Uring, Box::new(ring.working_on(file)), Vec::new())),
        Err(error) if wanted.engine.is_some() => Err(BadDisk::NoUring(error)),
        Err(error) => {
            tell(name, &error);
            pool(name, file, bell.try_clone_to_owned()?)
        }
    }
}

pub type Started = (Kind, Box<dyn Engine>, Vec<Worker>);

fn pool(name: &str, file: DiskFile, bell: OwnedFd) -> Result<Started, BadDisk> {
    let (pool, workers) = Pool::new(name, file, bell)?;
    Ok((Kind::Pool, Box::new(pool), workers))
}

fn tell(name: &str, error: &io::Error) {
    eprintln!("trapline-vmm: {name}: no io_uring here ({error}), so threads do its work");
}
