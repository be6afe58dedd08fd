//! vCPU 0 of a domain.

use crate::domain::power_off;
use crate::events::Port;
use crate::slot::Slot;
use crate::transfer::Transfer;
use crate::vm::Devices;
use std::io;
use std::sync::Arc;
use trapline_interface::{
    Entry, Error, Exit, Kick, Kicker, RegSet, Region, Result, Vcpu, VcpuState, VcpuStats,
};

/// The vCPU of a [`crate::XenVm`].
pub struct XenVcpu {
    devices: Arc<Devices>,
    memory: Arc<Region>,
    slot: Slot,
    /// Event channel of the slot.
    port: Port,
    /// Event channel of kicks.
    kick: Port,
    kicker: Kicker,
    phase: Phase,
    current: Option<Transfer>,
    string_elements: u64,
}

/// Phase of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Created,
    Paused,
    Running,
}

/// Sends an event to this process, which ends its wait.
struct SelfEvent {
    devices: Arc<Devices>,
    port: Port,
}

impl Kick for SelfEvent {
    fn mark(&self) {
        let _cannot_fail = self.devices.events.notify(self.port);
    }

    fn interrupt(&self) {}
}

impl XenVcpu {
    pub(crate) fn new(
        devices: &Arc<Devices>,
        memory: &Arc<Region>,
        slot: Slot,
        domain: u16,
    ) -> io::Result<Self> {
        let port = devices.events.bind(domain, slot.port())?;
        let (sender, kick) = devices.events.bind_pair()?;
        let kicker = Kicker::new(SelfEvent {
            devices: Arc::clone(devices),
            port: sender,
        });
        devices.events.restrict(domain)?;
        Ok(Self {
            devices: Arc::clone(devices),
            memory: Arc::clone(memory),
            slot,
            port,
            kick,
            kicker,
            phase: Phase::Created,
            current: None,
            string_elements: 0,
        })
    }

    /// Unpauses the domain, and gives up the right to control others.
    #[cold]
    fn unpause(&mut self) -> Result<()> {
        let xen = &self.devices.xen;
        xen.unpause()
            .map_err(Error::refused("unpause the domain"))?;
        self.phase = Phase::Running;
        xen.restrict()
            .map_err(Error::refused("restrict requests to the domain"))
    }

    /// Ends the current element. Returns the exit of the next one, if there is one.
    #[inline]
    fn proceed(&mut self, entry: Entry) -> io::Result<Option<Exit>> {
        let Some(mut transfer) = self.current.take() else {
            return Ok(None);
        };
        let answer = match entry {
            Entry::Answer(value) => value,
            Entry::Resume => u64::MAX,
        };
        let data = transfer.finish(answer, &self.memory);
        if transfer.advance() {
            self.current = Some(transfer);
            self.string_elements += 1;
            return Ok(Some(transfer.exit(&self.memory)));
        }
        self.respond(data)?;
        Ok(None)
    }

    #[inline]
    fn respond(&self, data: Option<u64>) -> io::Result<()> {
        self.slot.respond(data);
        self.devices.events.notify(self.port)
    }

    /// Waits for the next request or kick.
    #[inline]
    fn next(&mut self) -> io::Result<Exit> {
        loop {
            if let Some(request) = self.slot.request() {
                self.current = Transfer::of(request);
                match self.current {
                    Some(transfer) => return Ok(transfer.exit(&self.memory)),
                    // Notifications need a response, too.
                    None => self.respond(None)?,
                }
            }
            if self.devices.events.wait()? == Some(self.kick) {
                return Ok(Exit::Kicked);
            }
        }
    }
}

fn refused(error: io::Error) -> Box<Error> {
    Box::new(Error::refused("serve the domain")(error))
}

impl Vcpu for XenVcpu {
    #[inline]
    fn run(&mut self, entry: Entry) -> std::result::Result<Exit, Box<Error>> {
        match self.phase {
            Phase::Running => {}
            Phase::Created => {
                self.phase = Phase::Paused;
                return Ok(Exit::Started);
            }
            Phase::Paused => self.unpause()?,
        }
        match self.proceed(entry).map_err(refused)? {
            Some(exit) => Ok(exit),
            None => self.next().map_err(refused),
        }
    }

    fn state(&mut self, _: RegSet) -> Result<VcpuState> {
        Err(Error::Unsupported("read the registers of a domain"))
    }

    fn set_state(&mut self, _: &VcpuState) -> Result<()> {
        Err(Error::Unsupported("write the registers of a domain"))
    }

    fn kicker(&self) -> Kicker {
        self.kicker.clone()
    }

    fn stats(&mut self) -> VcpuStats {
        VcpuStats {
            kernel_exits: None,
            string_elements: self.string_elements,
        }
    }

    fn tsc_offset(&self) -> Option<i64> {
        None
    }

    /// Powers the domain off. The toolstack destroys it.
    fn end(&mut self) {
        let _cannot_fail = power_off(&self.devices.xen);
    }
}
