//! Workloads: groups of operations.

/// Group of operations that answer one question and are selected together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Workload {
    /// Calls, switches and memory allocation of a kernel.
    Basic,
    /// Processes and their memory.
    System,
    /// Memory bandwidth, after McCalpin's STREAM.
    Stream,
    /// Latency of loads, by working set and order of addresses.
    Memory,
    /// Exits from the guest.
    Exits,
    /// Start and end of a VMM and its guest.
    Boot,
    /// Lateness of periodic timer interrupts.
    Irq,
    /// Memory hotplug.
    Populate,
    /// Latency of disk requests.
    Block,
    /// Files behind a page cache.
    Files,
    /// Latency and throughput of a network.
    Net,
    /// Semaphores between two CPUs.
    Ipc,
    /// Work of all CPUs at once.
    Smp,
}

impl Workload {
    /// All workloads, in display order.
    pub const ALL: [Workload; 13] = [
        Self::Basic,
        Self::System,
        Self::Stream,
        Self::Memory,
        Self::Exits,
        Self::Boot,
        Self::Irq,
        Self::Populate,
        Self::Block,
        Self::Files,
        Self::Net,
        Self::Ipc,
        Self::Smp,
    ];

    /// Returns the name, as used on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::System => "system",
            Self::Stream => "stream",
            Self::Memory => "memory",
            Self::Exits => "exits",
            Self::Boot => "boot",
            Self::Irq => "irq",
            Self::Populate => "populate",
            Self::Block => "block",
            Self::Files => "files",
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Smp => "smp",
        }
    }

    /// Returns the question that the workload answers.
    pub const fn question(self) -> &'static str {
        match self {
            Self::Basic => "What do a kernel's everyday operations cost here?",
            Self::System => "What do processes and their memory cost in an operating system?",
            Self::Stream => "How fast does memory move here?",
            Self::Memory => "How long does a load take, by size of the working set?",
            Self::Exits => "What does it cost to leave the guest and come back?",
            Self::Boot => "How long until the guest runs, and where does the time go?",
            Self::Irq => "How late does a timer's interrupt reach the guest, and why?",
            Self::Populate => "What does it cost to give a guest memory?",
            Self::Block => "How long does a request to a disk take, and how many are served?",
            Self::Files => "What do reads and writes cost, in the page cache and on the disk?",
            Self::Net => "How long does a message to a peer take, and how fast do bytes move?",
            Self::Ipc => "What does it cost to pass work between two CPUs? (insn: both added up)",
            Self::Smp => "How does work scale with the number of CPUs? (insn: all added up)",
        }
    }

    /// Returns the workload called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_a_name_and_operations() {
        for workload in Workload::ALL {
            assert_eq!(Workload::from_name(workload.name()), Some(workload));
            assert!(workload.operations().count() >= 2);
        }
    }
}
