//! A device that is notified of an empty queue: what a driver pays for a notification, without the work that it announces.

use super::queue::{self, Queue, WRITE};
use super::transport::{
    self, Access, Interrupts, DEVICE_ID, DRIVER_OK, ENTROPY, NEEDS_RESET, QUEUE_NOTIFY, STATUS,
};
use trapline_workloads::Reason;

/// Bytes of the memory of a device: the queue, and a buffer.
pub const BYTES: usize = queue::BYTES + 4096;
/// Bytes of a request for entropy.
const REQUEST: u32 = 64;

/// A device with queue 0.
pub struct Notified<A> {
    access: A,
    queue: Queue,
    interrupts: Interrupts,
}

impl<A: Access> Notified<A> {
    /// Starts the device.
    ///
    /// # Errors
    /// It is a legacy device, or has no queue.
    ///
    /// # Safety
    /// Same contract for `memory` as for the memory of [`Queue::new`], with [`BYTES`].
    pub unsafe fn start(access: A, memory: *mut u8) -> Result<Self, Reason> {
        let device = transport::negotiate(&access, 0)?;
        let size = device.queue_size(0);
        if size == 0 {
            return Err("the virtio device has no queue");
        }
        // SAFETY: same contract.
        let mut queue = unsafe { Queue::new(memory, BYTES, size, device.has_event_index()) };
        queue.set_interrupt(false);
        device.place(&queue);
        device.start();
        Ok(Self {
            interrupts: Interrupts::so_far(&access),
            access,
            queue,
        })
    }

    /// Checks that the device works: an entropy device answers a request, which proves that notifications arrive; the status
    /// of another one is that of a running device.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&mut self) -> Result<(), Reason> {
        if self.access.read(DEVICE_ID) == ENTROPY {
            self.request()?;
        }
        match self.access.read(STATUS) & (DRIVER_OK | NEEDS_RESET) {
            DRIVER_OK => Ok(()),
            _ => Err("the virtio device stopped after notifications"),
        }
    }

    fn request(&mut self) -> Result<(), Reason> {
        let buffer = self.queue.address(queue::BYTES);
        self.queue.describe(0, buffer, REQUEST, WRITE, 0);
        self.queue.push(0);
        self.access.write(QUEUE_NOTIFY, 0);
        self.interrupts.wait(&mut self.access, &mut self.queue)?;
        let completed = self.queue.completion(1)?;
        self.queue.take();
        match completed {
            Some((0, 1..=REQUEST)) => Ok(()),
            _ => Err("the entropy device completed its request without data"),
        }
    }

    /// Stops the device.
    ///
    /// # Errors
    /// It does not stop.
    pub fn stop(&self) -> Result<(), Reason> {
        transport::reset(&self.access)
    }
}
