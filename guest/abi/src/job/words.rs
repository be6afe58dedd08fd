//! Values of a job that are chosen from a list of names.

use crate::names::named;

named! {
    /// Device that a guest sends its records to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Console {
        /// The first 16550 serial port, [`crate::platform::COM1`].
        Serial = "serial",
        /// A port that takes one byte per write and is always ready,
        /// [`crate::platform::DEBUG_CONSOLE`].
        Port = "port",
        /// A port that takes one frame per write, [`crate::platform::FRAME`].
        Frames = "frames",
        /// The console ring of a Xen domain.
        Xen = "xen",
    }
}

named! {
    /// Misbehaviour of a guest, to test the programs that run guests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Fault {
        /// Panics with a message.
        Panic = "panic",
        /// Loops forever without leaving the guest.
        Hang = "hang",
        /// Halts without any interrupt enabled.
        Sleep = "sleep",
        /// Causes a triple fault.
        Triple = "triple",
        /// Writes text without end.
        Flood = "flood",
        /// Writes incomplete frames, then runs the job.
        Garble = "garble",
        /// Runs programs in ring 3 that misbehave, then the job. Panics if the kernel does not
        /// contain them, or has no processes.
        Programs = "programs",
    }
}

named! {
    /// Method by which the image ends its machine.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Shutdown {
        /// Writes an exit status to [`crate::platform::EXIT`].
        #[default]
        Port = "port",
        /// Resets the machine, as an operating system does.
        Reset = "reset",
        /// Switches the machine off by ACPI if its tables have a register for it, and resets it otherwise. Custom VMMs
        /// support only this.
        PowerOff = "power-off",
        /// Asks Xen to shut down the domain.
        Xen = "xen",
        /// Asks Xen to reboot the machine. Only the first domain may.
        XenMachine = "xen-machine",
    }
}

named! {
    /// Transport of the virtio devices of a machine (virtio 1.2, section 4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Transport {
        /// Registers in memory.
        #[default]
        Mmio = "mmio",
        /// Functions of PCI bus 0.
        Pci = "pci",
    }
}

named! {
    /// Time at which the image zeroes memory of workload `basic`, and the stores that it uses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Zeroing {
        /// In the allocation, with ordinary stores.
        #[default]
        Demand = "demand",
        /// In the allocation, with non-temporal stores.
        DemandNonTemporal = "demand-nt",
        /// Between batches, into a pool, with ordinary stores.
        Idle = "idle",
        /// Between batches, into a pool, with non-temporal stores.
        IdleNonTemporal = "idle-nt",
    }
}

impl Zeroing {
    /// Returns true if memory is zeroed before it is allocated.
    pub const fn is_idle(self) -> bool {
        matches!(self, Self::Idle | Self::IdleNonTemporal)
    }

    /// Returns true if the stores bypass the caches.
    pub const fn is_non_temporal(self) -> bool {
        matches!(self, Self::DemandNonTemporal | Self::IdleNonTemporal)
    }
}

named! {
    /// Page tables on which programs run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Isolation {
        /// The kernel's own tables, or what a Linux kernel chooses by itself.
        #[default]
        None = "none",
        /// Tables of their own, which do not map the kernel (Linux, Documentation/x86/pti.rst).
        Kpti = "kpti",
    }
}

named! {
    /// Activity of a guest while it waits for an interrupt of workload `irq`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    WaitMode {
        /// Halts the CPU.
        #[default]
        Halt = "halt",
        /// Polls a counter in memory.
        Poll = "poll",
        /// Writes to the serial port as fast as it can.
        Flood = "flood",
    }
}
