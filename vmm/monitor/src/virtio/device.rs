//! What is behind a transport.

/// A virtio device, as its transport sees it. Its transport calls all of this, while the
/// guest waits: none of it may block.
pub trait Device {
    /// Its kind (virtio 1.2, section 5).
    fn kind(&self) -> u32;

    /// What it offers a driver, besides what every transport does.
    fn features(&self) -> u64 {
        0
    }

    /// For each of its queues, how many entries it may have at the most: powers of 2.
    fn queues(&self) -> &[u16];

    /// Its configuration, of at most 256 bytes.
    fn configuration(&self) -> &[u8] {
        &[]
    }

    /// The driver writes to its configuration. Few devices have anything to be written.
    fn configure(&mut self, _offset: usize, _bytes: &[u8]) {}

    /// The driver is ready, and wants these of the offered features.
    fn activate(&mut self, _features: u64) {}

    /// The driver is gone. Requests that are under way elsewhere still have to come
    /// back, see [`Device::in_flight`], and their rings are not there any more.
    fn reset(&mut self) {}

    /// Requests that somebody still works on, in guest memory. A driver that resets its
    /// device waits until there are none.
    fn in_flight(&self) -> usize {
        0
    }
}
