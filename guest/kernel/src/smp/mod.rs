//! Secondary CPUs, and the pair of CPUs of workload `ipc`.
//!
//! [`area`] is the memory of a CPU, `start.s` its first instructions, [`start`] the boot CPU's side of the start, [`pair`]
//! what the CPUs execute. Secondary CPUs execute nothing else: all state in [`crate::cpu::Global`] belongs to the boot
//! CPU.

mod area;
#[cfg(trapline_image)]
mod pair;
#[cfg(trapline_image)]
mod start;

#[cfg(trapline_image)]
pub use {pair::pair, start::start_all};
