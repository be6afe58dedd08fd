//! The connection to what serves a card's queues, with the events of the card.

use super::backend::{Backend, NO_DESCRIPTOR};
use super::ExternalCard;
use crate::poll::is_ready;
use crate::virtio::Slot;
use crate::Failure;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use trapline_monitor::virtio::net::{FRAMES, PAIRS};
use trapline_monitor::virtio::{Layout, Memory, EVENT_INDEX, INDIRECT, VERSION_1};
use vmm_sys_util::eventfd::EventFd;

/// Features that the backend has to implement if the driver accepts them.
const FEATURES: u64 = FRAMES | PAIRS | INDIRECT | EVENT_INDEX | VERSION_1;

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
        slot: &Slot<ExternalCard>,
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
            path: backend.path().cloned(),
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
        backend.map_or(NO_DESCRIPTOR, Backend::socket)
    }

    /// Returns the event by which the process requests an interrupt from the card's thread.
    pub fn interrupt(&self) -> RawFd {
        if self.is_direct {
            NO_DESCRIPTOR
        } else {
            self.call.as_raw_fd()
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
        self.is_lost || is_ready(self.socket(), libc::POLLIN, 0)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.backend = None;
        self.is_lost = false;
        self.started.clear();
    }

    /// Connects again. Returns true if there is a process.
    pub fn reconnect(&mut self) -> bool {
        let path = self.path.as_ref();
        self.backend = path.and_then(|path| Backend::reconnect(path, self.pairs));
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
        backend.accept(accepted & FEATURES, &self.memory)?;
        for (index, layout) in layouts.iter().enumerate() {
            let (Some(layout), Some(kick)) = (layout, self.kicks.get(index)) else {
                continue;
            };
            let is_used = index < 2 * usize::from(used_pairs);
            let events = (&self.call, kick);
            backend
                .start_queue(index, &self.memory, layout, events, is_used)
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
            backend.enable(index, is_used).is_ok()
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
        let stop = |index: usize| backend.stop_queue(index).is_ok();
        let are_stopped = self.started.drain(..).all(stop);
        // A process that does not answer loses its connection.
        self.is_lost |= !are_stopped;
    }
}
