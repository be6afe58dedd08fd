//! Mechanisms by which a guest's hypercalls reach their handler.

use trapline_abi::platform::{HYPERCALL_CALL, HYPERCALL_SYSCALL};

/// A mechanism for hypercalls. All other exits are signals that the process reports itself, with [`Self::Ptrace`] to its
/// tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// [`Self::Direct`], the fastest.
    #[default]
    Auto,
    /// System calls that the image marks are rewritten at their first execution, as jumps to a handler in the process.
    Rewrite,
    /// The image calls the handler in the process.
    Direct,
    /// A system call raises SIGSYS in the process (syscall user dispatch), whose handler answers marked calls.
    Dispatch,
    /// The seccomp filter raises it instead.
    Trap,
    /// The seccomp filter notifies the VMM of a system call, which answers it.
    Notify,
    /// A system call stops the process, and its tracer handles it.
    Ptrace,
}

/// Source of SIGSYS for system calls outside of the switcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalSource {
    /// Syscall user dispatch (Linux 5.11).
    Dispatch,
    /// The seccomp filter.
    Filter,
    /// A filter with a listener for the hypercalls of images and the reports of the handler.
    NotifyingFilter,
}

impl Crossing {
    /// All mechanisms.
    pub const ALL: [Self; 7] = [
        Self::Auto,
        Self::Rewrite,
        Self::Direct,
        Self::Dispatch,
        Self::Trap,
        Self::Notify,
        Self::Ptrace,
    ];

    /// Returns the name, as the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Rewrite => "rewrite",
            Self::Direct => "direct",
            Self::Dispatch => "dispatch",
            Self::Trap => "trap",
            Self::Notify => "notify",
            Self::Ptrace => "ptrace",
        }
    }

    /// Returns the mechanism with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns what raises SIGSYS; `None` if the process is traced.
    pub(crate) fn signal_source(self) -> Option<SignalSource> {
        match self {
            Self::Auto | Self::Rewrite | Self::Direct | Self::Trap => Some(SignalSource::Filter),
            Self::Dispatch => Some(SignalSource::Dispatch),
            Self::Notify => Some(SignalSource::NotifyingFilter),
            Self::Ptrace => None,
        }
    }

    /// Returns whether the handler of signals answers marked system calls.
    pub(crate) fn has_answering_handler(self) -> bool {
        matches!(self, Self::Dispatch | Self::Trap)
    }

    /// Returns whether processes report stops in memory, so that a guest can have several.
    pub(crate) fn permits_several_processes(self) -> bool {
        !matches!(self, Self::Notify | Self::Ptrace)
    }

    /// Returns what port [`trapline_abi::platform::HYPERCALL`] reads.
    pub(crate) fn instruction(self) -> u32 {
        match self {
            Self::Auto | Self::Direct => HYPERCALL_CALL,
            Self::Rewrite | Self::Dispatch | Self::Trap | Self::Notify | Self::Ptrace => {
                HYPERCALL_SYSCALL
            }
        }
    }
}
