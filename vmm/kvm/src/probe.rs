//! Opening and probing /dev/kvm.

use crate::vm::KvmVm;
use kvm_bindings::{
    KVM_API_VERSION, KVM_CAP_BINARY_STATS_FD, KVM_CAP_IOEVENTFD, KVM_CAP_IRQCHIP, KVM_CAP_IRQFD,
    KVM_CAP_READONLY_MEM, KVM_CAP_SIGNAL_MSI, KVM_CAP_SPLIT_IRQCHIP, KVM_CAP_VCPU_ATTRIBUTES,
    KVM_CAP_X86_DISABLE_EXITS, KVM_X86_DISABLE_EXITS_HLT,
};
use std::arch::x86_64::__cpuid;
use std::io;
use std::os::unix::fs::PermissionsExt;
use trapline_interface::{Caps, Error, Hypervisor, Missing, Result, Ring0, VmSpec};

/// Device of this backend.
pub const DEVICE: &str = "/dev/kvm";

/// An open /dev/kvm.
pub struct Kvm {
    system: kvm_ioctls::Kvm,
}

impl Hypervisor for Kvm {
    type Vm = KvmVm;

    fn probe() -> std::result::Result<Caps, Missing> {
        let kvm = Self::open()?;
        let has = |capability: u32| kvm.system.check_extension_raw(capability.into()) > 0;
        Ok(Caps {
            ring0: ring0(),
            vcpus: kvm.system.get_max_vcpus().try_into().unwrap_or(u32::MAX),
            irq_lines: has(KVM_CAP_SPLIT_IRQCHIP) && has(KVM_CAP_SIGNAL_MSI),
            irq_pins: has(KVM_CAP_IRQCHIP) && has(KVM_CAP_IRQFD),
            doorbells: has(KVM_CAP_IOEVENTFD),
            read_only: has(KVM_CAP_READONLY_MEM),
            // KVM on x86 has no capability bit for it.
            dirty: true,
            tsc_offset: has(KVM_CAP_VCPU_ATTRIBUTES),
            kernel_exits: has(KVM_CAP_BINARY_STATS_FD),
            halt_in_guest: can_disable_halt_exits(&kvm.system),
        })
    }

    fn open() -> std::result::Result<Self, Missing> {
        let system = kvm_ioctls::Kvm::new().map_err(|error| missing(error.into(), mode()))?;
        let found = system.get_api_version();
        let wanted = KVM_API_VERSION as i32;
        if found != wanted {
            return Err(Missing::Version {
                device: DEVICE,
                found,
                wanted,
            });
        }
        Ok(Self { system })
    }

    fn create_vm(&self, spec: &VmSpec) -> Result<KvmVm> {
        if spec.halt_in_guest && !can_disable_halt_exits(&self.system) {
            return Err(Error::Unsupported("let a guest halt without leaving it"));
        }
        let vm = self
            .system
            .create_vm()
            .map_err(Error::refused("create a virtual machine"))?;
        KvmVm::new(&self.system, vm, spec)
    }
}

/// Returns true if `hlt` can run without an exit: the capability exists and ring 0 is not emulated.
fn can_disable_halt_exits(system: &kvm_ioctls::Kvm) -> bool {
    let exits = system.check_extension_raw(KVM_CAP_X86_DISABLE_EXITS.into());
    exits > 0 && exits as u32 & KVM_X86_DISABLE_EXITS_HLT != 0 && ring0() == Ring0::Native
}

/// Returns the access mode of the device.
fn mode() -> Option<u32> {
    let metadata = std::fs::metadata(DEVICE).ok()?;
    Some(metadata.permissions().mode())
}

fn missing(source: io::Error, mode: Option<u32>) -> Missing {
    const GROUP: u32 = 0o060;
    let device = DEVICE;
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if mode.is_some_and(|mode| mode & GROUP != GROUP) => {
            Missing::OwnerOnly { device }
        }
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Missing::NoDevice { device },
        Some(libc::EACCES | libc::EPERM) => Missing::NotPermitted { device },
        _ => Missing::Unusable {
            device,
            source: source.into(),
        },
    }
}

/// Returns how ring-0 guest code runs: emulated if the CPU shows neither VMX (Intel SDM volume 2, CPUID leaf 1,
/// ecx bit 5) nor SVM (AMD APM volume 3, leaf 8000_0001, ecx bit 2).
pub fn ring0() -> Ring0 {
    let vmx = __cpuid(1).ecx & 1 << 5 != 0;
    let svm = __cpuid(0x8000_0000).eax > 0x8000_0000 && __cpuid(0x8000_0001).ecx & 1 << 2 != 0;
    if vmx || svm {
        Ring0::Native
    } else {
        Ring0::Emulated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_device_error_names_the_remedy() {
        let given = |code, mode| missing(io::Error::from_raw_os_error(code), mode).to_string();
        let message = |code| given(code, Some(0o660));
        assert!(message(libc::ENOENT).contains("modprobe"));
        assert!(message(libc::EACCES).contains("usermod -aG kvm"));
        assert!(given(libc::EACCES, Some(0o600)).contains("chmod 660"));
        assert!(message(libc::EMFILE).contains("cannot be used"));
    }
}
