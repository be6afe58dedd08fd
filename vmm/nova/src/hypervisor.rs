//! The VM interface on NOVA: one virtual machine, a protection domain whose exits this program handles.

use crate::hypercall::{
    create_domain, create_handler, create_portal, create_thread, delegate_pages, Selector, Source,
};
use crate::memory::Memory;
use crate::timer::VCPU;
use crate::utcb::Utcb;
use crate::vcpu::{self, NovaVcpu};
use alloc::sync::Arc;
use alloc::vec::Vec;
use trapline_interface::{
    Access, BootState, Caps, Controllers, Doorbell, Error, Gpa, Hypervisor, IoAddr, IrqId, IrqLine,
    Missing, Region, Result, Ring0, VcpuId, Vm, VmSpec, PAGE,
};

/// Protection domain of this program.
pub const OWN: Selector = 32;
/// Protection domain of the virtual machine.
const GUEST: Selector = 83;
/// First of the 256 portals of exits.
const PORTALS: Selector = 0x100;
const EXITS: u64 = 256;
/// Handler of exits.
const HANDLER: Selector = 64;
const HANDLER_UTCB: u64 = 0x2000_0000;

extern "C" {
    static trapline_handler_stack: u8;
    fn trapline_exit_portal();
    /// Code of the handler, first entered by the exit that starts the vCPU.
    fn trapline_run_machine() -> !;
}

/// The hypervisor. Only the main thread uses it, once.
pub struct Nova;

/// The virtual machine.
pub struct NovaVm {
    memory: Arc<Memory>,
    has_apic: bool,
}

impl Hypervisor for Nova {
    type Vm = NovaVm;

    fn probe() -> core::result::Result<Caps, Missing> {
        Ok(Caps {
            ring0: Ring0::Native,
            vcpus: 1,
            irq_lines: false,
            irq_pins: false,
            doorbells: false,
            read_only: false,
            dirty: false,
            tsc_offset: true,
            kernel_exits: false,
            halt_in_guest: false,
        })
    }

    fn open() -> core::result::Result<Self, Missing> {
        Ok(Self)
    }

    fn create_vm(&self, spec: &VmSpec) -> Result<NovaVm> {
        if spec.halt_in_guest || spec.cpus != 1 || spec.controllers == Controllers::Full {
            return Err(Error::Unsupported("create such a VM"));
        }
        // SAFETY: the stack is memory of this program, and nothing else uses it yet. The first message starts behind
        // the function that waits for it, which returns to the handler.
        let stack = unsafe {
            let top = (&raw const trapline_handler_stack as *mut u64).sub(2);
            top.write(trapline_run_machine as *const () as u64);
            top as u64
        };
        create_handler(HANDLER, OWN, HANDLER_UTCB, stack)?;
        for exit in 0..EXITS {
            let entry = trapline_exit_portal as *const () as u64;
            create_portal(PORTALS + exit, OWN, HANDLER, vcpu::parts(exit), entry)?;
        }
        create_domain(GUEST, OWN, PORTALS)?;
        Ok(NovaVm {
            memory: Arc::default(),
            has_apic: spec.controllers == Controllers::Local,
        })
    }
}

impl Vm for NovaVm {
    type Vcpu = NovaVcpu;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        let page = PAGE as u64;
        let length = region.len() as u64;
        let overlaps = |(start, there): &(u64, Arc<Region>)| {
            *start < at.0 + length && at.0 < start + there.len() as u64
        };
        let mut regions = self.memory.0.borrow_mut();
        if access != Access::ReadWrite || !at.0.is_multiple_of(page) || regions.iter().any(overlaps)
        {
            let reason = "memory is attached there, or the address or the access is not supported";
            return Err(Error::BadAttach { at, reason });
        }
        let source = (Source::Own, region.address().as_ptr() as u64 / page);
        // SAFETY: nothing is attached there.
        unsafe { delegate_pages(OWN, GUEST, source, at.0 / page, length / page)? };
        regions.push((at.0, region));
        Ok(())
    }

    fn detach(&self, _: Gpa) -> Result<Arc<Region>> {
        Err(Error::Unsupported("detach memory"))
    }

    fn track_dirty(&self, _: Gpa, _: bool) -> Result<()> {
        Err(Error::Unsupported("track dirty memory"))
    }

    fn dirty_log(&self, _: Gpa) -> Result<Vec<u64>> {
        Err(Error::Unsupported("track dirty memory"))
    }

    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<NovaVcpu> {
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
            self.has_apic,
        ))
    }

    fn irq_line(&self, _: IrqId) -> Result<IrqLine> {
        Err(Error::Unsupported("deliver interrupts from other threads"))
    }

    fn irq_pin(&self, _: u8) -> Result<IrqLine> {
        Err(Error::Unsupported("emulate an I/O APIC"))
    }

    fn doorbell(&self, _: IoAddr) -> Result<Option<Doorbell>> {
        Ok(None)
    }
}
