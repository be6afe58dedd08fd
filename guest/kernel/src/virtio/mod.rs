//! Driver of a virtio block device (virtio 1.2, section 5.2) over virtio-mmio (4.2).
//!
//! [`transport`] negotiates features and places the queue, [`ring`] is the driver's side of the
//! split virtqueue (2.7), [`disk`] submits requests and waits for them, [`transfer`] performs those
//! of a job with [`buffers`]; [`image`] finds the device and its interrupt. The device is not trusted: indices,
//! descriptor numbers and lengths that it reports are checked, and a wrong one is an error.
//!
//! Nothing here runs unless a job selects workload `block`.

mod buffers;
mod disk;
#[cfg(trapline_image)]
mod image;
mod ring;
mod transfer;
mod transport;

#[cfg(trapline_image)]
pub use image::{open, read_back, transfer, VECTOR};

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
