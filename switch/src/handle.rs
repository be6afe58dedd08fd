//! Access to the engine for other threads: they send commands, which it executes between two batches.

use crate::counters::Counters;
use crate::mirror::Mirror;
use crate::notify::Notifier;
use crate::port::Active;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

/// Positions of the queues of a port that was stopped: number and base.
pub type Bases = Vec<(usize, u32)>;

/// A change of ports, which the engine makes.
pub(crate) enum Command {
    /// A port, its queues, and whether its VMM has just connected.
    Attach(usize, Box<Active>, bool),
    Detach(usize, SyncSender<Bases>),
}

/// Access to the engine for other threads.
pub struct Handle {
    pub(crate) commands: Mutex<Vec<Command>>,
    pub(crate) is_pending: AtomicBool,
    /// Event that wakes the engine.
    pub(crate) wake: File,
    /// Notifies the guests.
    pub notifier: Notifier,
    /// Counters of each port.
    pub counters: Vec<Counters>,
    /// Copies of the frames of a port.
    pub mirror: Option<Mirror>,
}

fn event() -> io::Result<File> {
    // SAFETY: returns a descriptor without another owner, or a negative number.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: see above.
        fd => Ok(unsafe { File::from_raw_fd(fd) }),
    }
}

impl Handle {
    /// Creates the handle of an engine with a number of ports, one of which may be mirrored.
    ///
    /// # Errors
    /// The kernel refuses an event, or asynchronous requests.
    pub fn new(ports: usize, mirror: Option<Mirror>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            commands: Mutex::default(),
            is_pending: AtomicBool::new(false),
            wake: event()?,
            notifier: Notifier::new()?,
            counters: (0..ports).map(|_| Counters::default()).collect(),
            mirror,
        }))
    }

    fn send(&self, command: Command) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.push(command);
        drop(commands);
        self.wake();
    }

    fn wake(&self) {
        self.is_pending.store(true, Ordering::Release);
        let _full = (&self.wake).write(&1_u64.to_ne_bytes());
    }

    /// Starts a port. What is known of it is forgotten if its VMM has just connected.
    pub fn attach(&self, port: usize, active: Active, is_new: bool) {
        self.send(Command::Attach(port, Box::new(active), is_new));
    }

    /// Stops a port. On return nothing uses its memory. Returns where its queues continue.
    pub fn detach(&self, port: usize) -> Bases {
        let (reply, bases) = sync_channel(1);
        self.send(Command::Detach(port, reply));
        // Without an engine nothing is attached.
        bases.recv().unwrap_or_default()
    }
}
