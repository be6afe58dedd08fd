//! The device behind a transport.

use crate::virtio::registers::OFFERED;

/// A virtio device. The transport calls all methods during a guest exit, so none may block.
pub trait Device {
    /// Device ID (virtio 1.2, section 5).
    fn kind(&self) -> u32;

    /// Device-specific features.
    fn features(&self) -> u64 {
        0
    }

    /// Features of every kind of device (section 6) that it supports.
    fn common_features(&self) -> u64 {
        OFFERED
    }

    /// Largest size of each queue, a power of 2.
    fn queues(&self) -> &[u16];

    /// Configuration space, at most 256 bytes.
    fn configuration(&self) -> &[u8] {
        &[]
    }

    /// Handles a write to the configuration space.
    fn configure(&mut self, _offset: usize, _bytes: &[u8]) {}

    /// The driver has set DRIVER_OK with these features.
    fn activate(&mut self, _features: u64) {}

    /// Resets the device. Requests in flight still complete, see [`Device::in_flight`], but their rings are gone.
    fn reset(&mut self) {}

    /// Number of queues, from the first, that another process serves. It raises their interrupts, too.
    fn external_queues(&self) -> usize {
        0
    }

    /// Returns true between the driver's start and that of the process that serves the queues.
    fn is_starting(&self) -> bool {
        false
    }

    /// Number of requests that still access guest memory. A reset waits until it is 0.
    fn in_flight(&self) -> usize {
        0
    }
}
