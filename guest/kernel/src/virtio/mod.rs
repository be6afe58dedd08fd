//! Drivers of virtio devices (virtio 1.2) over virtio-mmio (section 4.2) and PCI (4.1).
//!
//! [`transport`] negotiates features and waits for interrupts, [`queue`] is the driver's side of the split
//! virtqueue (2.7), [`mmio`] finds devices and their interrupt; [`pci`] is a device on PCI behind the registers of virtio-mmio, which
//! [`pci_bus`] finds. [`registers`] has those that operations access, [`doorbell`] a device that is only notified. Devices are not trusted: indices, descriptor
//! numbers and lengths that they report are checked, and a wrong one is an error.
//!
//! **Block device** (5.2): [`ring`] has the slots of requests, [`disk`] submits requests and waits for them,
//! [`transfer`] performs those of a job with [`buffers`]; [`image`] is the disk of the machine.
//!
//! **Network card** (5.1): [`card`] sends and receives frames, [`stack`] is TCP/IP over it, [`client`] performs the
//! exchanges of a job. In another guest [`server`] answers them, and receives numbered frames
//! ([`trapline_workloads::packets`]). [`network`] has the cards of the machine.
//!
//! Nothing here runs unless a job selects workload `block`, `files` or `net`, or the image is the other guest of `net`.

mod buffers;
mod card;
mod client;
mod disk;
mod doorbell;
#[cfg(trapline_image)]
mod image;
#[cfg(trapline_image)]
mod mmio;
#[cfg(trapline_image)]
mod network;
mod pci;
#[cfg(trapline_image)]
mod pci_bus;
mod queue;
#[cfg(trapline_image)]
mod registers;
mod ring;
mod server;
mod stack;
mod transfer;
mod transport;

pub use disk::{Disk, SECTOR};
pub use ring::{Kind, Request, BYTES as RING_BYTES};
pub use transport::Access;

#[cfg(trapline_image)]
pub use image::{find_mmio as find_disk, open, read_back, transfer};
#[cfg(trapline_image)]
pub use mmio::{Mmio, VECTOR};
#[cfg(trapline_image)]
pub use network::{exchange, open as open_network, open_link, receive_packets, send_packets};
#[cfg(trapline_image)]
pub use pci_bus::set_gap;
#[cfg(trapline_image)]
pub use registers::{check_first_device, registers, NotifiedDevice};

#[cfg(test)]
mod doorbell_tests;
#[cfg(test)]
pub mod fake;
#[cfg(test)]
pub mod fake_memory;
#[cfg(test)]
mod fake_network;
#[cfg(test)]
mod network_tests;
#[cfg(test)]
mod packet_tests;
#[cfg(test)]
mod pci_tests;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod tests;
