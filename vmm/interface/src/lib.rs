//! The kernel-agnostic VM interface: one VMM, several kernels underneath.
//!
//! Some kernels call a handler when a guest leaves, others return from a system
//! call. Here every one of them looks the same: [`Vcpu::run`] takes an [`Entry`],
//! gives back an [`Exit`], and everything that can happen to a vCPU is an exit -
//! its start-up, a pause or recall from outside ([`Exit::Kicked`]) and its end
//! among them. A `Read` is answered by the next entry. Only the registers that an
//! exit touches are transferred, and only when asked for.
//!
//! Callers ask [`Caps`] what the kernel offers, never `cfg`. Every backend passes
//! the same [`conformance`] suite, among them [`fake`], which needs no kernel
//! at all and replays a script.

pub mod conformance;
pub mod fake;

mod access;
mod caps;
mod error;
mod mapping;
mod notify;
mod region;
mod state;
mod vm;

pub use access::{Access, Entry, Exit, Gpa, IoAddr, Stop};
pub use caps::{Caps, Missing, Ring0};
pub use error::{Error, Result};
pub use notify::{Doorbell, IrqId, IrqLine, Kick, Kicker};
pub use region::{has_huge_pages, OutOfRegion, Pages, Populate, Region, HUGE_PAGE, PAGE};
pub use state::{Activity, BootState, General, RegSet, Segment, System, Table, VcpuState};
pub use vm::{Controllers, Hypervisor, Tally, Vcpu, VcpuId, Vm, VmSpec};
