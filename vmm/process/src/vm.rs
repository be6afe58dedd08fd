//! A VM: memory and interrupt lines.

use crate::config::Config;
use crate::shared::Shared;
use crate::vcpu::ProcessVcpu;
use std::sync::Arc;
use trapline_interface::{
    Access, BootState, Doorbell, Error, Gpa, IoAddr, IrqId, IrqLine, Region, Result, VcpuId, Vm,
};

/// A VM whose guest is a process. Changes of its memory take effect before the next entry of the guest.
pub struct ProcessVm {
    shared: Arc<Shared>,
    config: Config,
    has_apic: bool,
}

impl ProcessVm {
    pub(crate) fn new(config: Config, has_apic: bool) -> Self {
        Self {
            shared: Arc::default(),
            config,
            has_apic,
        }
    }
}

impl Vm for ProcessVm {
    type Vcpu = ProcessVcpu;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        self.shared.memory().attach(at, region, access)
    }

    fn detach(&self, at: Gpa) -> Result<Arc<Region>> {
        let gone = self.shared.memory().detach(at)?;
        if gone.is_mapped {
            self.shared.change();
        }
        Ok(gone.region)
    }

    fn track_dirty(&self, at: Gpa, on: bool) -> Result<()> {
        self.shared.memory().track(at, on)?;
        self.shared.change();
        Ok(())
    }

    fn dirty_log(&self, at: Gpa) -> Result<Vec<u64>> {
        self.shared.memory().dirty_log(at)
    }

    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<ProcessVcpu> {
        match (id, boot) {
            (VcpuId(0), Some(boot)) => {
                ProcessVcpu::new(Arc::clone(&self.shared), boot, self.config, self.has_apic)
            }
            _ => Err(Error::Unsupported("run several virtual CPUs")),
        }
    }

    fn irq_line(&self, irq: IrqId) -> Result<IrqLine> {
        if !self.has_apic {
            return Err(Error::Unsupported("deliver interrupts to this machine"));
        }
        let lines = Arc::clone(&self.shared.lines);
        Ok(IrqLine::new(move || {
            lines.request(irq.vector);
            lines.notify();
            Ok(())
        }))
    }

    fn irq_pin(&self, _pin: u8) -> Result<IrqLine> {
        Err(Error::Unsupported("connect a device's interrupt"))
    }

    fn doorbell(&self, _at: IoAddr) -> Result<Option<Doorbell>> {
        Ok(None)
    }
}
