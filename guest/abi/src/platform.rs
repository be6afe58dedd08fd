//! Devices of the machines that guests run on, and files and lines of guests. Addresses and ports are those of the instruction
//! set that the crate is compiled for.

pub use crate::arch::native::platform::*;

/// Value that ends a machine after success: exit status [`EXIT_STATUS_DONE`].
pub const EXIT_DONE: u32 = 0x10;
/// Value that ends it after a panic: exit status [`EXIT_STATUS_PANIC`].
pub const EXIT_PANIC: u32 = 0x11;
/// Exit status of a machine whose guest succeeded.
pub const EXIT_STATUS_DONE: i32 = (EXIT_DONE as i32) << 1 | 1;
/// Exit status of a machine whose guest panicked.
pub const EXIT_STATUS_PANIC: i32 = (EXIT_PANIC as i32) << 1 | 1;

/// Start of hotplugged memory: 4 GiB, above all other guest memory.
pub const HOTPLUG_BASE: u64 = 1 << 32;
/// Maximum size of hotplugged memory.
pub const HOTPLUG_SIZE: u64 = 1 << 30;

/// File of QEMU's firmware configuration device with the script of a simulated machine.
pub const JOB_FILE: &str = "opt/org.trapline/job";

/// Value of the `MagicValue` register of a transport: "virt".
pub const VIRTIO_MAGIC: u32 = 0x7472_6976;
/// Offset of the `DeviceFeatures` register, read only.
pub const VIRTIO_DEVICE_FEATURES: u64 = 0x10;
/// Offset of the `DeviceFeaturesSel` register, which selects 32 feature bits.
pub const VIRTIO_DEVICE_FEATURES_SEL: u64 = 0x14;

/// Prefix of a line in which the image names the virtio device that it accesses: a name and the value follow.
pub const VIRTIO_FACT_PREFIX: &str = "trapline-virtio-";

/// Prefix of a line with how often CPUs have woken each other in an operation: its name and the counts follow.
pub const WAKES_FACT_PREFIX: &str = "trapline-wakes-";

/// Prefix of a line about the page tables of programs, if they are isolated from the kernel: a name and the value follow.
pub const ISOLATION_FACT_PREFIX: &str = "trapline-isolation-";

/// Name of the domain that runs the image under Xen.
pub const DOMAIN: &str = "trapline";

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Pages of programs that are executed while workload `system` is measured: by a process of the image, and by the agent.
pub const PROGRAM_PAGES: [u64; 2] = [0x80_0000_1000, 0x2000_0000];
