//! Ways to reach a machine, or be reached by it, past its vCPU's exits.

use crate::{Result, VcpuId};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Recalls a vCPU from whatever it does: its current or next [`crate::Vcpu::run`]
/// ends with [`crate::Exit::Kicked`]. Several kicks before that count as one.
#[derive(Clone)]
pub struct Kicker(Arc<dyn Kick>);

/// What a backend does to recall a vCPU.
pub trait Kick: Send + Sync {
    /// Notes the recall. Must be safe in a signal handler.
    fn mark(&self);
    /// Makes the thread that runs the vCPU leave the kernel.
    fn interrupt(&self);
}

impl Kicker {
    /// A kicker of this kind.
    pub fn new(kick: impl Kick + 'static) -> Self {
        Self(Arc::new(kick))
    }

    /// Recalls the vCPU, from any thread.
    pub fn kick(&self) {
        self.0.mark();
        self.0.interrupt();
    }

    /// Recalls the vCPU of this very thread, from its signal handler (the signal
    /// itself has made it leave the kernel) or between two runs.
    pub fn mark(&self) {
        self.0.mark();
    }
}

impl fmt::Debug for Kicker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kicker")
    }
}

/// An interrupt: which vCPU gets which vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqId {
    /// Whose local interrupt controller.
    pub vcpu: VcpuId,
    /// 32 to 255.
    pub vector: u8,
}

/// Delivers one interrupt, edge-triggered.
#[derive(Clone)]
pub struct IrqLine(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl IrqLine {
    /// A line that calls `deliver`.
    pub fn new(deliver: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(deliver))
    }

    /// Delivers the interrupt.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn trigger(&self) -> Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for IrqLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IrqLine")
    }
}

/// Where guest writes arrive without an exit: an eventfd that counts them, and never waits.
#[derive(Debug)]
pub struct Doorbell(pub OwnedFd);

impl Doorbell {
    /// One that no guest writes to, only [`Self::ring`] does.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn alone() -> io::Result<Self> {
        // SAFETY: makes a new descriptor from numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        match fd {
            ..0 => Err(io::Error::last_os_error()),
            // SAFETY: it is new, and nobody else's.
            _ => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }

    /// Rings it as a guest would. A counter that is full has been rung often enough.
    pub fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: as many bytes are there as are written.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Whether it was rung since the last time; takes note of that.
    pub fn take(&self) -> bool {
        let mut count = [0; 8];
        // SAFETY: as many bytes may be written as there are.
        let read = unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        read == 8
    }
}
