//! The configuration of a guest's machine.

use crate::load::Serial;
use crate::scheduling::Scheduling;
use crate::sharing::Halt;

/// The machine a guest gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Memory beside that, in MiB, which it may be given while it runs; only counted
    /// where it is much.
    pub window_mib: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// How they are scheduled.
    pub scheduling: Scheduling,
    /// Who writes what it sends over its serial line, where our VMM makes it.
    pub serial: Serial,
    /// Where it halts, where KVM runs it.
    pub halt: Halt,
    /// Of which pages its memory is, where our VMM makes it.
    pub pages: MemoryPages,
}

/// Of which pages a guest's memory is on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryPages {
    /// Those of an anonymous file, so that others may have it, too.
    #[default]
    File,
    /// Of the VMM alone, of 4 KiB.
    Small,
    /// Of the VMM alone, of 2 MiB where the kernel has such.
    Huge,
}

impl MemoryPages {
    /// Its name on a command line, trapline-vmm's, too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Small => "4k",
            Self::Huge => "2m",
        }
    }

    /// The one called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::File, Self::Small, Self::Huge];
        all.into_iter().find(|pages| pages.name() == name)
    }
}
