//! The VM interface on NOVA: one virtual machine, a protection domain whose exits this program handles.

use crate::hypercall::{
    create_domain, create_portal, create_thread, delegate_pages, revoke_pages, Destination, Rights,
    Selector, Source, HANDLER_UTCB, OWN,
};
use crate::lines;
use crate::memory::{Attached, Memory};
use crate::timer::VCPU;
use crate::utcb::Utcb;
use crate::vcpu::{self, NovaVcpu, Technology};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;
use trapline_emulation::io_apic::PINS;
use trapline_interface::{
    Access, BootState, Caps, Controllers, Doorbell, Error, Gpa, Hypervisor, IoAddr, IrqId, IrqLine,
    Missing, Region, Result, Ring0, VcpuId, Vm, VmSpec, PAGE,
};

/// Protection domain of the virtual machine.
const GUEST: Selector = 83;
/// First of the 256 portals of exits.
const PORTALS: Selector = 0x100;
const EXITS: u64 = 256;
/// Handler of exits.
pub const HANDLER: Selector = 64;

extern "C" {
    fn trapline_exit_portal();
}

/// The hypervisor on a CPU with a technology of virtualization. Only the handler of exits uses it, once.
pub struct Nova<T>(PhantomData<T>);

/// The virtual machine.
pub struct NovaVm<T> {
    memory: Arc<Memory>,
    controllers: Controllers,
    technology: PhantomData<T>,
}

impl<T: Technology> Hypervisor for Nova<T> {
    type Vm = NovaVm<T>;

    fn probe() -> core::result::Result<Caps, Missing> {
        Ok(Caps {
            ring0: Ring0::Native,
            vcpus: 1,
            irq_lines: true,
            irq_pins: true,
            doorbells: false,
            read_only: true,
            dirty: false,
            tsc_offset: true,
            kernel_exits: false,
            halt_in_guest: false,
        })
    }

    fn open() -> core::result::Result<Self, Missing> {
        Ok(Self(PhantomData))
    }

    fn create_vm(&self, spec: &VmSpec) -> Result<NovaVm<T>> {
        if spec.halt_in_guest || spec.cpus != 1 {
            return Err(Error::Unsupported("create such a VM"));
        }
        for exit in 0..EXITS {
            let entry = trapline_exit_portal as *const () as u64;
            create_portal(
                PORTALS + exit,
                OWN,
                HANDLER,
                vcpu::parts(T::cause(exit)),
                entry,
            )?;
        }
        create_domain(GUEST, OWN, PORTALS)?;
        Ok(NovaVm {
            memory: Arc::default(),
            controllers: spec.controllers,
            technology: PhantomData,
        })
    }
}

impl<T: Technology> Vm for NovaVm<T> {
    type Vcpu = NovaVcpu<T>;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        let page = PAGE as u64;
        let length = region.len() as u64;
        let end = at.0.checked_add(length);
        let overlaps = |there: &Attached| {
            let there_end = there.start + there.region.len() as u64;
            end.is_none_or(|end| there.start < end) && at.0 < there_end
        };
        let mut regions = self.memory.0.borrow_mut();
        if end.is_none() || !at.0.is_multiple_of(page) || regions.iter().any(overlaps) {
            let reason = "memory is attached there, or the address is not a multiple of a page";
            return Err(Error::BadAttach { at, reason });
        }
        let source = (Source::Own, region.address().as_ptr() as u64 / page);
        let guest = Destination {
            domain: GUEST,
            is_guest: true,
            rights: match access {
                Access::ReadWrite => Rights::All,
                Access::ReadOnly => Rights::ReadOnly,
            },
        };
        // SAFETY: nothing is attached there.
        unsafe { delegate_pages(OWN, guest, source, at.0 / page, length / page)? };
        regions.push(Attached {
            start: at.0,
            region,
            access,
        });
        Ok(())
    }

    fn detach(&self, at: Gpa) -> Result<Arc<Region>> {
        let mut regions = self.memory.0.borrow_mut();
        let index = regions.iter().position(|there| there.start == at.0);
        let there = regions.remove(index.ok_or(Error::NotAttached(at))?);
        let pages = there.region.len() / PAGE;
        revoke_pages(GUEST, at.0 / PAGE as u64, pages as u64)?;
        Ok(there.region)
    }

    fn track_dirty(&self, _: Gpa, _: bool) -> Result<()> {
        Err(Error::Unsupported("track dirty memory"))
    }

    fn dirty_log(&self, _: Gpa) -> Result<Vec<u64>> {
        Err(Error::Unsupported("track dirty memory"))
    }

    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<NovaVcpu<T>> {
        let (VcpuId(0), Some(boot)) = (id, boot) else {
            return Err(Error::Unsupported("create a second vCPU"));
        };
        create_thread(VCPU, GUEST, 0)?;
        // SAFETY: the UTCB of the handler is mapped by its creation, and only the handler and this vCPU, which it runs,
        // use it from now on.
        let utcb = unsafe { &mut *(HANDLER_UTCB as *mut Utcb) };
        Ok(NovaVcpu::new(
            utcb,
            boot,
            Arc::clone(&self.memory),
            self.controllers,
        ))
    }

    fn irq_line(&self, irq: IrqId) -> Result<IrqLine> {
        if self.controllers == Controllers::None || irq.vcpu != VcpuId(0) {
            return Err(Error::Unsupported("interrupt this vCPU"));
        }
        Ok(lines::line(irq.vector))
    }

    fn irq_pin(&self, pin: u8) -> Result<IrqLine> {
        if self.controllers != Controllers::Full || usize::from(pin) >= PINS {
            return Err(Error::Unsupported("interrupt by this pin"));
        }
        Ok(lines::pin(pin))
    }

    fn doorbell(&self, _: IoAddr) -> Result<Option<Doorbell>> {
        Ok(None)
    }
}
