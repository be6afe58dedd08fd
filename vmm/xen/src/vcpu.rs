//! vCPU 0 of a domain.

use crate::domain::{power_off, Devices};
use crate::events::Port;
use crate::slot::Slot;
use crate::transfer::Transfer;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
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
    kick: Arc<XenKick>,
    phase: Phase,
    current: Option<Transfer>,
    /// The guest has a response that it has not used yet, or has just started.
    is_resumed: bool,
    string_elements: u64,
}

/// Phase of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Created,
    Paused,
    Running,
}

/// A kick. The event ends a wait; a vCPU that does not wait checks the flag.
struct XenKick {
    is_requested: AtomicBool,
    devices: Arc<Devices>,
    port: Port,
}

impl Kick for XenKick {
    fn mark(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        let _cannot_fail = self.devices.events.notify(self.port);
    }

    fn interrupt(&self) {}
}

impl XenKick {
    /// Returns true if the kick is requested, and clears the request.
    #[inline]
    fn take(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed) && self.is_requested.swap(false, Ordering::SeqCst)
    }
}

impl XenVcpu {
    pub(crate) fn new(
        devices: &Arc<Devices>,
        memory: &Arc<Region>,
        slot: Slot,
        domain: u16,
    ) -> io::Result<Self> {
        let port = devices.events.bind(domain, slot.port())?;
        let kick = Arc::new(XenKick {
            is_requested: AtomicBool::new(false),
            devices: Arc::clone(devices),
            port: devices.events.bind_to_self()?,
        });
        devices.events.restrict(domain)?;
        Ok(Self {
            devices: Arc::clone(devices),
            memory: Arc::clone(memory),
            slot,
            port,
            kick,
            phase: Phase::Created,
            current: None,
            is_resumed: false,
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
        self.is_resumed = true;
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
    fn respond(&mut self, data: Option<u64>) -> io::Result<()> {
        self.slot.respond(data);
        self.is_resumed = true;
        self.devices.events.notify(self.port)
    }

    /// Waits for the next request or kick.
    #[inline]
    fn next(&mut self) -> io::Result<Exit> {
        loop {
            if self.kick.take() {
                return Ok(Exit::Kicked);
            }
            if let Some(request) = self.slot.request() {
                self.current = Transfer::of(request);
                match self.current {
                    Some(transfer) => return Ok(transfer.exit(&self.memory)),
                    // Notifications need a response, too.
                    None => self.respond(None)?,
                }
            }
            // If the guest makes the next request now, the event need not be received, which takes three system calls.
            if mem::take(&mut self.is_resumed) {
                self.devices.yielding.yield_cpu()
            } else {
                self.devices.events.wait()?
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
        Kicker::new(Arc::clone(&self.kick))
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

    /// Powers the domain off. The toolstack destroys it. Xen defers the shutdown of a vCPU that waits for a response.
    fn end(&mut self) {
        let _is_over = power_off(&self.devices.xen);
        if self.current.take().is_some() {
            let _is_over = self.respond(None);
        }
    }
}
