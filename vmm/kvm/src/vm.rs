//! A KVM VM: memory slots, interrupts, doorbells.

use crate::memory::{attach_error, free_slot, Attached, Shared};
use crate::vcpu::KvmVcpu;
use crate::{cpuid, memory_types};
use kvm_bindings::{
    kvm_enable_cap, kvm_irq_routing_entry, kvm_irq_routing_msi, kvm_msi, CpuId, KvmIrqRouting,
    KVM_CAP_PMU_CAPABILITY, KVM_CAP_SPLIT_IRQCHIP, KVM_CAP_X86_DISABLE_EXITS, KVM_IRQ_ROUTING_MSI,
    KVM_MEM_LOG_DIRTY_PAGES, KVM_MEM_READONLY, KVM_PMU_CAP_DISABLE, KVM_X86_DISABLE_EXITS_HLT,
};
use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use trapline_interface::{
    Access, BootState, Controllers, Doorbell, Error, Gpa, IoAddr, IrqId, IrqLine, Region, Result,
    VcpuId, Vm, VmSpec,
};
use vmm_sys_util::eventfd::EventFd;

/// Address of MSIs (Intel SDM volume 3, 11.11.1).
const MSI_ADDRESS: u32 = 0xfee0_0000;

/// Vectors of devices.
const VECTORS: std::ops::Range<u32> = 32..256;

/// Address of the real-mode TSS, three pages below the BIOS, needed by Intel CPUs without unrestricted guest.
const TSS: usize = 0xfffb_d000;

/// A KVM VM.
pub struct KvmVm {
    shared: Arc<Shared>,
    cpuid: CpuId,
    controllers: Controllers,
}

impl KvmVm {
    pub(crate) fn new(system: &kvm_ioctls::Kvm, fd: VmFd, spec: &VmSpec) -> Result<Self> {
        disable_counters(&fd);
        match spec.controllers {
            Controllers::None => {}
            Controllers::Local => create_local_apics(&fd)?,
            Controllers::Full => create_irqchip(&fd)?,
        }
        if spec.halt_in_guest {
            disable_halt_exits(&fd)?;
        }
        fd.set_tss_address(TSS)
            .map_err(Error::refused("place the task state of real mode"))?;
        Ok(Self {
            cpuid: cpuid::for_first_vcpu(system, spec)?,
            shared: Arc::new(Shared {
                fd,
                memory: Mutex::default(),
            }),
            controllers: spec.controllers,
        })
    }
}

/// Disables the guest's PMU (Linux 5.18), so that KVM switches no counters at exits. Older kernels refuse,
/// which has no other effect.
fn disable_counters(fd: &VmFd) {
    let mut capability = kvm_enable_cap {
        cap: KVM_CAP_PMU_CAPABILITY,
        ..Default::default()
    };
    capability.args[0] = KVM_PMU_CAP_DISABLE.into();
    let _older_kernels_refuse = fd.enable_cap(&capability);
}

/// Creates local APICs only.
fn create_local_apics(fd: &VmFd) -> Result<()> {
    let capability = kvm_enable_cap {
        cap: KVM_CAP_SPLIT_IRQCHIP,
        ..Default::default()
    };
    fd.enable_cap(&capability)
        .map_err(Error::refused("create local interrupt controllers"))
}

/// Disables HLT exits. Must precede the first vCPU.
fn disable_halt_exits(fd: &VmFd) -> Result<()> {
    let mut capability = kvm_enable_cap {
        cap: KVM_CAP_X86_DISABLE_EXITS,
        ..Default::default()
    };
    capability.args[0] = KVM_X86_DISABLE_EXITS_HLT.into();
    fd.enable_cap(&capability)
        .map_err(Error::refused("leave halts to the guest"))
}

/// Creates local APICs, an I/O APIC, and KVM's PIC, which is not announced to the guest.
fn create_irqchip(fd: &VmFd) -> Result<()> {
    fd.create_irq_chip()
        .map_err(Error::refused("create interrupt controllers"))
}

/// Returns routes of the interrupts with these numbers to the vectors of vCPU 0 with the same numbers.
fn vector_routes() -> Result<KvmIrqRouting> {
    let route = |vector: u32| {
        let mut route = kvm_irq_routing_entry {
            gsi: vector,
            type_: KVM_IRQ_ROUTING_MSI,
            ..Default::default()
        };
        route.u.msi = kvm_irq_routing_msi {
            address_lo: MSI_ADDRESS,
            data: vector,
            ..Default::default()
        };
        route
    };
    let routes: Vec<_> = VECTORS.map(route).collect();
    KvmIrqRouting::from_entries(&routes)
        .map_err(|_| Error::Unsupported("route the interrupts of devices"))
}

impl Vm for KvmVm {
    type Vcpu = KvmVcpu;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        let mut memory = self.shared.memory();
        let length = region.len() as u64;
        let reason = attach_error(&memory, at, length)
            .or_else(|| cpuid::address_error(&self.cpuid, at.0 + length));
        if let Some(reason) = reason {
            return Err(Error::BadAttach { at, reason });
        }
        let slot = free_slot(&memory);
        let flags = match access {
            Access::ReadWrite => 0,
            Access::ReadOnly => KVM_MEM_READONLY,
        };
        self.shared.set_slot(slot, at, Some(&region), flags)?;
        let attached = Attached {
            slot,
            flags,
            region,
        };
        memory.insert(at, attached);
        Ok(())
    }

    fn detach(&self, at: Gpa) -> Result<Arc<Region>> {
        let mut memory = self.shared.memory();
        let slot = memory.get(&at).ok_or(Error::NotAttached(at))?.slot;
        self.shared.set_slot(slot, at, None, 0)?;
        let gone = memory.remove(&at).ok_or(Error::NotAttached(at))?;
        Ok(gone.region)
    }

    fn track_dirty(&self, at: Gpa, on: bool) -> Result<()> {
        let mut memory = self.shared.memory();
        let there = memory.get_mut(&at).ok_or(Error::NotAttached(at))?;
        let flags = if on {
            there.flags | KVM_MEM_LOG_DIRTY_PAGES
        } else {
            there.flags & !KVM_MEM_LOG_DIRTY_PAGES
        };
        self.shared
            .set_slot(there.slot, at, Some(&there.region), flags)?;
        there.flags = flags;
        Ok(())
    }

    fn dirty_log(&self, at: Gpa) -> Result<Vec<u64>> {
        let memory = self.shared.memory();
        let there = memory.get(&at).ok_or(Error::NotAttached(at))?;
        if there.flags & KVM_MEM_LOG_DIRTY_PAGES == 0 {
            return Err(Error::NotTracked(at));
        }
        self.shared
            .fd
            .get_dirty_log(there.slot, there.region.len())
            .map_err(Error::refused("ask which pages the guest wrote to"))
    }

    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<KvmVcpu> {
        let fd = self
            .shared
            .fd
            .create_vcpu(id.0.into())
            .map_err(Error::refused("create a virtual CPU"))?;
        cpuid::set(&fd, id, &self.cpuid)?;
        if self.controllers == Controllers::Full {
            memory_types::set_up(&fd)?;
        }
        KvmVcpu::new(fd, Arc::clone(&self.shared), boot)
    }

    fn irq_line(&self, irq: IrqId) -> Result<IrqLine> {
        if self.controllers == Controllers::None {
            return Err(Error::Unsupported("deliver interrupts to this machine"));
        }
        let shared = Arc::clone(&self.shared);
        let message = kvm_msi {
            address_lo: MSI_ADDRESS | irq.vcpu.0 << 12,
            data: irq.vector.into(),
            ..Default::default()
        };
        Ok(IrqLine::new(move || {
            shared
                .fd
                .signal_msi(message)
                .map(drop)
                .map_err(Error::refused("deliver an interrupt"))
        }))
    }

    fn irq_event(&self, irq: IrqId) -> Result<Option<IrqLine>> {
        let vector = u32::from(irq.vector);
        let has_route = irq.vcpu == VcpuId(0) && VECTORS.contains(&vector);
        if self.controllers != Controllers::Local || !has_route {
            return Ok(None);
        }
        self.shared
            .fd
            .set_gsi_routing(&vector_routes()?)
            .map_err(Error::refused("route the interrupts of devices"))?;
        self.event_line(vector).map(Some)
    }

    fn irq_pin(&self, pin: u8) -> Result<IrqLine> {
        if self.controllers != Controllers::Full {
            return Err(Error::Unsupported(CONNECT));
        }
        self.event_line(pin.into())
    }

    fn doorbell(&self, at: IoAddr) -> Result<Option<Doorbell>> {
        self.register_doorbell(at, NoDatamatch)
    }

    fn value_doorbell(&self, at: IoAddr, value: u32) -> Result<Option<Doorbell>> {
        self.register_doorbell(at, value)
    }
}

const CONNECT: &str = "connect a device's interrupt";

impl KvmVm {
    /// Returns a line that raises this interrupt by a write to an eventfd.
    fn event_line(&self, gsi: u32) -> Result<IrqLine> {
        let edge = EventFd::new(libc::EFD_CLOEXEC).map_err(Error::refused(CONNECT))?;
        self.shared
            .fd
            .register_irqfd(&edge, gsi)
            .map_err(Error::refused(CONNECT))?;
        Ok(IrqLine::with_event(owned(edge)))
    }

    fn register_doorbell<T: Into<u64>>(&self, at: IoAddr, value: T) -> Result<Option<Doorbell>> {
        let what = "place a doorbell";
        let bell =
            EventFd::new(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).map_err(Error::refused(what))?;
        let address = match at {
            IoAddr::Port(port) => IoEventAddress::Pio(port.into()),
            IoAddr::Mmio(address) => IoEventAddress::Mmio(address),
        };
        self.shared
            .fd
            .register_ioevent(&bell, &address, value)
            .map_err(Error::refused(what))?;
        Ok(Some(Doorbell(owned(bell))))
    }
}

fn owned(event: EventFd) -> OwnedFd {
    // SAFETY: the event's descriptor has no other owner.
    unsafe { OwnedFd::from_raw_fd(event.into_raw_fd()) }
}
