//! A domain as a VM.

use crate::domain::{inject, serve, Devices};
use crate::events::Events;
use crate::privcmd::{Privcmd, Yielding};
use crate::slot::Slot;
use crate::vcpu::XenVcpu;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use trapline_interface::{
    Access, BootState, Doorbell, Error, Gpa, IoAddr, IrqId, IrqLine, Missing, Region, Result,
    VcpuId, Vm, PAGE,
};

/// A domain that the toolstack has created and paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainConfig {
    /// Its ID.
    pub id: u16,
    /// Bytes of its memory, which starts at address 0.
    pub memory: u64,
}

/// A domain, whose device model this process is.
pub struct XenVm {
    devices: Arc<Devices>,
    memory: Arc<Region>,
    id: u16,
    slot: Mutex<Option<Slot>>,
}

/// Address of message-signalled interrupts, and the position of the APIC ID (Intel SDM volume 3, 11.11.1). Xen's APIC IDs
/// are twice the numbers of vCPUs.
const MSI_ADDRESS: u64 = 0xfee0_0000;
const MSI_APIC_ID: u32 = 12;

impl XenVm {
    /// Opens the interfaces to a domain.
    ///
    /// # Errors
    /// This is not Xen's first domain, or the process may not control others.
    pub fn open(config: DomainConfig) -> std::result::Result<Domain, Missing> {
        Ok(Domain {
            devices: Devices {
                xen: Privcmd::open(config.id)?,
                events: Events::open()?,
                yielding: Yielding::open()?,
            },
            config,
        })
    }

    /// Returns the only request that is made with one of the descriptors, which would permit any hypercall: the descriptor,
    /// the number of the request, and the address of its argument, which is constant.
    pub fn only_hypercall(&self) -> (RawFd, libc::c_ulong, usize) {
        self.devices.yielding.request()
    }

    /// Returns the domain's memory, from address 0.
    pub fn memory(&self) -> Arc<Region> {
        Arc::clone(&self.memory)
    }
}

/// A domain that is not yet served.
pub struct Domain {
    devices: Devices,
    config: DomainConfig,
}

impl Domain {
    /// Maps the domain's memory, and becomes its device model.
    ///
    /// # Errors
    /// There is no such domain, or its memory is smaller than configured.
    pub fn serve(self) -> Result<XenVm> {
        let Self { devices, config } = self;
        let length = usize::try_from(config.memory).ok();
        let length = length.filter(|length| *length > 0 && length.is_multiple_of(PAGE));
        let mapped = length.ok_or_else(|| io::ErrorKind::InvalidInput.into());
        let mapped = mapped.and_then(|length| devices.xen.map_memory(length));
        let mapped = mapped.map_err(denied("map the memory of the domain"))?;
        // SAFETY: the pages stay mapped as long as the process lives, and Xen keeps them as long as they are mapped.
        let memory = unsafe { Region::from_raw(mapped.start, mapped.length) };
        let slot = serve(&devices.xen, config.memory);
        let slot = slot.map_err(denied("become the device model of the domain"))?;
        Ok(XenVm {
            devices: Arc::new(devices),
            memory: Arc::new(memory),
            id: config.id,
            slot: Mutex::new(Some(slot)),
        })
    }
}

/// Returns a constructor of [`Error::Denied`] for `map_err`.
fn denied(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Denied {
        what,
        source: source.into(),
        help: "create a PVH domain with 'xl create -p', and pass its ID and its memory",
    }
}

const BY_TOOLSTACK: &str = "change the memory of a domain, which the toolstack has created";

impl Vm for XenVm {
    type Vcpu = XenVcpu;

    fn attach(&self, _: Gpa, _: Arc<Region>, _: Access) -> Result<()> {
        Err(Error::Unsupported(BY_TOOLSTACK))
    }

    fn detach(&self, at: Gpa) -> Result<Arc<Region>> {
        Err(Error::NotAttached(at))
    }

    fn track_dirty(&self, _: Gpa, _: bool) -> Result<()> {
        Err(Error::Unsupported("track writes to memory"))
    }

    fn dirty_log(&self, at: Gpa) -> Result<Vec<u64>> {
        Err(Error::NotTracked(at))
    }

    /// Returns vCPU 0, which starts at the domain's entry point.
    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<XenVcpu> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        match (id, boot, slot.take()) {
            (VcpuId(0), None, Some(slot)) => {
                let created = XenVcpu::new(&self.devices, &self.memory, slot, self.id);
                created.map_err(denied("bind the event channel of the domain"))
            }
            _ => Err(Error::Unsupported("create a virtual CPU of a domain")),
        }
    }

    fn irq_line(&self, irq: IrqId) -> Result<IrqLine> {
        let devices = Arc::clone(&self.devices);
        let address = MSI_ADDRESS | u64::from(2 * irq.vcpu.0) << MSI_APIC_ID;
        Ok(IrqLine::new(move || {
            let injected = inject(&devices.xen, address, irq.vector.into());
            injected.map_err(Error::refused("deliver an interrupt"))
        }))
    }

    fn irq_pin(&self, _: u8) -> Result<IrqLine> {
        Err(Error::Unsupported("connect a device's interrupt"))
    }

    fn doorbell(&self, _: IoAddr) -> Result<Option<Doorbell>> {
        Ok(None)
    }
}
