//! The interface of a disk's engines.

use trapline_monitor::virtio::block::{Order, Status};
use trapline_monitor::virtio::Memory;

/// Kind of engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// io_uring.
    Uring,
    /// Threads that make system calls.
    Pool,
}

/// Executes a disk's requests. Guest memory named by a request must stay mapped until its completion.
pub trait Engine: Send {
    /// Queues a request; it starts at the next [`Self::wait`].
    fn submit(&mut self, order: &Order<'_>, memory: &Memory);

    /// Waits until the doorbell rings or a request completes; does not block if `more` is set. Returns true if
    /// the doorbell rang.
    fn wait(&mut self, more: bool) -> bool;

    /// Passes completed requests to `landed`.
    fn reap(&mut self, landed: &mut dyn FnMut(u16, Status));
}
