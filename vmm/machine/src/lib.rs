//! The Linux program around the monitor: files, threads, seccomp and taps. One VM per process.
//!
//! [`setup`] creates a VM for an image and [`Machine`] runs it; [`linux`] does both for a kernel. [`shell`] connects the
//! monitor to the [`console`], the [`ticker`] and [`hotplug`]. Image guests have no helper threads unless requested, and
//! the VMM allocates little: both delay the guest's first instruction.

pub mod clock;
pub mod console;
pub mod descriptors;
pub mod disk;
mod entropy;
pub mod events;
pub mod failure;
pub mod file;
pub mod hotplug;
pub mod image_devices;
mod inherited;
pub mod input;
#[cfg(test)]
mod isolated;
pub mod linux;
pub mod machine;
pub mod net;
pub mod placement;
mod poll;
pub mod privileges;
pub mod sandbox;
pub mod secondary;
pub mod settings;
pub mod setup;
pub mod shell;
pub mod signals;
pub mod stop;
pub mod threads;
pub mod ticker;
pub mod usage;
pub mod virtio;
pub mod vsock;

pub use failure::Failure;
pub use machine::Machine;
pub use settings::VmConfig;
pub use trapline_monitor::StopReason;
