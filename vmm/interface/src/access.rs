//! Addresses, and what passes between a guest and its VMM at them.

use std::fmt;

/// A guest-physical address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpa(pub u64);

impl fmt::Display for Gpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Where a guest reaches out of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoAddr {
    /// An I/O port.
    Port(u16),
    /// A guest-physical address without memory behind it.
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

/// What a guest may do with attached memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read, write and execute.
    ReadWrite,
    /// Read and execute; a write is a [`Exit::Write`].
    ReadOnly,
}

/// What a vCPU is told when it is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Go on.
    Resume,
    /// Go on; this is what the [`Exit::Read`] before reads, or what the
    /// [`Exit::Hypercall`] before returns. Bytes beyond the size of the access are
    /// ignored.
    Answer(u64),
}

/// Why a vCPU was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The first exit of every vCPU, before its first instruction: the
    /// moment to adjust its state.
    Started,
    /// The guest reads; the next entry is the answer.
    Read {
        /// Where.
        at: IoAddr,
        /// Bytes: 1, 2, 4, and for memory 8.
        size: u8,
    },
    /// The guest writes.
    Write {
        /// Where.
        at: IoAddr,
        /// Bytes: 1, 2, 4, and for memory 8.
        size: u8,
        /// What, zero-extended.
        data: u64,
    },
    /// The guest calls, and the kernel leaves the answer to the VMM.
    Hypercall {
        /// Which call, `rax`.
        number: u64,
        /// Its arguments, as the calling convention of the kernel has them.
        args: [u64; 4],
    },
    /// The guest halts and no kernel waits for its interrupts.
    Halted,
    /// Somebody used the [`crate::Kicker`]: pause, recall, a signal.
    Kicked,
    /// The guest cannot go on.
    Stopped(Stop),
}

/// Why a guest cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A fault while handling a fault while handling a fault.
    TripleFault,
    /// The guest asked the kernel for power-off or reset.
    Shutdown,
    /// The hardware refused to enter the guest, for this reason.
    EntryFailed(u64),
    /// The kernel could not go on emulating, for this reason.
    Internal(u32),
    /// An exit for which this interface has no word, with its number.
    Unknown(u32),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TripleFault => f.write_str("triple-fault"),
            Self::Shutdown => f.write_str("shutdown"),
            Self::EntryFailed(reason) => write!(f, "entry-failed {reason:#x}"),
            Self::Internal(reason) => write!(f, "internal {reason:#x}"),
            Self::Unknown(reason) => write!(f, "unknown {reason:#x}"),
        }
    }
}

/// The line of a trace; the conformance suite compares these literally.
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
