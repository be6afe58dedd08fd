//! Secondary CPUs, for workloads `ipc` and `smp`.
//!
//! [`area`] is the memory of a CPU, `start.s` its first instructions, [`start`] the boot CPU's side of the start, [`group`]
//! what the CPUs execute, [`secondary`] how a secondary one comes to that, [`run_queue`] which thread runs on a CPU, [`page`] a
//! page whose frame changes meanwhile. Secondary CPUs execute nothing else: all state in [`crate::cpu::Global`] belongs to the boot CPU.

mod area;
#[cfg(trapline_image)]
mod group;
#[cfg(trapline_image)]
mod page;
#[cfg(trapline_image)]
mod run_queue;
#[cfg(trapline_image)]
mod secondary;
#[cfg(trapline_image)]
mod start;

#[cfg(trapline_image)]
pub use {group::cpus, start::start_all};
