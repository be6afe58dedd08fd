//! Capabilities of a hypervisor, and reasons why it is not available.

use crate::Errno;
use thiserror::Error;

/// Execution of guest code at ring 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring0 {
    /// By the CPU, with VMX or SVM.
    Native,
    /// By an emulator, about a thousand times slower, on a host without VMX and SVM. Ring 3 runs natively.
    Emulated,
}

/// Capabilities of a hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Execution of guest code at ring 0.
    pub ring0: Ring0,
    /// Largest number of vCPUs of one VM.
    pub vcpus: u32,
    /// Local APICs, reached by [`crate::Vm::irq_line`].
    pub irq_lines: bool,
    /// An I/O APIC, reached by [`crate::Vm::irq_pin`].
    pub irq_pins: bool,
    /// [`crate::Vm::doorbell`] is supported.
    pub doorbells: bool,
    /// Memory can be attached [`crate::Access::ReadOnly`].
    pub read_only: bool,
    /// [`crate::Vm::track_dirty`] is supported.
    pub dirty: bool,
    /// The guest TSC can be set equal to the host TSC.
    pub tsc_offset: bool,
    /// The hypervisor counts exits per vCPU.
    pub kernel_exits: bool,
    /// [`crate::VmSpec::halt_in_guest`] is supported.
    pub halt_in_guest: bool,
}

/// Reason why a hypervisor is not available.
#[derive(Debug, Error)]
pub enum Missing {
    /// The device does not exist.
    #[error("{device} does not exist: load the kernel's KVM module (modprobe kvm_amd or kvm_intel), or enable virtualization in the firmware or for the outer virtual machine")]
    NoDevice {
        /// Device path.
        device: &'static str,
    },
    /// Linux is not the first domain of Xen.
    #[error("{device} does not exist: run this in the first domain of Xen, with the kernel's modules xen-privcmd and xen-evtchn")]
    NotXen {
        /// Device path.
        device: &'static str,
    },
    /// The user may not open the device.
    #[error("{device} may not be opened by this user: add it to the group that owns the device (usermod -aG kvm USER), then log in again")]
    NotPermitted {
        /// Device path.
        device: &'static str,
    },
    /// Only the owner of the device may open it.
    #[error("{device} may be opened by its owner only: give it to a group (chgrp kvm {device}; chmod 660 {device}), or run as its owner")]
    OwnerOnly {
        /// Device path.
        device: &'static str,
    },
    /// The API version differs.
    #[error("{device} speaks API version {found}, not {wanted}: another device is there (ls -l {device}; modprobe kvm), or a kernel before Linux 2.6.22")]
    Version {
        /// Device path.
        device: &'static str,
        /// Version of the device.
        found: i32,
        /// Version of this program.
        wanted: i32,
    },
    /// A required capability is missing.
    #[error("{device} lacks {capability}: use a newer kernel")]
    Lacks {
        /// Device path.
        device: &'static str,
        /// Missing capability.
        capability: &'static str,
    },
    /// Any other error.
    #[error("{device} cannot be used: {source}")]
    Unusable {
        /// Device path.
        device: &'static str,
        /// Error of the operating system.
        source: Errno,
    },
}
