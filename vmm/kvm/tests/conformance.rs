//! The conformance suite on this host's KVM, rejected requests, and exit counts.

use std::sync::Arc;
use trapline_interface::conformance;
use trapline_interface::{
    Access, BootState, Controllers, Error, Gpa, Hypervisor, IrqId, Region, Ring0, Vcpu, VcpuId, Vm,
    VmSpec, PAGE,
};
use trapline_kvm::Kvm;
use trapline_skip::skip;

const BARE: VmSpec = VmSpec::with(Controllers::None);
const WITH_APIC: VmSpec = VmSpec::with(Controllers::Local);

/// Returns KVM, or reports a skip.
fn kvm() -> Option<Kvm> {
    Kvm::open()
        .map_err(|missing| skip("conformance of /dev/kvm", &missing.to_string()))
        .ok()
}

#[test]
fn kvm_conforms() {
    let Some(kvm) = kvm() else { return };
    let caps = Kvm::probe().unwrap();
    let report = conformance::run(&kvm, &caps).unwrap_or_else(|failure| panic!("{failure}"));
    for part in &report.skipped {
        skip(part.part, part.why);
    }
    if caps.ring0 == Ring0::Native && caps.irq_pins && caps.vcpus > 1 {
        assert_eq!(report.traces.len(), 8, "{report:?}");
    }
}

#[test]
fn invalid_attach_is_rejected() {
    let Some(kvm) = kvm() else { return };
    let vm = kvm.create_vm(&BARE).unwrap();
    let region = Arc::new(Region::new(2 * PAGE).unwrap());
    let attach = |at| vm.attach(Gpa(at), Arc::clone(&region), Access::ReadWrite);
    attach(0x10_0000).unwrap();
    for at in [0x10_0001, 0x10_0000, 0x0f_f000, 0x10_1000, !0xfff] {
        assert!(
            matches!(attach(at), Err(Error::BadAttach { .. })),
            "{at:#x}"
        );
    }
    attach(0x10_2000).unwrap();
    assert!(matches!(
        vm.detach(Gpa(0x10_1000)),
        Err(Error::NotAttached(_))
    ));
    vm.detach(Gpa(0x10_0000)).unwrap();
    attach(0x0f_f000).unwrap();
}

#[test]
fn dirty_log_requires_tracked_memory() {
    let Some(kvm) = kvm() else { return };
    let vm = kvm.create_vm(&BARE).unwrap();
    let (at, elsewhere) = (Gpa(0x10_0000), Gpa(0x10_1000));
    let attach = |access| {
        let region = Arc::new(Region::new(65 * PAGE).unwrap());
        vm.attach(at, region, access).unwrap();
    };
    attach(Access::ReadWrite);
    assert!(matches!(vm.dirty_log(at), Err(Error::NotTracked(_))));
    for refused in [
        vm.track_dirty(elsewhere, true),
        vm.dirty_log(elsewhere).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::NotAttached(_))));
    }
    vm.track_dirty(at, true).unwrap();
    vm.track_dirty(at, true).unwrap();
    assert_eq!(vm.dirty_log(at).unwrap(), [0, 0]);
    // What is attached there later is not tracked.
    vm.detach(at).unwrap();
    attach(Access::ReadOnly);
    assert!(matches!(vm.dirty_log(at), Err(Error::NotTracked(_))));
    vm.track_dirty(at, true).unwrap();
    assert_eq!(vm.dirty_log(at).unwrap(), [0, 0]);
}

#[test]
fn irq_line_requires_a_controller() {
    let Some(kvm) = kvm() else { return };
    let vm = kvm.create_vm(&BARE).unwrap();
    let irq = IrqId {
        vcpu: VcpuId(0),
        vector: 0x40,
    };
    assert!(matches!(vm.irq_line(irq), Err(Error::Unsupported(_))));
}

#[test]
fn halt_in_guest_requires_the_capability() {
    let Some(kvm) = kvm() else { return };
    let made = kvm.create_vm(&VmSpec {
        halt_in_guest: true,
        ..WITH_APIC
    });
    if Kvm::probe().unwrap().halt_in_guest {
        drop(made.unwrap())
    } else {
        assert!(matches!(made.err(), Some(Error::Unsupported(_))))
    }
}

#[test]
fn new_vcpu_has_no_exits_and_tsc_offset_zero() {
    let Some(kvm) = kvm() else { return };
    let caps = Kvm::probe().unwrap();
    let vm = kvm.create_vm(&WITH_APIC).unwrap();
    let mut vcpu = vm
        .create_vcpu(VcpuId(0), Some(&BootState::default()))
        .unwrap();
    assert_eq!(vcpu.stats().kernel_exits, caps.kernel_exits.then_some(0));
    if caps.tsc_offset {
        assert_eq!(vcpu.tsc_offset(), Some(0));
    }
}
