//! Control socket (docs/boot.md): one command per line, one line of JSON per answer.
//!
//! The number of clients and the length of a line are bounded. A client that does not read its answers is disconnected, and
//! so is the one that was idle longest when another connects.

use super::{statistics, Common};
use crate::{Failure, StopReason};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

/// Greeting with the protocol version.
const GREETING: &str = "{\"trapline-vmm\":\"api\",\"version\":1}";

/// Limit of clients.
const MAX: usize = 4;
/// Longest command.
const LONGEST: usize = 64;

/// The socket and its clients.
pub struct Api {
    listener: UnixListener,
    peers: Vec<Peer>,
}

struct Peer {
    stream: File,
    line: Vec<u8>,
    /// Time of its last bytes, or of its connection.
    active: Instant,
}

impl Api {
    /// Creates a socket at `path` with mode 0600; replaces a stale one.
    ///
    /// # Errors
    /// The path is in use.
    pub fn bind(path: &Path) -> Result<Self, Failure> {
        let failure = |source| Failure::Api {
            path: path.to_owned(),
            source,
        };
        remove_stale(path).map_err(failure)?;
        // SAFETY: sets the umask; no other thread creates files yet.
        let before = unsafe { libc::umask(0o177) };
        let listener = UnixListener::bind(path);
        // SAFETY: as above.
        unsafe { libc::umask(before) };
        let listener = listener.map_err(failure)?;
        listener.set_nonblocking(true).map_err(failure)?;
        Ok(Self {
            listener,
            peers: Vec::with_capacity(MAX),
        })
    }

    /// Returns the descriptors to poll before [`Self::serve`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let peers = self.peers.iter().map(|peer| peer.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(peers)
    }

    /// Answers commands, then accepts a client.
    pub(super) fn serve(&mut self, common: &Common) {
        self.peers.retain_mut(|peer| peer.serve(common));
        if let Some(peer) = accept(&self.listener) {
            if self.peers.len() == MAX {
                self.evict();
            }
            self.peers.push(peer);
        }
    }

    /// Disconnects the client that has been idle longest.
    fn evict(&mut self) {
        let numbers = 0..self.peers.len();
        if let Some(number) = numbers.min_by_key(|number| self.peers[*number].active) {
            let mut peer = self.peers.swap_remove(number);
            peer.say(&refusal("disconnected: more clients than the limit"));
        }
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::other("not a socket"))
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::other("in use by another process")),
        Err(_) => fs::remove_file(path),
    }
}

/// Accepts a client, if one waits and has not already disconnected.
fn accept(listener: &UnixListener) -> Option<Peer> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the address is not requested, so no memory is written.
    let fd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            flags,
        )
    };
    if fd < 0 {
        return None;
    }
    let mut peer = Peer {
        // SAFETY: the descriptor is new and owned by nothing else.
        stream: unsafe { File::from_raw_fd(fd) },
        line: Vec::with_capacity(LONGEST),
        active: Instant::now(),
    };
    peer.say(GREETING).then_some(peer)
}

impl Peer {
    /// Returns false to disconnect the client.
    fn serve(&mut self, common: &Common) -> bool {
        let mut bytes = [0; LONGEST];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.active = Instant::now();
                bytes[..count].iter().all(|byte| self.take(*byte, common))
            }
            Err(why) => matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn take(&mut self, byte: u8, common: &Common) -> bool {
        if byte != b'\n' {
            self.line.push(byte);
            return self.line.len() < LONGEST || {
                self.say(&refusal("the command is too long"));
                false
            };
        }
        let line = std::mem::take(&mut self.line);
        let command = String::from_utf8_lossy(&line);
        let answer = answer(command.trim(), common);
        self.say(&answer)
    }

    fn say(&mut self, line: &str) -> bool {
        let line = format!("{line}\n");
        self.stream.write(line.as_bytes()).ok() == Some(line.len())
    }
}

fn answer(command: &str, common: &Common) -> String {
    const OK: &str = "{\"ok\":true}";
    match command {
        "pause" if common.gate.close() => OK.to_owned(),
        "pause" => refusal("a vCPU has not paused in time"),
        "resume" => {
            common.gate.open();
            OK.to_owned()
        }
        "statistics" => statistics::line(common),
        "button" => match common.button.trigger() {
            Ok(()) => OK.to_owned(),
            Err(_) => refusal("the power button interrupt failed"),
        },
        "stop" => common.end(Ok(StopReason::UserRequest)),
        _ => refusal("unknown command; commands: pause, resume, statistics, button, stop"),
    }
}

fn refusal(why: &str) -> String {
    format!("{{\"ok\":false,\"error\":\"{why}\"}}")
}
