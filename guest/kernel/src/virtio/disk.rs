//! Requests to a block device and their completions.

use super::ring::{Kind, Request, Ring, CHAIN};
use super::transport::{self, Access, Interrupts, QUEUE_NOTIFY};
use trapline_workloads::Reason;

/// Features (section 5.2.3).
const READ_ONLY: u64 = 1 << 5;
const FLUSH: u64 = 1 << 9;

/// Minimum number of requests in flight.
const MIN_SLOTS: u16 = 32;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// Tag of a request that is waited for at once.
const SINGLE: u16 = u16::MAX;

/// A running disk.
pub struct Disk<A> {
    access: A,
    ring: Ring,
    /// It has a cache that can be flushed.
    flushes: bool,
    /// Length in sectors.
    sectors: u64,
    interrupts: Interrupts,
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
    /// Same contract for `memory` as for the memory of [`Ring::new`].
    pub unsafe fn start(access: A, memory: *mut u8) -> Result<Self, Reason> {
        let device = transport::negotiate(&access, FLUSH | READ_ONLY)?;
        if device.has(READ_ONLY) {
            return Err("the disk is read-only");
        }
        let size = device.queue_size(0);
        if size / CHAIN < MIN_SLOTS {
            return Err("the queue of the disk is too short for 32 requests");
        }
        // SAFETY: same contract.
        let ring = unsafe { Ring::new(memory, size, device.has_event_index()) };
        device.place(&ring.queue);
        device.start();
        let (flushes, sectors) = (device.has(FLUSH), device.configuration()?);
        Ok(Self {
            ring,
            flushes,
            sectors,
            interrupts: Interrupts::so_far(&access),
            access,
            failure: None,
        })
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR)
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
        if self.ring.submit(request) {
            Ok(())
        } else {
            Err("too many requests in flight")
        }
    }

    /// Notifies the device of submitted requests, unless it fetches them without.
    pub fn notify(&mut self) {
        if self.ring.queue.needs_notification() {
            self.access.write(QUEUE_NOTIFY, 0);
        }
    }

    /// Returns the tag of a completed request, if there is any.
    ///
    /// # Errors
    /// A request failed, or the device reports something impossible. The device is reset.
    pub fn complete(&mut self) -> Result<Option<u16>, Reason> {
        let completed = self.ring.complete();
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
        let waited = self.interrupts.wait(&mut self.access, &mut self.ring.queue);
        waited.map_err(|reason| self.fail(reason))
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
        if !self.flushes {
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
        while self.ring.in_flight() > 0 {
            self.wait()?;
            self.complete()?;
        }
        let seen = self.access.interrupts();
        let acknowledged = self.interrupts.acknowledge(&self.access, seen);
        acknowledged.map_err(|reason| self.fail(reason))
    }

    /// Stops the device, which may still access the memory of requests.
    fn fail(&mut self, reason: Reason) -> Reason {
        let stopped = transport::reset(&self.access);
        let reason = stopped.err().unwrap_or(reason);
        self.failure.get_or_insert(reason)
    }
}
