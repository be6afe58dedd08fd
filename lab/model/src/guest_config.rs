//! Configuration of a guest.

use crate::scheduling::Scheduling;
use crate::vmm_options::{Crossing, MemoryPages, Serial};

/// Configuration of a guest, as a launcher gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Further memory in MiB that may be hotplugged, if it is large.
    pub window_mib: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Scheduling of the virtual CPUs.
    pub scheduling: Scheduling,
    /// Output of the serial port, in trapline-vmm.
    pub serial: Serial,
    /// Host pages of its memory, in trapline-vmm.
    pub pages: MemoryPages,
    /// Mechanism for hypercalls, in a process.
    pub crossing: Crossing,
}

impl GuestConfig {
    /// The configuration without any setting. Presets have further sizes of memory.
    pub const DEFAULT: Self = Self {
        memory_mib: 512,
        window_mib: 0,
        cpus: 1,
        scheduling: Scheduling::DEFAULT,
        serial: Serial::Lines,
        pages: MemoryPages::File,
        crossing: Crossing::Auto,
    };
}
