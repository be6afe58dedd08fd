//! Addresses, exits and entries.

use core::fmt;

/// A guest-physical address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpa(pub u64);

impl fmt::Display for Gpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An address outside guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoAddr {
    /// I/O port.
    Port(u16),
    /// Guest-physical address without memory.
    Mmio(u64),
}

impl fmt::Display for IoAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "port {port:#x}"),
            Self::Mmio(address) => write!(f, "mmio {address:#x}"),
        }
    }
}

/// Access rights to attached memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read, write and execute.
    ReadWrite,
    /// Read and execute; a write exits as [`Exit::Write`].
    ReadOnly,
}

/// Input of a guest entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Resume.
    Resume,
    /// Resume with the result of the last [`Exit::Read`] or [`Exit::Hypercall`]. Bytes beyond the size of
    /// the access are ignored.
    Answer(u64),
}

/// Reason of a guest exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// First exit of every vCPU, before its first instruction.
    Started,
    /// Read access; the next entry carries the result.
    Read {
        /// Address.
        at: IoAddr,
        /// Size in bytes: 1, 2, 4, and for memory 8.
        size: u8,
    },
    /// Write access.
    Write {
        /// Address.
        at: IoAddr,
        /// Size in bytes: 1, 2, 4, and for memory 8.
        size: u8,
        /// Value, zero-extended.
        data: u64,
    },
    /// Hypercall not handled by the hypervisor.
    Hypercall {
        /// Number, from `rax`.
        number: u64,
        /// Arguments, in the order of the hypervisor's calling convention.
        args: [u64; 4],
    },
    /// `hlt` without a local APIC in the hypervisor.
    Halted,
    /// A [`crate::Kicker`] was used.
    Kicked,
    /// The guest cannot continue.
    Stopped(Stop),
}

/// Reason why a guest cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Triple fault.
    TripleFault,
    /// The guest requested power-off or reset from the hypervisor.
    Shutdown,
    /// VM entry failed, with the hardware's reason.
    EntryFailed(u64),
    /// The guest executed an instruction that the hypervisor cannot emulate.
    Emulation,
    /// Internal error of the hypervisor, with its suberror.
    Internal(u32),
    /// Exit reason not covered by this interface.
    Unknown(u32),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TripleFault => f.write_str("triple-fault"),
            Self::Shutdown => f.write_str("shutdown"),
            Self::EntryFailed(reason) => write!(f, "entry-failed {reason:#x}"),
            Self::Emulation => f.write_str("emulation-failed"),
            Self::Internal(reason) => write!(f, "internal {reason:#x}"),
            Self::Unknown(reason) => write!(f, "unknown {reason:#x}"),
        }
    }
}

/// One line of a conformance trace.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("started"),
            Self::Read { at, size } => write!(f, "read {at} size {size}"),
            Self::Write { at, size, data } => write!(f, "write {at} size {size} data {data:#x}"),
            Self::Hypercall { number, args } => write!(f, "hypercall {number:#x} {args:x?}"),
            Self::Halted => f.write_str("halted"),
            Self::Kicked => f.write_str("kicked"),
            Self::Stopped(stop) => write!(f, "stopped {stop}"),
        }
    }
}
