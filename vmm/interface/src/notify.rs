//! Notifications that bypass vCPU exits: kicks, interrupts, doorbells.

use crate::Result;
use alloc::sync::Arc;
use core::fmt;
#[cfg(feature = "std")]
use std::io;
#[cfg(feature = "std")]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Kicks a vCPU: its current or next [`crate::Vcpu::run`] returns [`crate::Exit::Kicked`]. Kicks before
/// that coalesce.
#[derive(Clone)]
pub struct Kicker(Arc<dyn Kick>);

/// Backend part of a kick.
pub trait Kick: Send + Sync {
    /// Sets the exit request. Async-signal-safe.
    fn mark(&self);
    /// Interrupts the thread that runs the vCPU.
    fn interrupt(&self);
}

impl Kicker {
    /// Wraps a backend's kick.
    pub fn new(kick: impl Kick + 'static) -> Self {
        Self(Arc::new(kick))
    }

    /// Kicks the vCPU from any thread.
    pub fn kick(&self) {
        self.0.mark();
        self.0.interrupt();
    }

    /// Sets the exit request from the vCPU's own thread: in a signal handler, or between two runs.
    pub fn mark(&self) {
        self.0.mark();
    }
}

impl fmt::Debug for Kicker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kicker")
    }
}

impl<K: Kick + ?Sized> Kick for Arc<K> {
    fn mark(&self) {
        (**self).mark();
    }

    fn interrupt(&self) {
        (**self).interrupt();
    }
}

/// Number of a vCPU, from 0; also its local APIC ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VcpuId(pub u32);

/// An interrupt: target vCPU and vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqId {
    /// vCPU of the local APIC.
    pub vcpu: VcpuId,
    /// Vector, 32 to 255.
    pub vector: u8,
}

/// An edge-triggered interrupt line.
#[derive(Clone)]
pub struct IrqLine {
    deliver: Arc<dyn Fn() -> Result<()> + Send + Sync>,
    #[cfg(feature = "std")]
    event: Option<Arc<Doorbell>>,
}

impl IrqLine {
    /// Creates a line that calls `deliver`.
    pub fn new(deliver: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self {
            deliver: Arc::new(deliver),
            #[cfg(feature = "std")]
            event: None,
        }
    }

    /// Creates a line of an eventfd, of which a write in any process delivers the interrupt.
    #[cfg(feature = "std")]
    pub fn with_event(event: OwnedFd) -> Self {
        let event = Arc::new(Doorbell(event));
        let rung = Arc::clone(&event);
        let deliver = move || {
            rung.ring();
            Ok(())
        };
        Self {
            event: Some(event),
            ..Self::new(deliver)
        }
    }

    /// Returns the eventfd of which a write delivers the interrupt, if the hypervisor has one.
    #[cfg(feature = "std")]
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|event| event.0.as_fd())
    }

    /// Delivers the interrupt.
    ///
    /// # Errors
    /// The hypervisor refuses.
    pub fn trigger(&self) -> Result<()> {
        (self.deliver)()
    }
}

impl fmt::Debug for IrqLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IrqLine")
    }
}

/// An eventfd that counts guest writes without exits. Reads do not block, see [`Self::make_blocking`].
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct Doorbell(pub OwnedFd);

/// Doorbells need an operating system; none can be created without.
#[cfg(not(feature = "std"))]
#[derive(Debug)]
pub enum Doorbell {}

#[cfg(feature = "std")]
impl Doorbell {
    /// Creates a doorbell that is not registered at a guest address.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn unregistered() -> io::Result<Self> {
        // SAFETY: makes a new descriptor from numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        match fd {
            ..0 => Err(io::Error::last_os_error()),
            // SAFETY: the descriptor is new and owned by nothing else.
            _ => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }

    /// Makes reads wait until the doorbell rings: a thread that waits for nothing else needs one system call for it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make_blocking(&self) -> io::Result<()> {
        // SAFETY: changes flags of an open descriptor.
        let status = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETFL, 0) };
        match status {
            ..0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Rings the doorbell, as a guest write does. A full counter is already signalled.
    pub fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the buffer has the length that is written.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Clears the counter; returns true if it was not zero.
    pub fn take(&self) -> bool {
        self.count() != 0
    }

    /// Clears and returns the counter.
    pub fn count(&self) -> u64 {
        let mut count = [0; 8];
        // SAFETY: the buffer has the length that is read. Without blocking an empty counter is not.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        u64::from_ne_bytes(count)
    }
}

#[cfg(not(feature = "std"))]
impl Doorbell {
    /// Returns the counter.
    pub fn count(&self) -> u64 {
        match *self {}
    }
}
