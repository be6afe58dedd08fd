//! Mechanisms by which a guest's hypercalls reach their handler.

use trapline_abi::platform::{HYPERCALL_CALL, HYPERCALL_SYSCALL};

/// A mechanism for hypercalls. All other exits are stops of the tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// [`Self::Direct`], the fastest.
    #[default]
    Auto,
    /// System calls that the image marks are rewritten at their first execution, as jumps to a handler in the process.
    Rewrite,
    /// The image calls the handler in the process.
    Direct,
    /// A system call stops the process, and its tracer handles it.
    Ptrace,
}

impl Crossing {
    /// All mechanisms.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Rewrite, Self::Direct, Self::Ptrace];

    /// Returns the name, as the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Rewrite => "rewrite",
            Self::Direct => "direct",
            Self::Ptrace => "ptrace",
        }
    }

    /// Returns the mechanism with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns what port [`trapline_abi::platform::HYPERCALL`] reads.
    pub(crate) fn instruction(self) -> u32 {
        match self {
            Self::Auto | Self::Direct => HYPERCALL_CALL,
            Self::Rewrite | Self::Ptrace => HYPERCALL_SYSCALL,
        }
    }
}
