//! Capabilities of the backend.

use crate::config::Config;
use crate::crossing::Crossing;
use crate::vm::ProcessVm;
use trapline_interface::{Caps, Controllers, Error, Hypervisor, Missing, Result, Ring0, VmSpec};

/// The backend, which needs nothing but Linux.
pub struct Process(Config);

impl Process {
    /// Returns the backend with a mechanism for hypercalls.
    pub fn with(crossing: Crossing) -> Self {
        Self(crossing.into())
    }

    /// Returns the backend with these options.
    pub fn configured(config: Config) -> Self {
        Self(config)
    }
}

impl Hypervisor for Process {
    type Vm = ProcessVm;

    fn probe() -> std::result::Result<Caps, Missing> {
        Ok(Caps {
            ring0: Ring0::Emulated,
            vcpus: 1,
            irq_lines: true,
            irq_pins: false,
            doorbells: false,
            read_only: true,
            dirty: true,
            tsc_offset: true,
            kernel_exits: true,
            halt_in_guest: false,
        })
    }

    fn open() -> std::result::Result<Self, Missing> {
        Ok(Self::with(Crossing::Auto))
    }

    fn create_vm(&self, spec: &VmSpec) -> Result<ProcessVm> {
        if spec.halt_in_guest {
            return Err(Error::Unsupported("let a guest halt without leaving it"));
        }
        match spec.controllers {
            Controllers::Full => Err(Error::Unsupported("connect interrupts of devices")),
            Controllers::Local => Ok(ProcessVm::new(self.0, true)),
            Controllers::None => Ok(ProcessVm::new(self.0, false)),
        }
    }
}
