//! Sockets of the ports: the switch listens or connects, and serves one VMM after the other.

use crate::handle::Handle;
use crate::report::Reporter;
use crate::session;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, SyncSender, TrySendError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time between attempts.
const RETRY: Duration = Duration::from_millis(20);

/// Time that a VMM waits for the end of the one before, which may have been killed just now.
const GRACE: Duration = Duration::from_secs(1);

/// A port's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The VMM connects.
    Listen(PathBuf),
    /// The VMM listens.
    Connect(PathBuf),
}

impl Address {
    /// Returns the path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Listen(path) | Self::Connect(path) => path,
        }
    }
}

/// A socket that connections come from.
pub enum Source {
    /// A listening socket.
    Listener(UnixListener),
    /// The path of one.
    Path(PathBuf),
}

impl Source {
    /// Opens a port's socket. One that an ended switch has left is replaced.
    ///
    /// # Errors
    /// The path has something else, or a switch that runs.
    pub fn open(address: &Address) -> io::Result<Self> {
        let path = match address {
            Address::Connect(path) => return Ok(Self::Path(path.clone())),
            Address::Listen(path) => path,
        };
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
        if is_socket {
            match UnixStream::connect(path) {
                Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
                Err(_) => std::fs::remove_file(path)?,
            }
        }
        UnixListener::bind(path).map(Self::Listener)
    }
}

/// Serves a port on threads of its own: one front end after the other. Messages have the name of the port.
pub fn start(handle: &Arc<Handle>, port: usize, source: Source, name: &str) {
    let handle = Arc::clone(handle);
    let mut reporter = Reporter::new(name.to_owned());
    let serve = move |socket| {
        if let Err(error) = session::serve(&handle, port, socket) {
            reporter.report(&error.to_string());
        }
    };
    match source {
        Source::Path(path) => drop(thread::spawn(move || connect(&path, serve))),
        Source::Listener(listener) => {
            let (sender, sockets) = sync_channel(0);
            let mut reporter = Reporter::new(name.to_owned());
            thread::spawn(move || accept(&listener, &sender, &mut reporter));
            thread::spawn(move || sockets.into_iter().for_each(serve));
        }
    }
}

/// Connects again and again.
fn connect(path: &Path, mut serve: impl FnMut(UnixStream)) {
    loop {
        match UnixStream::connect(path) {
            Ok(socket) => serve(socket),
            Err(_) => thread::sleep(RETRY),
        }
    }
}

/// Hands connections over to the thread that serves them. While it serves one, others are refused: they would wait for an answer
/// that does not come.
fn accept(listener: &UnixListener, server: &SyncSender<UnixStream>, reporter: &mut Reporter) {
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                if !hand_over(server, socket) {
                    reporter.report("a second VMM was refused: the first one is still connected");
                }
            }
            Err(_) => thread::sleep(RETRY),
        }
    }
}

/// Hands a connection over. Returns false if the one before does not end in time.
fn hand_over(server: &SyncSender<UnixStream>, socket: UnixStream) -> bool {
    let (start, mut socket) = (Instant::now(), socket);
    loop {
        match server.try_send(socket) {
            Ok(()) => return true,
            Err(TrySendError::Full(back)) if start.elapsed() < GRACE => socket = back,
            Err(_) => return false,
        }
        thread::sleep(RETRY);
    }
}
