//! Streams between programs of a guest and programs of the host.
//!
//! Programs of the host are behind Unix sockets, by the convention of Firecracker, which
//! others have taken over and which tools know: who connects to PATH and says `CONNECT
//! 1024\n` is connected to what listens at port 1024 of the guest, and hears `OK
//! 1073741824\n` first (the number is the port at his own end). A program of the guest that
//! connects to port 80 of the host is connected to who listens at `PATH_80`.
//!
//! One thread serves all of it. What each connection waits for changes with every turn, and
//! the table of them is short: so it asks the kernel about all of them (poll) instead of
//! keeping a second table in the kernel (epoll).

mod caller;
mod programs;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::Spec;

use self::caller::{Caller, Words};
use self::programs::Programs;
use crate::virtio::Slot;
use crate::Failure;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use trapline_monitor::virtio::vsock::{Interest, Vsock, MOST};

/// Programs that have connected, and have not said what to, at the most: who has been silent
/// for longest goes when another comes.
const MOST_CALLERS: usize = 16;

/// The end of all this on the host.
pub struct Door {
    spec: Spec,
    listener: UnixListener,
}

impl Door {
    /// Listens at the path that `spec` says.
    ///
    /// # Errors
    /// Something is there that is in use, or that nobody could listen at; or the host refuses.
    pub fn open(spec: &Spec) -> Result<Self, Failure> {
        let path = &spec.path;
        let told = |why: String| Failure::Host(format!("vsock {}: {why}", path.display()));
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                clear(path).map_err(|why| told(why.to_owned()))?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let listener = listener.map_err(|error| told(error.to_string()))?;
        listener
            .set_nonblocking(true)
            .map_err(|error| told(error.to_string()))?;
        Ok(Self {
            spec: spec.clone(),
            listener,
        })
    }

    /// The next program that has connected.
    fn accept(&self) -> Option<UnixStream> {
        programs::accept(&self.listener)
    }
}

/// Removes a socket that a VMM has left there.
fn clear(path: &Path) -> Result<(), &'static str> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    if !is_socket {
        return Err("there is a file that is no socket: remove it, or name another path");
    }
    let refused = UnixStream::connect(path).map_err(|error| error.kind());
    match refused {
        Err(ErrorKind::ConnectionRefused) => {
            std::fs::remove_file(path).map_err(|_| "a socket is left there: remove it")
        }
        _ => Err("another program listens there: end that, or name another path"),
    }
}

/// Serves the device in `slot` until the process ends.
pub fn serve(slot: &Slot<Vsock>, door: &Door) {
    let mut hall = Hall {
        slot,
        door,
        callers: Vec::with_capacity(MOST_CALLERS),
        programs: Programs::new(&door.spec, &slot.counters),
        interests: Vec::with_capacity(MOST),
        requests: Vec::with_capacity(FIRST_CALLER + MOST_CALLERS + MOST),
    };
    let mut more = false;
    loop {
        hall.wait(more);
        slot.heard();
        if slot.with(Vsock::takes_leave) {
            hall.programs.close_all();
        }
        hall.let_in();
        hall.hear_callers();
        hall.pass_on();
        let programs = &mut hall.programs;
        more = slot.serve(|vsock, rings, memory| {
            let heard = vsock.transmit(rings, memory, programs)?;
            let said = vsock.receive(rings, memory, programs)?;
            Ok(heard.and(said))
        });
    }
}

/// Where the thread stands: between the guest, the door and the programs.
struct Hall<'a> {
    slot: &'a Slot<Vsock>,
    door: &'a Door,
    callers: Vec<Caller>,
    programs: Programs<'a>,
    /// What connections wait for, in the order of the last requests.
    interests: Vec<Interest>,
    /// What the kernel is asked about: bell, door, callers, connections.
    requests: Vec<libc::pollfd>,
}

const DOOR: usize = 1;
const FIRST_CALLER: usize = 2;

impl Hall<'_> {
    /// Until something happens, or not at all if there is more to be done.
    fn wait(&mut self, more: bool) {
        self.requests.clear();
        self.ask(self.slot.bell().as_raw_fd(), libc::POLLIN);
        self.ask(self.door.listener.as_raw_fd(), libc::POLLIN);
        for number in 0..self.callers.len() {
            self.ask(self.callers[number].as_raw_fd(), libc::POLLIN);
        }
        self.interests.clear();
        let interests = &mut self.interests;
        self.slot.with(|vsock| interests.extend(vsock.interests()));
        for number in 0..self.interests.len() {
            let Interest { key, bytes, room } = self.interests[number];
            let events =
                if bytes { libc::POLLIN } else { 0 } | if room { libc::POLLOUT } else { 0 };
            // Asked about nothing, the kernel would still tell that a program is gone.
            let wanted = Some(events).filter(|events| *events != 0);
            // The kernel passes over a negative descriptor.
            let fd = wanted.and_then(|_| self.programs.descriptor(key));
            self.ask(fd.unwrap_or(-1), events);
        }
        let (first, count) = (self.requests.as_mut_ptr(), self.requests.len());
        let timeout = if more { 0 } else { -1 };
        // SAFETY: as many requests are passed as are there.
        let answered = unsafe { libc::poll(first, count as libc::nfds_t, timeout) };
        if answered <= 0 {
            self.requests
                .iter_mut()
                .for_each(|request| request.revents = 0);
        }
    }

    fn ask(&mut self, fd: i32, events: libc::c_short) {
        self.requests.push(libc::pollfd {
            fd,
            events,
            revents: 0,
        });
    }

    fn is_ready(&self, number: usize) -> bool {
        self.requests
            .get(number)
            .is_some_and(|request| request.revents != 0)
    }

    /// Reads what callers have said; who has said what he wants is connected or sent away.
    fn hear_callers(&mut self) {
        // From the last to the first, so that those that stay keep their place.
        for number in (0..self.callers.len()).rev() {
            match self.callers[number].hear() {
                Words::Incomplete => {}
                Words::Nonsense => drop(self.callers.swap_remove(number)),
                Words::Connect(port) => {
                    let caller = self.callers.swap_remove(number);
                    if let Some(key) = self.slot.with(|vsock| vsock.open(port)) {
                        self.programs.add(key, caller.into_stream());
                    }
                }
            }
        }
    }

    fn let_in(&mut self) {
        if !self.is_ready(DOOR) {
            return;
        }
        for _ in 0..MOST_CALLERS {
            let Some(stream) = self.door.accept() else {
                return;
            };
            if self.callers.len() == MOST_CALLERS {
                self.callers.remove(0);
            }
            self.callers.push(Caller::new(stream));
        }
    }

    /// Tells the device which connections got what they waited for.
    fn pass_on(&mut self) {
        let first = self.requests.len() - self.interests.len();
        for (number, interest) in self.interests.iter().enumerate() {
            if !self.is_ready(first + number) {
                continue;
            }
            let programs = &mut self.programs;
            self.slot.with(|vsock| {
                if interest.bytes {
                    vsock.readable(interest.key);
                }
                if interest.room {
                    vsock.writable(interest.key, programs);
                }
            });
        }
    }
}
