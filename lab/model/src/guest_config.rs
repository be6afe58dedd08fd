//! Configuration of a guest.

use crate::load::Serial;
use crate::placement::Pin;
use crate::scheduling::Scheduling;
use crate::sharing::Halt;

/// Configuration of a guest, as a launcher gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Further memory in MiB that may be hotplugged, if it is large.
    pub window_mib: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// CPU affinity of the virtual CPU's thread.
    pub pin: Pin,
    /// Scheduling of a Xen domain.
    pub scheduling: Scheduling,
    /// Output of the serial port, in trapline-vmm.
    pub serial: Serial,
    /// Effect of HLT, on KVM.
    pub halt: Halt,
    /// Host pages of its memory, in trapline-vmm.
    pub pages: MemoryPages,
}

impl GuestConfig {
    /// The configuration without any setting. Presets have further sizes of memory.
    pub const DEFAULT: Self = Self {
        memory_mib: 512,
        window_mib: 0,
        cpus: 1,
        pin: Pin::Free,
        scheduling: Scheduling::DEFAULT,
        serial: Serial::Lines,
        halt: Halt::Exits,
        pages: MemoryPages::File,
    };
}

/// Host pages of guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPages {
    /// An anonymous file, which other processes can map.
    #[default]
    File,
    /// Private pages of 4 KiB.
    Small,
    /// Private pages of 2 MiB, where the kernel has some.
    Huge,
}

impl MemoryPages {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::File, Self::Small, Self::Huge];

    /// Their names, in the same order.
    pub const NAMES: [&str; 3] = ["file", "4k", "2m"];

    /// Returns the name, which is also a value of trapline-vmm's `--pages`.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}
