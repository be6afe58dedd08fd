//! Platform devices.
//!
//! Devices own no descriptor and no thread. They use the services of a [`Shell`] and return an [`Effect`] for the VM. Every
//! access of any size to any address has a defined result and allocates nothing.

mod hotplug;
mod io_bus;
mod serial;
mod shell;
mod virtio;

pub use hotplug::{Hotplug, HotplugRequest};
pub use io_bus::{Effect, IoBus, IoBusConfig};
pub use serial::Serial;
pub use shell::{Shell, Terminal};
pub use virtio::Transport;
