//! The core of the virtual machine monitor.
//!
//! [`boot`] loads a guest image or a Linux kernel, [`devices`] emulates the platform's devices,
//! and [`virtio`] implements virtio devices over MMIO. The core opens no file, starts no thread
//! and makes no system call; the program around it provides these.

pub mod boot;
pub mod devices;
pub mod virtio;
