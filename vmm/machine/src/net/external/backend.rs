//! What serves a card's queues: another process, by vhost-user, or the kernel, by vhost-net.

use super::kernel::Kernel;
use crate::inherited::of_path;
use crate::net::Tap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
use trapline_monitor::virtio::net::PAIRS;
use trapline_monitor::virtio::{Layout, Memory, VERSION_1};
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// `VHOST_USER_F_PROTOCOL_FEATURES`.
const PROTOCOL: u64 = 1 << 30;

/// Time for an answer, after which the connection is closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// `poll` ignores it.
pub const NO_DESCRIPTOR: RawFd = -1;

/// The reason why a card cannot be served.
#[derive(Debug, Error)]
pub enum BackendError {
    /// There is no process or kernel for it, or it does not answer.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It lacks features that a card needs.
    #[error("the other side lacks features {missing:#x} of {offered:#x}")]
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

/// What serves the queues.
enum Server {
    Process {
        frontend: Frontend,
        /// Path of its socket; `None`: connected by the parent process.
        path: Option<PathBuf>,
    },
    Kernel(Kernel),
}

/// What serves the queues, ready to do so.
pub struct Backend {
    server: Server,
    offered: u64,
}

/// Checks that all features of a card are offered.
fn check_features(offered: u64, needed: u64) -> Result<(), BackendError> {
    match needed & !offered {
        0 => Ok(()),
        missing => Err(BackendError::Features { missing, offered }),
    }
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

    /// Connects again to a process at the same path. One with fewer queues than before refuses those that it lacks.
    pub fn reconnect(path: &Path, pairs: u16) -> Option<Self> {
        let socket = UnixStream::connect(path).ok()?;
        Self::negotiate(socket, pairs, Some(path.into())).ok()
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
        let several = if pairs > 1 { PAIRS } else { 0 };
        check_features(offered, VERSION_1 | PROTOCOL | several)?;
        let protocol = accept_protocol(&mut frontend)?;
        if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        Ok(Self {
            server: Server::Process { frontend, path },
            offered,
        })
    }

    /// Lets the kernel move frames between a tap and the guest.
    pub fn kernel(tap: Tap, memory: &Memory) -> Result<Self, BackendError> {
        let kernel = Kernel::open(tap, memory)?;
        let offered = kernel.offered();
        check_features(offered, VERSION_1)?;
        Ok(Self {
            server: Server::Kernel(kernel),
            offered,
        })
    }

    /// Returns the features that are offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Returns the path at which a process may be again when this one has ended.
    pub fn path(&self) -> Option<&PathBuf> {
        match &self.server {
            Server::Process { path, .. } => path.as_ref(),
            Server::Kernel(_) => None,
        }
    }

    /// Returns the socket of a process.
    pub fn socket(&self) -> RawFd {
        match &self.server {
            Server::Process { frontend, .. } => frontend.as_raw_fd(),
            Server::Kernel(_) => NO_DESCRIPTOR,
        }
    }

    /// Passes the features that the driver has accepted, and the guest's memory.
    pub fn accept(&mut self, features: u64, memory: &Memory) -> Result<(), io::Error> {
        if features & !self.offered != 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = memory.file().map(|file| file.as_raw_fd());
        let user = memory.address().as_ptr() as u64;
        let region = |(at, length): (usize, usize)| VhostUserMemoryRegionInfo {
            guest_phys_addr: at as u64,
            memory_size: length as u64,
            userspace_addr: user + at as u64,
            mmap_offset: at as u64,
            mmap_handle: file.unwrap_or(NO_DESCRIPTOR),
        };
        let regions: Vec<_> = memory.pieces().map(region).collect();
        match &self.server {
            Server::Process { frontend, .. } => {
                file.ok_or(io::ErrorKind::Unsupported)?;
                let set = frontend.set_features(features | PROTOCOL);
                set.map_err(io::Error::other)?;
                frontend.set_mem_table(&regions)
            }
            Server::Kernel(kernel) => {
                kernel.accept(features)?;
                kernel.net.set_mem_table(&regions)
            }
        }
        .map(drop)
        .map_err(io::Error::other)
    }

    /// Hands over a queue, with its interrupt and its notification.
    pub fn start_queue(
        &mut self,
        index: usize,
        memory: &Memory,
        layout: &Layout,
        events: (&EventFd, &EventFd),
        is_used: bool,
    ) -> Result<(), vhost::Error> {
        match &self.server {
            Server::Process { frontend, .. } => {
                let user = memory.address().as_ptr() as u64;
                start_queue(frontend, index, user, layout, events)?;
            }
            // Its crate converts addresses of the guest.
            Server::Kernel(kernel) => start_queue(&kernel.net, index, 0, layout, events)?,
        }
        self.enable(index, is_used)
    }

    /// Lets a queue be used, or not.
    pub fn enable(&mut self, index: usize, is_used: bool) -> Result<(), vhost::Error> {
        match &mut self.server {
            Server::Process { frontend, .. } => frontend.set_vring_enable(index, is_used),
            Server::Kernel(kernel) => kernel.connect(index, is_used),
        }
    }

    /// Takes back a queue: on return guest memory is not accessed for it.
    pub fn stop_queue(&self, index: usize) -> Result<(), vhost::Error> {
        match &self.server {
            Server::Process { frontend, .. } => frontend.get_vring_base(index).map(drop),
            Server::Kernel(kernel) => kernel.connect(index, false),
        }
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
    if supported < asked.into() {
        Err(BackendError::Pairs { supported, asked })
    } else {
        Ok(())
    }
}

fn start_queue(
    backend: &impl VhostBackend,
    index: usize,
    base: u64,
    layout: &Layout,
    (call, kick): (&EventFd, &EventFd),
) -> Result<(), vhost::Error> {
    let [descriptors, available, used] = layout.areas.map(|address| base + address);
    backend.set_vring_num(index, layout.size)?;
    backend.set_vring_base(index, layout.used)?;
    backend.set_vring_addr(
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
    backend.set_vring_call(index, call)?;
    backend.set_vring_kick(index, kick)
}
