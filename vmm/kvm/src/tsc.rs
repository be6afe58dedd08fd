//! TSC offset of a vCPU.
//!
//! With offset 0, guest and VMM stamps share one clock. Linux 5.16 can set the offset
//! (Documentation/virt/kvm/devices/vcpu.rst, group KVM_VCPU_TSC_CTRL). Older kernels choose it and do not
//! report it.

use kvm_bindings::{kvm_device_attr, KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET};
use std::os::fd::RawFd;

/// `_IOW(KVMIO, 0xe1, struct kvm_device_attr)`.
const KVM_SET_DEVICE_ATTR: libc::c_ulong = 0x4018_aee1;
/// `_IOW(KVMIO, 0xe2, struct kvm_device_attr)`.
const KVM_GET_DEVICE_ATTR: libc::c_ulong = 0x4018_aee2;

/// Sets the offset to 0 if possible; returns the offset if known.
pub(crate) fn align(vcpu: RawFd) -> Option<i64> {
    let mut offset = 0i64;
    if request(vcpu, KVM_SET_DEVICE_ATTR, &mut offset) {
        return Some(0);
    }
    request(vcpu, KVM_GET_DEVICE_ATTR, &mut offset).then_some(offset)
}

fn request(vcpu: RawFd, request: libc::c_ulong, offset: &mut i64) -> bool {
    let attribute = kvm_device_attr {
        flags: 0,
        group: KVM_VCPU_TSC_CTRL,
        attr: KVM_VCPU_TSC_OFFSET.into(),
        addr: std::ptr::from_mut(offset) as u64,
    };
    // SAFETY: both requests take this structure, whose address points at eight
    // bytes that live and may be written until the call returns.
    unsafe { libc::ioctl(vcpu, request, std::ptr::from_ref(&attribute)) == 0 }
}
