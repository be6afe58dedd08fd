//! Options of trapline-vmm with named values.

use crate::named::named;

/// Host pages of guest memory: `--pages`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryPages {
    /// An anonymous file, which other processes can map.
    #[default]
    File,
    /// Private pages of 4 KiB.
    Small,
    /// Private pages of 2 MiB, where the kernel has some.
    Huge,
}

named!(MemoryPages { File "file", Small "4k", Huge "2m" });

/// Mechanism for the hypercalls of a guest that is a process: `--crossing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// The fastest.
    #[default]
    Auto,
    /// System calls rewritten as jumps to a handler in the process.
    Rewrite,
    /// Calls of a handler in the process.
    Direct,
    /// System calls that raise SIGSYS by syscall user dispatch.
    Dispatch,
    /// System calls that raise SIGSYS by a seccomp filter.
    Trap,
    /// System calls of which a seccomp filter notifies the VMM.
    Notify,
    /// System calls that stop the process for its tracer.
    Ptrace,
}

named!(Crossing { Auto "auto", Rewrite "rewrite", Direct "direct", Dispatch "dispatch", Trap "trap", Notify "notify", Ptrace "ptrace" });

/// Population of a virtual machine's memory: `--prefault`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Population {
    /// On demand: the guest touches it.
    #[default]
    Demand,
    /// By the VMM before the guest runs, in bounded steps.
    Steps,
    /// By the VMM before the guest runs, in one system call.
    Whole,
}

named!(Population { Demand "demand", Steps "steps", Whole "whole" });

/// Output of a guest's serial port: `--serial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serial {
    /// The vCPU thread writes each complete line: the VMM's default.
    #[default]
    Lines,
    /// The vCPU thread writes each byte.
    Direct,
    /// A separate thread writes.
    Buffered,
}

named!(Serial { Lines "lines", Direct "direct", Buffered "buffered" });
