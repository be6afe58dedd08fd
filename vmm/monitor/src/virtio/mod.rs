//! Virtio over MMIO (virtio 1.2).
//!
//! A [`Transport`] holds the registers of a [`Device`] and its [`Ring`]s, from which the device takes [`Chain`]s of
//! guest memory. The owner serves the device when the driver notifies it, and interrupts the guest when the outcome
//! requires it.
//!
//! The guest may write rings at any time and registers in any order. Every address is checked at each use, every
//! loop is bounded, and malformed requests are [`DriverError`]: the device then needs a reset.

pub mod block;
mod bus;
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
pub use bus::{slot_resources, Bus, Registers, MAX_SLOTS};
pub use chain::{slices, Chain, Part};
pub use console::Console;
pub use device::Device;
pub use entropy::Entropy;
pub use registers::{EVENT_INDEX, INDIRECT, VERSION_1};
pub use registers::{QUEUE_NOTIFY, SIZE};
pub use ring::{Layout, Progress, Ring};
pub use transport::{Outcome, Transport};

use thiserror::Error;

/// Guest memory.
pub type Memory = trapline_interface::Region;

/// A driver error after which the device needs a reset (virtio 1.2, section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DriverError {
    /// A ring is outside memory or holds more entries than its size.
    #[error("malformed ring")]
    Ring,
    /// A descriptor chain is cyclic, or outside memory.
    #[error("malformed descriptor chain")]
    Chain,
    /// A request is malformed.
    #[error("malformed request")]
    Request,
}
