//! Network cards whose queues another process serves, by vhost-user (QEMU, docs/interop/vhost-user.rst), or the kernel, by
//! vhost-net.
//!
//! Either reads and writes guest memory. The guest's notifications reach it, and its interrupts the guest, by eventfds
//! and not through this process, where the hypervisor supports that. The card's thread hands over the queues when the
//! driver starts, takes them back when it resets the device, serves the control queue, and connects again when the
//! process has ended.

mod backend;
mod kernel;
mod link;

pub use link::Link;

use backend::{Backend, BackendError};

use super::{ExternalSource, Spec, Tap, TapSource};
use crate::poll::readable;
use crate::virtio::Slot;
use crate::Failure;
use std::os::fd::AsRawFd;
use std::path::Path;
use trapline_monitor::virtio::net::{
    control, Configuration, Mac, CONTROL, ENTRIES, FRAMES, KIND, MAC, PAIRS, STATUS,
};
use trapline_monitor::virtio::{
    Device, DriverError, Memory, Progress, Ring, EVENT_INDEX, INDIRECT, VERSION_1,
};

/// Time between two attempts to connect, in milliseconds.
const RETRY: libc::c_int = 20;

/// State of the data queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The driver has not started the device.
    Stopped,
    /// The driver waits until the process has the queues.
    Starting,
    /// The driver has started the device, but there is no process.
    Waiting,
    /// The process has the queues.
    Running,
    /// The driver waits until the process has returned the queues.
    Stopping,
}

/// A card.
#[derive(Debug)]
pub struct ExternalCard {
    configuration: Configuration,
    queues: Vec<u16>,
    /// Features that the process offered at first.
    offered: u64,
    /// Features that the driver has accepted.
    accepted: u64,
    pairs: u16,
    /// Pairs that the driver uses.
    used_pairs: u16,
    state: State,
}

impl ExternalCard {
    /// Creates a card with this address and number of pairs of queues, for a process with these features.
    pub fn new(mac: Mac, pairs: u16, offered: u64) -> Self {
        let controls = usize::from(pairs > 1);
        Self {
            configuration: Configuration::new(mac, pairs, None),
            queues: vec![ENTRIES; 2 * usize::from(pairs) + controls],
            offered,
            accepted: 0,
            pairs,
            used_pairs: 1,
            state: State::Stopped,
        }
    }

    /// Returns the number of the control queue, if the driver uses it.
    fn control_queue(&self) -> Option<usize> {
        let pairs = if self.has(PAIRS) { self.pairs } else { 1 };
        self.has(CONTROL).then_some(2 * usize::from(pairs))
    }

    fn has(&self, feature: u64) -> bool {
        self.accepted & feature != 0
    }

    /// Hands over the queues if the driver waits for that, and serves the control queue.
    fn serve(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        link: &mut Link,
    ) -> Result<Progress, DriverError> {
        let mut progress = Progress::default();
        if matches!(self.state, State::Starting | State::Waiting) {
            let data = &rings[..2 * usize::from(self.pairs)];
            let layouts: Vec<_> = data.iter().map(|ring| ring.layout(memory)).collect();
            let is_running = link.start(self.accepted, &layouts, self.used_pairs);
            // Completions before the process ended may not have been signalled.
            progress.interrupt = is_running && self.state == State::Waiting;
            self.state = if is_running {
                State::Running
            } else {
                State::Waiting
            };
        }
        let Some(ring) = self.control_queue().and_then(|queue| rings.get_mut(queue)) else {
            return Ok(progress);
        };
        let (most, used) = (self.pairs, &mut self.used_pairs);
        let answered = control::serve(ring, memory, |pairs| {
            let is_set = (1..=most).contains(&pairs) && link.use_pairs(pairs, most);
            if is_set {
                *used = pairs;
            }
            is_set
        })?;
        Ok(progress.and(answered))
    }

    /// Takes back the queues if the driver waits for that.
    fn stop(&mut self, link: &mut Link) {
        if self.state == State::Stopping {
            link.stop();
            self.state = State::Stopped;
        }
    }

    /// Handles the end of the process.
    fn lose(&mut self) {
        self.state = match self.state {
            State::Running | State::Starting => State::Waiting,
            State::Stopping => State::Stopped,
            state => state,
        };
    }
}

impl Device for ExternalCard {
    fn kind(&self) -> u32 {
        KIND
    }

    fn features(&self) -> u64 {
        let control = if self.pairs > 1 { CONTROL | PAIRS } else { 0 };
        self.offered & FRAMES | MAC | STATUS | control
    }

    fn common_features(&self) -> u64 {
        self.offered & (INDIRECT | EVENT_INDEX | VERSION_1)
    }

    fn queues(&self) -> &[u16] {
        &self.queues
    }

    fn external_queues(&self) -> usize {
        2 * usize::from(self.pairs)
    }

    fn configuration(&self) -> &[u8] {
        self.configuration.bytes()
    }

    fn activate(&mut self, features: u64) {
        self.accepted = features;
        self.used_pairs = 1;
        self.state = State::Starting;
    }

    fn is_starting(&self) -> bool {
        self.state == State::Starting
    }

    fn in_flight(&self) -> usize {
        matches!(self.state, State::Running | State::Stopping).into()
    }

    fn reset(&mut self) {
        self.state = match self.state {
            State::Running | State::Stopping => State::Stopping,
            _ => State::Stopped,
        };
    }
}

/// Connects to what serves a card. Returns the card and the connection.
///
/// # Errors
/// It is not there, or lacks a feature.
pub fn connect(
    source: &ExternalSource,
    spec: &Spec,
    memory: &Memory,
) -> Result<(ExternalCard, Backend), Failure> {
    match source {
        ExternalSource::VhostNet(tap) => connect_kernel(tap, spec.mac, memory),
        ExternalSource::VhostUser(path) => connect_process(path, spec.mac, spec.pairs),
    }
}

fn connect_process(
    path: &Path,
    mac: Option<Mac>,
    pairs: u16,
) -> Result<(ExternalCard, Backend), Failure> {
    let backend = Backend::connect(path, pairs).map_err(|error| {
        let remedy = match error {
            BackendError::Pairs { supported, .. } => format!("queues={supported} or fewer"),
            _ => format!(
                "start the switch before: trapline-switch --listen {}",
                path.display()
            ),
        };
        let path = path.display();
        Failure::Host(format!("--net vhost-user={path}: {error}\nhelp: {remedy}"))
    })?;
    let mac = mac.unwrap_or_else(|| super::mac_for(&path.to_string_lossy()));
    Ok((ExternalCard::new(mac, pairs, backend.offered()), backend))
}

fn connect_kernel(
    source: &TapSource,
    mac: Option<Mac>,
    memory: &Memory,
) -> Result<(ExternalCard, Backend), Failure> {
    let tap = Tap::open(source)?;
    let mac = mac.unwrap_or_else(|| super::mac_for(tap.name()));
    let backend = Backend::kernel(tap, memory).map_err(|error| {
        Failure::Host(format!(
            "--net vhost=on: /dev/vhost-net: {error}\nhelp: load the driver (sudo modprobe vhost_net), and give this user access to \
             it, or leave vhost=on out"
        ))
    })?;
    Ok((ExternalCard::new(mac, 1, backend.offered()), backend))
}

/// Serves the card in `slot` until this process ends.
pub fn serve(slot: &Slot<ExternalCard>, link: &mut Link) -> ! {
    loop {
        wait(slot, link);
        slot.take_notification();
        if link.take_interrupt() {
            slot.interrupt();
        }
        check(slot, link);
        slot.with(|card| card.stop(link));
        slot.serve(|card, rings, memory| card.serve(rings, memory, link));
    }
}

/// Handles the end of the process, and connects again.
fn check(slot: &Slot<ExternalCard>, link: &mut Link) {
    if link.is_lost() {
        slot.counters.fail();
        link.close();
        slot.with(ExternalCard::lose);
        slot.reconfigure(|card| card.configuration.set_link(false));
    }
    if !link.is_connected() && link.reconnect() {
        slot.reconfigure(|card| card.configuration.set_link(true));
    }
}

/// Waits until the card or the process needs attention, or for the next attempt to connect.
fn wait(slot: &Slot<ExternalCard>, link: &Link) {
    let descriptors = [slot.bell().as_raw_fd(), link.socket(), link.interrupt()];
    let mut requests = descriptors.map(readable);
    let timeout = if link.is_connected() { -1 } else { RETRY };
    // SAFETY: the array has the length that is passed.
    unsafe { libc::poll(requests.as_mut_ptr(), 3, timeout) };
}
