//! A connected port, as the engine uses it.

use crate::events::Events;
use crate::memory::Memory;
use crate::ring::Ring;
use crate::tap::Tap;
use std::fs::File;
use std::sync::Arc;

/// A queue with its notifications.
#[derive(Debug)]
pub struct Queue {
    /// The number of the queue in the device.
    pub index: usize,
    /// Its ring.
    pub ring: Ring,
    /// Event that the guest's driver writes when buffers are available, if it does.
    pub kick: Option<File>,
    /// Event that interrupts the guest, if there is one.
    pub call: Option<File>,
    /// Next buffers whose beginning is in the cache.
    pub prefetched: u16,
}

/// A connected port.
pub enum Port {
    /// A guest, by its queues.
    Guest(Box<Active>),
    /// A tap of the host.
    Tap(Box<Tap>),
}

impl Port {
    /// Asks for notifications of frames, or for none. Returns whether a frame may be available of which none comes.
    pub fn set_notifications(&mut self, are_wanted: bool) -> bool {
        let active = match self {
            Self::Guest(active) => active,
            Self::Tap(tap) => return tap.wake(),
        };
        let mut is_available = false;
        for queue in &mut active.transmit {
            queue.ring.set_notifications(are_wanted);
            is_available |= queue.ring.has_buffer();
        }
        is_available
    }
}

/// A guest.
pub struct Active {
    /// Memory of the guest.
    pub memory: Arc<Memory>,
    /// Queues in which the guest gets frames.
    pub receive: Vec<Queue>,
    /// Queues from which it sends.
    pub transmit: Vec<Queue>,
    /// Index of the queue from which frames are taken first.
    pub first: usize,
    /// A frame may take several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
    pub is_mergeable: bool,
    /// Descriptors of its receive buffers that were read in a turn.
    pub effort: Effort,
}

/// Descriptors of receive buffers that were read for frames in a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    turn: u32,
    /// Those beyond what the frames need.
    excess: u32,
}

impl Effort {
    /// Descriptors beyond what its frames need that a port makes the switch read in a turn.
    pub const MOST: u32 = 256;

    /// Returns whether there were too many in this turn.
    #[inline(always)]
    pub fn is_spent(&self, turn: u32) -> bool {
        self.turn == turn && self.excess >= Self::MOST
    }

    /// Adds the descriptors that were read for a frame. It needs two, and one more for each KiB.
    #[cold]
    pub fn add(&mut self, turn: u32, pieces: usize, length: u32) {
        if self.turn != turn {
            *self = Self { turn, excess: 0 };
        }
        let needed = 2 + length / 1024;
        self.excess += (pieces as u32).saturating_sub(needed);
    }
}

impl Active {
    /// Returns all queues.
    pub fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.receive.iter_mut().chain(&mut self.transmit)
    }

    /// Waits for notifications by `events`, but asks for none yet.
    pub fn begin(&mut self, events: &Events) {
        for queue in self.queues() {
            queue.ring.set_notifications(false);
            if let Some(kick) = &queue.kick {
                // One that cannot be waited for is found by polling after the next wake-up.
                let _ignored = events.add(kick);
            }
        }
    }

    /// Waits for notifications no longer.
    pub fn end(&mut self, events: &Events) {
        for kick in self.queues().filter_map(|queue| queue.kick.as_ref()) {
            events.remove(kick);
        }
    }
}
