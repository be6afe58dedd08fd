//! Virtio over MMIO: registers, rings, and what devices do with them (virtio 1.2).
//!
//! Logic only, as in the room of the other devices: no descriptor, no thread. A
//! [`Transport`] is the registers through which a driver finds a [`Device`]; behind
//! them are [`Ring`]s, from which a device takes [`Chain`]s of guest memory and to
//! which it gives them back. Who owns a device serves it when its driver has rung, and
//! interrupts when it is told to.
//!
//! A guest writes the rings while they are read, and pokes the registers in any
//! order. Every address is checked at each use, every loop has an end, and what makes no
//! sense is [`Broken`]: the device wants to be reset, and nothing else happens.

pub mod block;
mod chain;
mod console;
mod device;
mod entropy;
pub mod net;
mod registers;
mod ring;
mod transport;
pub mod vsock;

#[cfg(any(test, feature = "driver"))]
pub mod driver;
#[cfg(feature = "exercise")]
pub mod exercise;

pub use block::Block;
pub use chain::{slices, Chain, Part};
pub use console::Console;
pub use device::Device;
pub use entropy::Entropy;
pub use registers::{QUEUE_NOTIFY, SIZE};
pub use ring::{Ring, Served};
pub use transport::{Outcome, Transport};

use thiserror::Error;

/// Guest memory as devices see it.
pub type Memory = vm_memory::GuestMemoryMmap;

/// What a driver did that leaves its device without sense, until it is reset
/// (virtio 1.2, section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    /// A ring that is not in memory, or says that it holds more than it can.
    #[error("a ring makes no sense")]
    Ring,
    /// Descriptors that do not end, or are not in memory.
    #[error("a chain of descriptors makes no sense")]
    Chain,
    /// A request that the device cannot read.
    #[error("a request makes no sense")]
    Request,
}
