//! KVM without its interrupt controllers: the local APIC is in the VMM.

use crate::vcpu::user_apic::{Lines, UserApicVcpu};
use crate::{ring0, Kvm, KvmVm};
use std::sync::Arc;
use trapline_interface::{
    Access, BootState, Caps, Controllers, Doorbell, Error, Gpa, Hypervisor, IoAddr, IrqId, IrqLine,
    Missing, Region, Result, Ring0, VcpuId, Vm, VmSpec,
};

/// KVM, of which the VMM uses the vCPU and memory only.
pub struct KvmUserApic(Kvm);

/// A VM with one vCPU, whose local APIC is in the VMM.
pub struct KvmUserApicVm {
    vm: KvmVm,
    /// Requests for the APIC; `None` in a VM without interrupts.
    lines: Option<Arc<Lines>>,
}

impl Hypervisor for KvmUserApic {
    type Vm = KvmUserApicVm;

    fn probe() -> std::result::Result<Caps, Missing> {
        Ok(Caps {
            vcpus: 1,
            irq_lines: true,
            irq_pins: false,
            halt_in_guest: false,
            ..Kvm::probe()?
        })
    }

    fn open() -> std::result::Result<Self, Missing> {
        Kvm::open().map(Self)
    }

    fn create_vm(&self, spec: &VmSpec) -> Result<KvmUserApicVm> {
        if spec.controllers == Controllers::Full || spec.halt_in_guest || spec.cpus != 1 {
            return Err(Error::Unsupported("create such a VM"));
        }
        if ring0() == Ring0::Emulated {
            return Err(Error::Unsupported("interrupt a guest at ring 3"));
        }
        let has_apic = spec.controllers == Controllers::Local;
        let spec = VmSpec {
            controllers: Controllers::None,
            ..*spec
        };
        Ok(KvmUserApicVm {
            vm: self.0.create_vm(&spec)?,
            lines: has_apic.then(Arc::default),
        })
    }
}

impl Vm for KvmUserApicVm {
    type Vcpu = UserApicVcpu;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        self.vm.attach(at, region, access)
    }

    fn detach(&self, at: Gpa) -> Result<Arc<Region>> {
        self.vm.detach(at)
    }

    fn track_dirty(&self, at: Gpa, on: bool) -> Result<()> {
        self.vm.track_dirty(at, on)
    }

    fn dirty_log(&self, at: Gpa) -> Result<Vec<u64>> {
        self.vm.dirty_log(at)
    }

    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<UserApicVcpu> {
        UserApicVcpu::new(self.vm.create_vcpu(id, boot)?, self.lines.as_ref())
    }

    fn irq_line(&self, irq: IrqId) -> Result<IrqLine> {
        match &self.lines {
            Some(lines) if irq.vcpu == VcpuId(0) => Ok(lines.line(irq.vector)),
            _ => Err(Error::Unsupported("interrupt this vCPU")),
        }
    }

    fn irq_pin(&self, _: u8) -> Result<IrqLine> {
        Err(Error::Unsupported("interrupt by a pin"))
    }

    fn doorbell(&self, at: IoAddr) -> Result<Option<Doorbell>> {
        self.vm.doorbell(at)
    }

    fn value_doorbell(&self, at: IoAddr, value: u32) -> Result<Option<Doorbell>> {
        self.vm.value_doorbell(at, value)
    }
}
