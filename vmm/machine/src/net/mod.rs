//! Network cards: each is connected to a tap of the host, and served by a thread of its own.
//!
//! Frames go between guest memory and the tap in one system call each, without being
//! copied here. The thread takes what the driver has rung for and what has arrived, a ring
//! full of each at a time, and waits for the tap only while there is room: what comes
//! faster than the guest takes it waits in the tap's own queue, and is lost when that is
//! full, as on any wire. Nothing here grows.
//!
//! What the tap may leave to the guest - checksums, and segments of TCP - is told to it as
//! soon as a driver has chosen; by the vCPU's thread, while the driver waits.

mod spec;
mod tap;
#[cfg(test)]
mod tests;

pub use spec::{Source, Spec};
pub use tap::Tap;

use crate::virtio::Slot;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use trapline_monitor::virtio::net::{Mac, Net};
use trapline_monitor::virtio::Device;

/// A card and where its cable ends.
pub struct Card {
    net: Net,
    tap: Arc<Tap>,
}

impl Card {
    /// A card at `tap`: with this address, or one that is made from the tap's name.
    pub fn new(tap: Arc<Tap>, mac: Option<Mac>) -> Self {
        let mac = mac.unwrap_or_else(|| mac_for(tap.name()));
        Self {
            net: Net::new(mac, tap.mtu()),
            tap,
        }
    }
}

/// An address of those that anybody may use in his own network (IEEE 802, locally
/// administered): always the same for the same tap, so that a guest finds its card again
/// and measurements repeat, and another for each tap of a host.
pub fn mac_for(name: &str) -> Mac {
    // FNV-1a, 64 bits.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut mac = [0x02; 6];
    mac[1..].copy_from_slice(&hash.to_be_bytes()[3..]);
    mac
}

impl Device for Card {
    fn kind(&self) -> u32 {
        self.net.kind()
    }

    fn features(&self) -> u64 {
        self.net.features()
    }

    fn queues(&self) -> &[u16] {
        self.net.queues()
    }

    fn configuration(&self) -> &[u8] {
        self.net.configuration()
    }

    fn activate(&mut self, features: u64) {
        self.net.activate(features);
        // Who refuses leaves frames as they are, or they are lost: none reaches a driver
        // that did not agree to it.
        let _refused = self.tap.leave(self.net.from_network());
    }

    fn reset(&mut self) {
        self.net.reset();
    }
}

/// Serves the card in `slot` until the process ends.
pub fn serve(slot: &Slot<Card>, tap: &Tap) {
    let mut port = tap.port(slot.memory(), &slot.counters);
    let (mut more, mut has_room) = (false, false);
    loop {
        wait(slot, tap, more, has_room && port.is_there());
        slot.heard();
        has_room = false;
        more = slot.serve(|card, rings, memory| {
            let sent = card.net.transmit(rings, memory, &mut port)?;
            let heard = card.net.receive(rings, memory, &mut port)?;
            has_room = card.net.has_room();
            Ok(sent.and(heard))
        });
    }
}

/// Until the driver rings or a frame has come for which there is room; not at all if there
/// is more to be done.
fn wait(slot: &Slot<Card>, tap: &Tap, more: bool, has_room: bool) {
    // The kernel passes over a negative descriptor.
    let tap = if has_room { tap.as_raw_fd() } else { -1 };
    let mut requests = [readable(slot.bell().as_raw_fd()), readable(tap)];
    let timeout = if more { 0 } else { -1 };
    // SAFETY: as many requests are passed as are there.
    unsafe { libc::poll(requests.as_mut_ptr(), 2, timeout) };
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}
