//! What a kernel offers, and why it offers nothing.

use std::io;
use thiserror::Error;

/// What guest code at ring 0 runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring0 {
    /// The CPU: VMX or SVM.
    Native,
    /// An emulator, a thousand times slower, because the host shows neither VMX
    /// nor SVM. Ring 3 is native there.
    Emulated,
}

/// What a kernel offers to its virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// How ring-0 guest code runs.
    pub ring0: Ring0,
    /// The most vCPUs of one machine.
    pub vcpus: u32,
    /// Local interrupt controllers in the kernel, reached by [`crate::Vm::irq_line`].
    pub irq_lines: bool,
    /// One with pins for devices, reached by [`crate::Vm::irq_pin`].
    pub irq_pins: bool,
    /// [`crate::Vm::doorbell`] works.
    pub doorbells: bool,
    /// Memory can be attached [`crate::Access::ReadOnly`].
    pub read_only: bool,
    /// [`crate::Vm::track`] works.
    pub dirty: bool,
    /// The guest's TSC can be made equal to the host's.
    pub tsc_offset: bool,
    /// The kernel tells how often a vCPU left the guest.
    pub kernel_exits: bool,
    /// A guest can halt without leaving, see [`crate::VmSpec::halt_in_guest`].
    pub halt_in_guest: bool,
}

/// Why there is no hypervisor here, and what would mend it.
#[derive(Debug, Error)]
pub enum Missing {
    /// The kernel does not offer it at all.
    #[error("{device} does not exist: load the kernel's KVM module (modprobe kvm_amd or kvm_intel), or enable virtualization in the firmware or for the outer virtual machine")]
    NoDevice {
        /// The device looked for.
        device: &'static str,
    },
    /// It is there, for others.
    #[error("{device} may not be opened by this user: add it to the group that owns the device (usermod -aG kvm USER), then log in again")]
    NotPermitted {
        /// The device looked for.
        device: &'static str,
    },
    /// It speaks another language.
    #[error("{device} speaks API version {found}, this program {wanted}: use a kernel of the last fifteen years")]
    Version {
        /// The device looked for.
        device: &'static str,
        /// Its version.
        found: i32,
        /// Ours.
        wanted: i32,
    },
    /// It lacks something that no machine can do without.
    #[error("{device} lacks {capability}: use a newer kernel")]
    Lacks {
        /// The device looked for.
        device: &'static str,
        /// What it lacks.
        capability: &'static str,
    },
    /// Anything else.
    #[error("{device} cannot be used: {source}")]
    Unusable {
        /// The device looked for.
        device: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
}
