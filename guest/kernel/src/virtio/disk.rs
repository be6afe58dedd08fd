//! Requests to a block device and their completions.

use super::ring::{Kind, Request};
use super::transport::{self, Access, Device};
use super::transport::{
    CONFIGURATION_CHANGED, INTERRUPT_ACK, INTERRUPT_STATUS, NEEDS_RESET, QUEUE_NOTIFY, STATUS,
};
use trapline_workloads::{ticks, Reason};

/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// Tag of a request that is waited for at once.
const SINGLE: u16 = u16::MAX;

/// A running disk.
pub struct Disk<A> {
    access: A,
    device: Device,
    /// Interrupts that were acknowledged.
    acknowledged: u64,
    /// Why the disk is no longer usable.
    failure: Option<Reason>,
}

impl<A: Access> Disk<A> {
    /// Starts the device.
    ///
    /// # Errors
    /// The device is unsuitable.
    ///
    /// # Safety
    /// Same contract for `memory` as for the memory of [`super::ring::Ring::new`].
    pub unsafe fn start(access: A, memory: *mut u8) -> Result<Self, Reason> {
        // SAFETY: same contract.
        let device = unsafe { transport::start(&access, memory)? };
        Ok(Self {
            acknowledged: access.interrupts(),
            access,
            device,
            failure: None,
        })
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.device.sectors.saturating_mul(SECTOR)
    }

    /// Returns true if completions are polled.
    pub fn polls(&self) -> bool {
        self.access.polls()
    }

    /// Submits a request. [`Self::notify`] has to follow.
    ///
    /// # Errors
    /// All slots are in use, or the disk has failed.
    pub fn submit(&mut self, request: &Request) -> Result<(), Reason> {
        if let Some(reason) = self.failure {
            return Err(reason);
        }
        match self.device.ring.submit(request) {
            true => Ok(()),
            false => Err("too many requests in flight"),
        }
    }

    /// Notifies the device of submitted requests, unless it fetches them without.
    pub fn notify(&mut self) {
        if self.device.ring.needs_notification() {
            self.access.write(QUEUE_NOTIFY, 0);
        }
    }

    /// Returns the tag of a completed request, if there is any.
    ///
    /// # Errors
    /// A request failed, or the device reports something impossible. The device is reset.
    pub fn complete(&mut self) -> Result<Option<u16>, Reason> {
        let completed = self.device.ring.complete();
        completed.map_err(|reason| self.fail(reason))
    }

    /// Waits until a request is completed.
    ///
    /// # Errors
    /// The device needs a reset, or completes nothing for too long. It is reset.
    pub fn wait(&mut self) -> Result<(), Reason> {
        if let Some(reason) = self.failure {
            return Err(reason);
        }
        self.try_wait().map_err(|reason| self.fail(reason))
    }

    fn try_wait(&mut self) -> Result<(), Reason> {
        let begun = ticks();
        loop {
            let seen = self.access.interrupts();
            self.acknowledge(seen)?;
            self.device.ring.set_interrupt(!self.access.polls());
            if self.device.ring.has_completion() {
                return Ok(());
            }
            self.access.wait(seen, begun)?;
        }
    }

    /// Acknowledges interrupts up to number `seen`, at the device and at the interrupt controller.
    fn acknowledge(&mut self, seen: u64) -> Result<(), Reason> {
        if seen == self.acknowledged {
            return Ok(());
        }
        self.acknowledged = seen;
        let causes = self.access.read(INTERRUPT_STATUS);
        self.access.write(INTERRUPT_ACK, causes);
        self.access.end_interrupt();
        let is_changed = causes & CONFIGURATION_CHANGED != 0;
        match is_changed && self.access.read(STATUS) & NEEDS_RESET != 0 {
            true => Err("the disk reports an error of the driver"),
            false => Ok(()),
        }
    }

    /// Performs one request.
    ///
    /// # Errors
    /// The request or the device failed.
    #[inline(always)]
    pub fn perform(&mut self, request: Request) -> Result<(), Reason> {
        self.submit(&Request {
            tag: SINGLE,
            ..request
        })?;
        self.notify();
        self.wait()?;
        match self.complete()? {
            Some(SINGLE) => Ok(()),
            _ => Err(self.fail("the disk completed another request")),
        }
    }

    /// Makes all completed writes durable.
    ///
    /// # Errors
    /// The request or the device failed.
    #[inline(always)]
    pub fn flush(&mut self) -> Result<(), Reason> {
        if !self.device.flushes {
            return Ok(());
        }
        self.perform(Request {
            kind: Kind::Flush,
            sector: 0,
            address: 0,
            bytes: 0,
            tag: SINGLE,
        })
    }

    /// Acknowledges interrupts, and waits for all requests in flight.
    ///
    /// # Errors
    /// A request or the device failed.
    pub fn drain(&mut self) -> Result<(), Reason> {
        while self.device.ring.in_flight() > 0 {
            self.wait()?;
            self.complete()?;
        }
        let seen = self.access.interrupts();
        let acknowledged = self.acknowledge(seen);
        acknowledged.map_err(|reason| self.fail(reason))
    }

    /// Stops the device, which may still access the memory of requests.
    fn fail(&mut self, reason: Reason) -> Reason {
        let stopped = transport::reset(&self.access);
        let reason = stopped.err().unwrap_or(reason);
        self.failure.get_or_insert(reason)
    }
}
