//! Sockets of the ports: the switch listens or connects, and does so again when a connection has ended.

use crate::handle::Handle;
use crate::session;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time between attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

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

    fn next(&self) -> io::Result<UnixStream> {
        match self {
            Self::Listener(listener) => listener.accept().map(|(stream, _)| stream),
            Self::Path(path) => UnixStream::connect(path),
        }
    }
}

/// Serves one front end after the other. `report` gets what ended a connection.
pub fn serve(handle: &Arc<Handle>, port: usize, source: &Source, mut report: impl FnMut(String)) {
    loop {
        match source.next() {
            Ok(socket) => {
                if let Err(error) = session::serve(handle, port, socket) {
                    report(error.to_string());
                }
            }
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}
