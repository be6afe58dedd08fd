//! Network cards: each is connected to a tap and served by its own thread, or by another process or
//! the kernel ([`external`]).
//!
//! A frame moves between guest memory and the tap in one system call, without a copy. The thread handles up to a
//! ring of frames per direction at a time, and polls the tap only while the driver offers buffers; excess
//! frames wait in the tap's queue and are dropped when it is full.
//!
//! The tap's offloads (checksums, TCP segmentation) are set on the vCPU's thread when the driver has
//! negotiated features.

pub mod external;
mod spec;
mod tap;
#[cfg(test)]
mod tests;

pub use external::ExternalCard;
pub use spec::{ExternalSource, Source, Spec, TapSource};
pub use tap::Tap;

use crate::poll::readable;
use crate::virtio::Slot;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use trapline_monitor::virtio::net::{Mac, Net};
use trapline_monitor::virtio::Device;

/// A card and its tap.
pub struct Card {
    net: Net,
    tap: Arc<Tap>,
}

impl Card {
    /// Creates a card at `tap` with this address, or one derived from the tap's name.
    pub fn new(tap: Arc<Tap>, mac: Option<Mac>) -> Self {
        let mac = mac.unwrap_or_else(|| mac_for(tap.name()));
        Self {
            net: Net::new(mac, tap.mtu()),
            tap,
        }
    }
}

/// Returns a locally administered address (IEEE 802) derived from the tap's name, so that it is stable across
/// runs and distinct per tap.
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
        // Without the offload the kernel sends complete frames, or drops them.
        let _refused = self.tap.leave(self.net.receive_offloads());
    }

    fn reset(&mut self) {
        self.net.reset();
    }
}

/// Serves the card in `slot` until the process ends.
pub fn serve(slot: &Slot<Card>, tap: &Tap) -> ! {
    let mut port = tap.port(slot.memory(), &slot.counters);
    let (mut more, mut has_room) = (false, false);
    loop {
        wait(slot, tap, more, has_room && port.is_there());
        slot.take_notification();
        has_room = false;
        more = slot.serve(|card, rings, memory| {
            let sent = card.net.transmit(rings, memory, &mut port)?;
            let heard = card.net.receive(rings, memory, &mut port)?;
            has_room = card.net.has_room();
            Ok(sent.and(heard))
        });
    }
}

/// Waits until the driver rings, or a frame arrives for which there is a buffer; does not block if `more` is
/// set.
fn wait(slot: &Slot<Card>, tap: &Tap, more: bool, has_room: bool) {
    // `poll` ignores negative descriptors.
    let tap = if has_room { tap.as_raw_fd() } else { -1 };
    let mut requests = [readable(slot.bell().as_raw_fd()), readable(tap)];
    let timeout = if more { 0 } else { -1 };
    // SAFETY: the array has the length that is passed.
    unsafe { libc::poll(requests.as_mut_ptr(), 2, timeout) };
}
