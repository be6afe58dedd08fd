//! The VM interface: one VMM above several hypervisors.
//!
//! Some hypervisors call a handler at a guest exit, others return from a system call. Here both look
//! the same: [`Vcpu::run`] takes an [`Entry`] and returns an [`Exit`]. Start-up, a kick from outside
//! ([`Exit::Kicked`]) and the end of a vCPU are exits, too. The next entry answers a `Read`. Only the
//! registers that an exit touches are transferred; others on request.
//!
//! Callers query [`Caps`] instead of using `cfg`. Every backend passes the [`conformance`] suite,
//! including [`fake`], which replays a script and needs no hypervisor.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod conformance;
#[cfg(feature = "std")]
pub mod fake;

mod access;
mod caps;
mod error;
#[cfg(feature = "std")]
mod mapping;
mod notify;
mod region;
mod state;
#[cfg(feature = "std")]
pub mod timer;
mod vm;

pub use access::{Access, Entry, Exit, Gpa, IoAddr, Stop};
pub use caps::{Caps, Missing, Ring0};
pub use error::{Errno, Error, Result};
pub use notify::{Doorbell, IrqId, IrqLine, Kick, Kicker, VcpuId};
#[cfg(feature = "std")]
pub use region::has_huge_pages;
pub use region::{OutOfRegion, Pages, Populate, Region, HUGE_PAGE, PAGE};
pub use state::{Activity, BootState, General, RegSet, Segment, System, Table, VcpuState};
pub use vm::{Controllers, Hypervisor, Vcpu, VcpuStats, Vm, VmSpec};
