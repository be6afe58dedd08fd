//! A KVM virtual machine: memory slots, interrupts, doorbells.

use crate::vcpu::KvmVcpu;
use crate::{cpuid, memory_types};
use kvm_bindings::{
    kvm_enable_cap, kvm_msi, kvm_userspace_memory_region, CpuId, KVM_CAP_PMU_CAPABILITY,
    KVM_CAP_SPLIT_IRQCHIP, KVM_CAP_X86_DISABLE_EXITS, KVM_MEM_LOG_DIRTY_PAGES, KVM_MEM_READONLY,
    KVM_PMU_CAP_DISABLE, KVM_X86_DISABLE_EXITS_HLT,
};
use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trapline_interface::{
    Access, BootState, Controllers, Doorbell, Error, Gpa, IoAddr, IrqId, IrqLine, Region, Result,
    VcpuId, Vm, VmSpec, PAGE,
};
use vmm_sys_util::eventfd::EventFd;

/// Messages to the local interrupt controllers (Intel SDM volume 3, 11.11.1).
const MESSAGES: u32 = 0xfee0_0000;

/// Three pages that Intel CPUs without unrestricted guests need; below the BIOS.
const TSS: usize = 0xfffb_d000;

/// A KVM virtual machine.
pub struct KvmVm {
    shared: Arc<Shared>,
    cpuid: CpuId,
    controllers: Controllers,
}

/// What a machine's vCPUs need as long as they live.
pub(crate) struct Shared {
    // In this order: the machine goes before its memory.
    fd: VmFd,
    memory: Mutex<BTreeMap<Gpa, Attached>>,
}

struct Attached {
    slot: u32,
    /// What the kernel was told of it.
    flags: u32,
    region: Arc<Region>,
}

impl KvmVm {
    pub(crate) fn new(system: &kvm_ioctls::Kvm, fd: VmFd, spec: &VmSpec) -> Result<Self> {
        disable_counters(&fd);
        match spec.controllers {
            Controllers::None => {}
            Controllers::Local => create_local_apics(&fd)?,
            Controllers::Full => create_all_controllers(&fd)?,
        }
        if spec.halt_in_guest {
            leave_halts(&fd)?;
        }
        fd.set_tss_address(TSS)
            .map_err(Error::refused("place the task state of real mode"))?;
        Ok(Self {
            cpuid: cpuid::of_first_vcpu(system, spec)?,
            shared: Arc::new(Shared {
                fd,
                memory: Mutex::default(),
            }),
            controllers: spec.controllers,
        })
    }
}

/// No performance counters for the guest, so that the kernel has none to switch or
/// advance at its exits (Linux 5.18). Older kernels refuse, which changes nothing
/// else.
fn disable_counters(fd: &VmFd) {
    let mut capability = kvm_enable_cap {
        cap: KVM_CAP_PMU_CAPABILITY,
        ..Default::default()
    };
    capability.args[0] = KVM_PMU_CAP_DISABLE.into();
    let _older_kernels_refuse = fd.enable_cap(&capability);
}

/// Local interrupt controllers only: no guest here uses the rest of a PC's interrupt
/// hardware.
fn create_local_apics(fd: &VmFd) -> Result<()> {
    let capability = kvm_enable_cap {
        cap: KVM_CAP_SPLIT_IRQCHIP,
        ..Default::default()
    };
    fd.enable_cap(&capability)
        .map_err(Error::refused("create local interrupt controllers"))
}

/// No exit when the guest halts. It has to be said before there is a vCPU.
fn leave_halts(fd: &VmFd) -> Result<()> {
    let mut capability = kvm_enable_cap {
        cap: KVM_CAP_X86_DISABLE_EXITS,
        ..Default::default()
    };
    capability.args[0] = KVM_X86_DISABLE_EXITS_HLT.into();
    fd.enable_cap(&capability)
        .map_err(Error::refused("leave halts to the guest"))
}

/// With pins for devices. The kernel makes a PC's old pair of controllers, too, which
/// nobody is told of.
fn create_all_controllers(fd: &VmFd) -> Result<()> {
    fd.create_irq_chip()
        .map_err(Error::refused("create interrupt controllers"))
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, BTreeMap<Gpa, Attached>> {
        // Whoever panicked left a map that is whole.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_slot(&self, slot: u32, at: Gpa, region: Option<&Region>, flags: u32) -> Result<()> {
        let slot = kvm_userspace_memory_region {
            slot,
            flags,
            guest_phys_addr: at.0,
            memory_size: region.map_or(0, |region| region.len() as u64),
            userspace_addr: region.map_or(0, |region| region.address().as_ptr() as u64),
        };
        // SAFETY: the region's mapping stays as long as the slot: the caller keeps
        // the region in the map of slots, and `Shared` outlives every vCPU.
        unsafe { self.fd.set_user_memory_region(slot) }
            .map_err(Error::refused("change the guest's memory"))
    }
}

/// Why nothing can be attached there, if so.
fn obstacle(memory: &BTreeMap<Gpa, Attached>, at: Gpa, length: u64) -> Option<&'static str> {
    if !at.0.is_multiple_of(PAGE as u64) {
        return Some("the address is not that of a page");
    }
    let Some(end) = at.0.checked_add(length) else {
        return Some("it would end beyond the address space");
    };
    memory
        .iter()
        .any(|(other, there)| other.0 < end && at.0 < other.0 + there.region.len() as u64)
        .then_some("memory is attached there already")
}

fn free_slot(memory: &BTreeMap<Gpa, Attached>) -> u32 {
    let taken = |slot: &u32| memory.values().any(|there| there.slot == *slot);
    (0..).find(|slot| !taken(slot)).unwrap_or(u32::MAX)
}

impl Vm for KvmVm {
    type Vcpu = KvmVcpu;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        let mut memory = self.shared.memory();
        if let Some(reason) = obstacle(&memory, at, region.len() as u64) {
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

    fn track(&self, at: Gpa, on: bool) -> Result<()> {
        let mut memory = self.shared.memory();
        let there = memory.get_mut(&at).ok_or(Error::NotAttached(at))?;
        let flags = match on {
            true => there.flags | KVM_MEM_LOG_DIRTY_PAGES,
            false => there.flags & !KVM_MEM_LOG_DIRTY_PAGES,
        };
        self.shared
            .set_slot(there.slot, at, Some(&there.region), flags)?;
        there.flags = flags;
        Ok(())
    }

    fn dirty(&self, at: Gpa) -> Result<Vec<u64>> {
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
        cpuid::give(&fd, id, &self.cpuid)?;
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
            address_lo: MESSAGES | irq.vcpu.0 << 12,
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

    fn irq_pin(&self, pin: u8) -> Result<IrqLine> {
        let what = "connect a device's interrupt";
        if self.controllers != Controllers::Full {
            return Err(Error::Unsupported(what));
        }
        let edge = EventFd::new(libc::EFD_CLOEXEC).map_err(Error::refused(what))?;
        self.shared
            .fd
            .register_irqfd(&edge, pin.into())
            .map_err(Error::refused(what))?;
        Ok(IrqLine::new(move || {
            edge.write(1)
                .map_err(Error::refused("deliver an interrupt"))
        }))
    }

    fn doorbell(&self, at: IoAddr) -> Result<Option<Doorbell>> {
        let what = "place a doorbell";
        let bell =
            EventFd::new(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).map_err(Error::refused(what))?;
        let address = match at {
            IoAddr::Port(port) => IoEventAddress::Pio(port.into()),
            IoAddr::Mmio(address) => IoEventAddress::Mmio(address),
        };
        self.shared
            .fd
            .register_ioevent(&bell, &address, NoDatamatch)
            .map_err(Error::refused(what))?;
        // SAFETY: the descriptor was the event's alone and is now the doorbell's.
        Ok(Some(Doorbell(unsafe {
            OwnedFd::from_raw_fd(bell.into_raw_fd())
        })))
    }
}
