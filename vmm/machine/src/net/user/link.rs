//! The connection to the process that serves a card's queues: the front end of vhost-user.

use super::UserCard;
use crate::inherited::of_path;
use crate::virtio::Slot;
use crate::Failure;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use trapline_monitor::virtio::net::{FRAMES, PAIRS};
use trapline_monitor::virtio::{Layout, Memory, EVENT_INDEX, INDIRECT, VERSION_1};
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// `VHOST_USER_F_PROTOCOL_FEATURES`.
const PROTOCOL: u64 = 1 << 30;

/// Features that the process has to implement if the driver accepts them.
const PROCESS: u64 = FRAMES | PAIRS | INDIRECT | EVENT_INDEX | VERSION_1;

/// Time for an answer, after which the connection is closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// `poll` ignores it.
const NO_DESCRIPTOR: RawFd = -1;

/// The reason why a process cannot serve a card.
#[derive(Debug, Error)]
pub enum BackendError {
    /// There is no process, or it does not answer.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It lacks features that a card needs.
    #[error("the process lacks features {missing:#x} of {offered:#x}")]
    Features {
        /// Missing features.
        missing: u64,
        /// Offered features.
        offered: u64,
    },
    /// It supports fewer queues.
    #[error("the process supports {supported} pairs of queues, not {asked}")]
    Pairs {
        /// Pairs that it supports.
        supported: u64,
        /// Pairs of the card.
        asked: u16,
    },
}

impl From<vhost::Error> for BackendError {
    fn from(error: vhost::Error) -> Self {
        Self::Io(io::Error::other(error))
    }
}

impl From<vhost::vhost_user::Error> for BackendError {
    fn from(error: vhost::vhost_user::Error) -> Self {
        Self::Io(io::Error::other(error))
    }
}

/// A connected process.
pub struct Backend {
    frontend: Frontend,
    offered: u64,
    /// Path of its socket; `None`: connected by the parent process.
    path: Option<PathBuf>,
}

impl Backend {
    /// Connects to the socket at `path`, or uses the connected one of a descriptor, and checks what the process supports.
    pub fn connect(path: &Path, pairs: u16) -> Result<Self, BackendError> {
        let (socket, path) = match of_path(path) {
            None => (UnixStream::connect(path)?, Some(path.into())),
            // SAFETY: an open descriptor that the parent process has passed for this purpose only.
            Some(fd) => (unsafe { UnixStream::from_raw_fd(fd) }, None),
        };
        let same = socket.try_clone()?;
        let backend = Self::negotiate(socket, pairs, path)?;
        check_pairs(same, pairs)?;
        Ok(backend)
    }

    fn negotiate(
        socket: UnixStream,
        pairs: u16,
        path: Option<PathBuf>,
    ) -> Result<Self, BackendError> {
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut frontend = Frontend::from_stream(socket, 2 * u64::from(pairs));
        frontend.set_owner()?;
        let offered = frontend.get_features()?;
        let needed = VERSION_1 | PROTOCOL | if pairs > 1 { PAIRS } else { 0 };
        if offered & needed != needed {
            let missing = needed & !offered;
            return Err(BackendError::Features { missing, offered });
        }
        let protocol = accept_protocol(&mut frontend)?;
        if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        Ok(Self {
            frontend,
            offered,
            path,
        })
    }

    /// Returns the features that the process offers.
    pub fn offered(&self) -> u64 {
        self.offered
    }
}

/// Accepts the features of the protocol that are known here, and returns them.
fn accept_protocol(frontend: &mut Frontend) -> Result<VhostUserProtocolFeatures, BackendError> {
    let known = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK;
    let protocol = frontend.get_protocol_features()? & known;
    frontend.set_protocol_features(protocol)?;
    Ok(protocol)
}

/// Checks that the process supports so many pairs of queues (`VHOST_USER_GET_QUEUE_NUM`).
fn check_pairs(socket: UnixStream, asked: u16) -> Result<(), BackendError> {
    // Another front end of the same connection: `Frontend` takes the answer, a number of pairs, as its number of queues.
    let mut frontend = Frontend::from_stream(socket, 0);
    frontend.get_features()?;
    if !accept_protocol(&mut frontend)?.contains(VhostUserProtocolFeatures::MQ) {
        return Ok(());
    }
    let supported = frontend.get_queue_num()?;
    match supported < asked.into() {
        true => Err(BackendError::Pairs { supported, asked }),
        false => Ok(()),
    }
}

/// The connection, with the eventfds of a card.
pub struct Link {
    backend: Option<Backend>,
    path: Option<PathBuf>,
    pairs: u16,
    memory: Arc<Memory>,
    /// Notifications, by queue.
    kicks: Vec<EventFd>,
    /// Interrupt, written by the process.
    call: EventFd,
    /// The hypervisor delivers the interrupt; otherwise the card's thread does.
    is_direct: bool,
    /// Queues that the process has.
    started: Vec<usize>,
    is_lost: bool,
}

fn copy(event: BorrowedFd<'_>) -> io::Result<EventFd> {
    let event = event.try_clone_to_owned()?;
    Ok(owned(event))
}

fn owned(event: OwnedFd) -> EventFd {
    // SAFETY: the descriptor has no other owner.
    unsafe { EventFd::from_raw_fd(event.into_raw_fd()) }
}

impl Link {
    /// Creates the connection of the card in `slot`, whose memory is a file.
    ///
    /// # Errors
    /// The kernel refuses a descriptor.
    pub fn new(
        backend: Backend,
        slot: &Slot<UserCard>,
        memory: &Arc<Memory>,
        pairs: u16,
    ) -> Result<Self, Failure> {
        let kicks: io::Result<Vec<_>> = slot.queue_bells().map(copy).collect();
        let direct = slot.interrupt_event();
        let call = match direct {
            Some(event) => copy(event),
            None => EventFd::new(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK),
        };
        let refused = || Failure::system("copy an event of a network card");
        Ok(Self {
            path: backend.path.clone(),
            backend: Some(backend),
            pairs,
            memory: Arc::clone(memory),
            kicks: kicks.map_err(refused())?,
            call: call.map_err(refused())?,
            is_direct: direct.is_some(),
            started: Vec::new(),
            is_lost: false,
        })
    }

    /// Returns the socket.
    pub fn socket(&self) -> RawFd {
        let backend = self.backend.as_ref();
        backend.map_or(NO_DESCRIPTOR, |backend| backend.frontend.as_raw_fd())
    }

    /// Returns the event by which the process requests an interrupt from the card's thread.
    pub fn interrupt(&self) -> RawFd {
        match self.is_direct {
            true => NO_DESCRIPTOR,
            false => self.call.as_raw_fd(),
        }
    }

    /// Returns true if the process has requested an interrupt from the card's thread.
    pub fn take_interrupt(&self) -> bool {
        !self.is_direct && self.call.read().is_ok()
    }

    /// Returns true if there is a connection.
    pub fn is_connected(&self) -> bool {
        self.backend.is_some()
    }

    /// Returns true if the connection has failed. The process sends nothing without a request.
    pub fn is_lost(&self) -> bool {
        let mut request = crate::net::readable(self.socket());
        // SAFETY: one structure.
        let is_readable = unsafe { libc::poll(&raw mut request, 1, 0) } > 0;
        self.is_lost || is_readable
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.backend = None;
        self.is_lost = false;
        self.started.clear();
    }

    /// Connects again. Returns true if there is a process.
    pub fn reconnect(&mut self) -> bool {
        let path = self.path.as_deref();
        let socket = path.and_then(|path| UnixStream::connect(path).ok());
        // A process with fewer queues than the one before refuses those that it lacks.
        let connected = socket.map(|it| Backend::negotiate(it, self.pairs, self.path.clone()));
        self.backend = connected.and_then(Result::ok);
        self.backend.is_some()
    }

    /// Hands over the queues that the driver has configured. Returns true if the process has them.
    pub fn start(&mut self, accepted: u64, layouts: &[Option<Layout>], used_pairs: u16) -> bool {
        let is_started = self.try_start(accepted, layouts, used_pairs).is_ok();
        self.is_lost |= self.is_connected() && !is_started;
        is_started
    }

    fn try_start(
        &mut self,
        accepted: u64,
        layouts: &[Option<Layout>],
        used_pairs: u16,
    ) -> Result<(), io::Error> {
        let backend = self.backend.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let features = accepted & PROCESS;
        if features & !backend.offered != 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let user = self.memory.address().as_ptr() as u64;
        let file = self.memory.file().ok_or(io::ErrorKind::Unsupported)?;
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: self.memory.len() as u64,
            userspace_addr: user,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        let frontend = &mut backend.frontend;
        let set = frontend.set_features(features | PROTOCOL);
        set.map_err(io::Error::other)?;
        frontend
            .set_mem_table(&[region])
            .map_err(io::Error::other)?;
        for (index, layout) in layouts.iter().enumerate() {
            let (Some(layout), Some(kick)) = (layout, self.kicks.get(index)) else {
                continue;
            };
            let is_used = index < 2 * usize::from(used_pairs);
            let events = (&self.call, kick);
            start_queue(frontend, index, user, layout, events, is_used)
                .map_err(io::Error::other)?;
            self.started.push(index);
            // It may have been written before a process read it, or by one that has ended.
            kick.write(1)?;
        }
        Ok(())
    }

    /// Enables the queues of so many pairs, of `most`.
    pub fn use_pairs(&mut self, pairs: u16, most: u16) -> bool {
        let Some(backend) = &mut self.backend else {
            // They are enabled when there is a process again.
            return true;
        };
        let queues = 0..2 * usize::from(most);
        let mut enable = |index| {
            let is_used = index < 2 * usize::from(pairs);
            backend.frontend.set_vring_enable(index, is_used).is_ok()
        };
        let is_set = queues
            .filter(|index| self.started.contains(index))
            .all(&mut enable);
        self.is_lost |= !is_set;
        is_set
    }

    /// Takes back the queues: on return the process does not access guest memory.
    pub fn stop(&mut self) {
        let Some(backend) = &self.backend else {
            return;
        };
        let stop = |index: usize| backend.frontend.get_vring_base(index).is_ok();
        let are_stopped = self.started.drain(..).all(stop);
        // A process that does not answer loses its connection.
        self.is_lost |= !are_stopped;
    }
}

/// Hands over a queue.
fn start_queue(
    frontend: &mut Frontend,
    index: usize,
    user: u64,
    layout: &Layout,
    (call, kick): (&EventFd, &EventFd),
    is_used: bool,
) -> Result<(), vhost::Error> {
    let [descriptors, available, used] = layout.areas.map(|address| user + address);
    frontend.set_vring_num(index, layout.size)?;
    frontend.set_vring_base(index, layout.used)?;
    frontend.set_vring_addr(
        index,
        &VringConfigData {
            queue_max_size: layout.size,
            queue_size: layout.size,
            flags: 0,
            desc_table_addr: descriptors,
            used_ring_addr: used,
            avail_ring_addr: available,
            log_addr: None,
        },
    )?;
    frontend.set_vring_call(index, call)?;
    frontend.set_vring_kick(index, kick)?;
    frontend.set_vring_enable(index, is_used)
}
