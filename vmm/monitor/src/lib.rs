//! The core of the virtual machine monitor: `no_std` with `alloc`.
//!
//! [`boot`] loads a guest image or a Linux kernel, [`run()`] runs a vCPU, [`devices`] emulates the platform's devices, and
//! [`virtio`] implements virtio devices over MMIO. The core opens no file, starts no thread and makes no system call; the
//! program around it provides these as a [`devices::Shell`] and a [`Platform`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod boot;
pub mod devices;
mod exits;
mod run;
mod spaces;
mod stop;
pub mod virtio;

pub use exits::{ExitCounter, ExitCounters, ExitCounts};
pub use run::{run, start, Devices, Platform};
pub use stop::StopReason;
