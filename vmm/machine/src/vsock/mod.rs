//! Streams between guest and host programs.
//!
//! Host programs use Unix sockets, with Firecracker's convention: a program that connects to PATH and sends
//! `CONNECT 1024\n` reaches port 1024 of the guest, and receives `OK 1073741824\n` first (its own port). A guest
//! program that connects to port 80 of the host reaches the listener at `PATH_80`.
//!
//! One thread serves all connections. The set of events changes at each turn and is small, so `poll` is simpler
//! than keeping a second table in `epoll`.

mod caller;
mod host_streams;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::Spec;

use self::caller::{Caller, CallerRequest};
use self::host_streams::HostStreams;
use crate::poll;
use crate::virtio::Slot;
use crate::Failure;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use trapline_monitor::virtio::vsock::{Interest, Vsock, MAX};

/// Limit of programs that have connected without a request. Others wait in the listen queue.
const MAX_CALLERS: usize = 16;

/// Time after which a program without a request is dropped if another waits.
const CALLER_PATIENCE: Duration = Duration::from_secs(5);

/// The listening socket.
pub struct Listening {
    spec: Spec,
    listener: UnixListener,
}

impl Listening {
    /// Listens at the path of `spec`.
    ///
    /// # Errors
    /// The path is in use, or the host refuses.
    pub fn open(spec: &Spec) -> Result<Self, Failure> {
        let path = &spec.path;
        let output = |why: String| Failure::Host(format!("vsock {}: {why}", path.display()));
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                clear(path).map_err(|why| output(why.to_owned()))?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let listener = listener.map_err(|error| output(error.to_string()))?;
        listener
            .set_nonblocking(true)
            .map_err(|error| output(error.to_string()))?;
        Ok(Self {
            spec: spec.clone(),
            listener,
        })
    }

    /// Accepts the next connection.
    fn accept(&self) -> Option<UnixStream> {
        host_streams::accept(&self.listener)
    }
}

/// Removes a stale socket.
fn clear(path: &Path) -> Result<(), &'static str> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    if !is_socket {
        return Err("the file there is not a socket: remove it, or name another path");
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
pub fn serve(slot: &Slot<Vsock>, listening: &Listening) -> ! {
    let mut server = Server {
        slot,
        listening,
        callers: Vec::with_capacity(MAX_CALLERS),
        host_streams: HostStreams::new(&listening.spec, &slot.counters),
        interests: Vec::with_capacity(MAX),
        requests: Vec::with_capacity(FIRST_CALLER + MAX_CALLERS + MAX),
    };
    let mut more = false;
    loop {
        server.wait(more);
        slot.take_notification();
        if slot.with(Vsock::take_orphaned) {
            server.host_streams.close_all();
        }
        server.accept_callers();
        server.read_requests();
        server.report_ready();
        let host_streams = &mut server.host_streams;
        more = slot.serve(|vsock, rings, memory| {
            let heard = vsock.transmit(rings, memory, host_streams)?;
            let said = vsock.receive(rings, memory, host_streams)?;
            Ok(heard.and(said))
        });
    }
}

/// State of the thread.
struct Server<'a> {
    slot: &'a Slot<Vsock>,
    listening: &'a Listening,
    /// Callers, the oldest first.
    callers: Vec<Caller>,
    host_streams: HostStreams<'a>,
    /// Events awaited by connections, in the order of the last requests.
    interests: Vec<Interest>,
    /// Poll requests: doorbell, listener, callers, connections.
    requests: Vec<libc::pollfd>,
}

const LISTENER: usize = 1;
const FIRST_CALLER: usize = 2;

impl Server<'_> {
    /// Waits for an event; does not block if `more` is set.
    fn wait(&mut self, more: bool) {
        self.requests.clear();
        self.ask(self.slot.bell().as_raw_fd(), libc::POLLIN);
        let left = self.time_until_room();
        // `poll` ignores negative descriptors.
        let listener = match left {
            None => self.listening.listener.as_raw_fd(),
            Some(_) => -1,
        };
        self.ask(listener, libc::POLLIN);
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
            // `poll` reports a hangup even without requested events.
            let requested = Some(events).filter(|events| *events != 0);
            // `poll` ignores negative descriptors.
            let fd = requested.and_then(|_| self.host_streams.descriptor(key));
            self.ask(fd.unwrap_or(-1), events);
        }
        let (first, count) = (self.requests.as_mut_ptr(), self.requests.len());
        let timeout = match left {
            _ if more => 0,
            None => -1,
            Some(left) => left.as_millis() as libc::c_int + 1,
        };
        // SAFETY: the vector has the length that is passed.
        let answered = unsafe { libc::poll(first, count as libc::nfds_t, timeout) };
        if answered <= 0 {
            self.requests
                .iter_mut()
                .for_each(|request| request.revents = 0);
        }
    }

    fn ask(&mut self, fd: i32, events: libc::c_short) {
        self.requests.push(poll::request(fd, events));
    }

    fn is_ready(&self, number: usize) -> bool {
        self.requests
            .get(number)
            .is_some_and(|request| request.revents != 0)
    }

    /// Reads requests of callers, and connects or drops them.
    fn read_requests(&mut self) {
        // Backwards, so that the remaining ones keep their numbers.
        for number in (0..self.callers.len()).rev() {
            match self.callers[number].read_request() {
                CallerRequest::Incomplete => {}
                CallerRequest::Malformed => drop(self.callers.remove(number)),
                CallerRequest::Connect(port) => {
                    let caller = self.callers.remove(number);
                    if let Some(key) = self.slot.with(|vsock| vsock.open(port)) {
                        self.host_streams.add(key, caller.into_stream());
                    }
                }
            }
        }
    }

    fn accept_callers(&mut self) {
        if !self.is_ready(LISTENER) {
            return;
        }
        while self.time_until_room().is_none() {
            let Some(stream) = self.listening.accept() else {
                return;
            };
            if self.callers.len() == MAX_CALLERS {
                self.callers.remove(0);
            }
            self.callers.push(Caller::new(stream));
        }
    }

    /// Returns the time until the oldest caller may be dropped for another, if there is no room before.
    fn time_until_room(&self) -> Option<Duration> {
        let oldest = self.callers.first()?;
        let left = CALLER_PATIENCE.saturating_sub(oldest.age());
        (self.callers.len() == MAX_CALLERS && !left.is_zero()).then_some(left)
    }

    /// Reports ready connections to the device.
    fn report_ready(&mut self) {
        let first = self.requests.len() - self.interests.len();
        for (number, interest) in self.interests.iter().enumerate() {
            if !self.is_ready(first + number) {
                continue;
            }
            let host_streams = &mut self.host_streams;
            self.slot.with(|vsock| {
                if interest.bytes {
                    vsock.readable(interest.key);
                }
                if interest.room {
                    vsock.writable(interest.key, host_streams);
                }
            });
        }
    }
}
