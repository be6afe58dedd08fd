//! A connected port, as the engine uses it.

use crate::memory::Memory;
use crate::ring::Ring;
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
}

/// A connected port.
pub struct Active {
    /// Memory of the guest.
    pub memory: Arc<Memory>,
    /// Queues in which the guest gets frames.
    pub receive: Vec<Queue>,
    /// Queues from which it sends.
    pub transmit: Vec<Queue>,
    /// A frame may take several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
    pub is_mergeable: bool,
}

impl Active {
    /// Returns all queues.
    pub fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.receive.iter_mut().chain(&mut self.transmit)
    }
}
