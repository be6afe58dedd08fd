//! The socket over which a machine is asked and told (docs/boot.md): lines of one command, and
//! for each of them a line of JSON.
//!
//! Few may listen at once, a line is short, and who does not read what it is told is shut
//! out: nothing here grows, and nobody is waited for.

use super::{statistics, Common};
use crate::{Ending, Failure};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// The version of all that is said here.
const GREETING: &str = "{\"trapline-vmm\":\"api\",\"version\":1}";

/// How many may be connected at once.
const MOST: usize = 4;
/// The longest command.
const LONGEST: usize = 64;

/// The socket, and who is connected.
pub struct Api {
    listener: UnixListener,
    peers: Vec<Peer>,
}

struct Peer {
    stream: File,
    line: Vec<u8>,
}

impl Api {
    /// A socket at `path`, for this user alone. One that nobody listens at any more is
    /// replaced.
    ///
    /// # Errors
    /// Something else is there, or a machine that lives.
    pub fn bind(path: &Path) -> Result<Self, Failure> {
        let failure = |source| Failure::Api {
            path: path.to_owned(),
            source,
        };
        remove_stale(path).map_err(failure)?;
        // SAFETY: sets a number of this process, which has no other thread yet that makes
        // files.
        let before = unsafe { libc::umask(0o177) };
        let listener = UnixListener::bind(path);
        // SAFETY: as above.
        unsafe { libc::umask(before) };
        let listener = listener.map_err(failure)?;
        listener.set_nonblocking(true).map_err(failure)?;
        Ok(Self {
            listener,
            peers: Vec::with_capacity(MOST),
        })
    }

    /// What to wait for; then call [`Self::serve`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listener = (self.peers.len() < MOST).then(|| self.listener.as_fd());
        let peers = self.peers.iter().map(|peer| peer.stream.as_fd());
        listener.into_iter().chain(peers)
    }

    /// Lets in who has come, and answers.
    pub(super) fn serve(&mut self, common: &Common) {
        while self.peers.len() < MOST {
            match accept(&self.listener) {
                Some(peer) => self.peers.extend(peer),
                None => break,
            }
        }
        self.peers.retain_mut(|peer| peer.serve(common));
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::other("there is something else than a socket"))
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::other("a machine listens there already")),
        Err(_) => fs::remove_file(path),
    }
}

/// Who has come, greeted; `Some(None)` if they have gone again.
fn accept(listener: &UnixListener) -> Option<Option<Peer>> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: nobody asks for the address, so that no memory is written.
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
        // SAFETY: the descriptor is new, and nobody else's.
        stream: unsafe { File::from_raw_fd(fd) },
        line: Vec::with_capacity(LONGEST),
    };
    Some(peer.say(GREETING).then_some(peer))
}

impl Peer {
    /// False if it has gone, or misbehaved.
    fn serve(&mut self, common: &Common) -> bool {
        let mut bytes = [0; LONGEST];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => bytes[..count].iter().all(|byte| self.take(*byte, common)),
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
        "pause" => refusal("a vCPU still waits for its console to be read"),
        "resume" => {
            common.gate.open();
            OK.to_owned()
        }
        "statistics" => statistics::line(common),
        "button" => match common.button.trigger() {
            Ok(()) => OK.to_owned(),
            Err(_) => refusal("the power button could not be pressed"),
        },
        "stop" => common.stop(Ending::Asked),
        _ => refusal("there are pause, resume, statistics, button and stop"),
    }
}

fn refusal(why: &str) -> String {
    format!("{{\"ok\":false,\"error\":\"{why}\"}}")
}
