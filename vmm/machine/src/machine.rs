//! A VM with an image and one vCPU.

use crate::shell::Host;
use crate::{Failure, StopReason};
use std::sync::Arc;
use trapline_interface::{Gpa, Region, Vcpu};
use trapline_monitor::devices::{IoBus, IoBusConfig};
use trapline_monitor::{run, start, Devices, ExitCounters};

/// A VM with one vCPU, which has its devices to itself.
pub struct Machine<V> {
    /// The vCPU.
    pub vcpu: V,
    /// The devices.
    pub devices: Devices<Host>,
    /// Exits of the vCPU.
    pub exits: ExitCounters,
}

impl<V: Vcpu> Machine<V> {
    /// Creates a VM. `interrupts` is the address of the guest's interrupt count in `memory`, `ring` the guest's privilege
    /// ring.
    pub fn new(
        vcpu: V,
        host: Host,
        memory: Arc<Region>,
        interrupts: Option<Gpa>,
        ring: u8,
    ) -> Self {
        let config = IoBusConfig {
            idle: interrupts.is_some(),
            ticker: host.ticker.is_some(),
            hotplug: host.memory.is_some(),
            spaces: ring == 3,
            ..IoBusConfig::default()
        };
        Self {
            vcpu,
            devices: Devices {
                io: IoBus::new(config),
                shell: host,
                memory,
                interrupts,
            },
            exits: ExitCounters::default(),
        }
    }

    /// Runs the guest until the VM stops. `starting` is called just before the guest's first instruction.
    ///
    /// # Errors
    /// The hypervisor refuses.
    pub fn run(&mut self, starting: impl FnOnce()) -> Result<StopReason, Failure> {
        start(&mut self.vcpu)?;
        starting();
        let reason = run(&mut self.vcpu, &mut self.devices, &self.exits);
        self.devices.shell.console.finish();
        Ok(reason?)
    }
}

#[cfg(test)]
mod tests;
