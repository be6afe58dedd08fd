//! Interface to Xen: [`hypercall`]s, the [`console`] ring to dom0, [`events`], [`memory`] and
//! shutdown.
//!
//! None of this runs unless the command line says that this is a Xen domain, or there is no command
//! line and cpuid reports Xen.

mod console;
mod events;
mod hypercall;
mod memory;

pub use console::{read_line, Console};
pub use events::{event_count, Events, EVENT_VECTOR};
pub use hypercall::Xen;
pub use memory::memory_map;

use crate::cpu::pause;
use hypercall::SCHED_OP;

/// Operation of [`SCHED_OP`], and its reasons (Xen `public/sched.h`).
const SCHED_SHUTDOWN: u64 = 2;
const POWER_OFF: u32 = 0;
const REBOOT: u32 = 1;

/// Shuts down the domain.
pub fn shut_down() {
    request_shutdown(POWER_OFF);
}

/// Reboots the machine, if this is the first domain. Powering it off would halt the machine forever,
/// but a restart ends the simulation.
pub fn restart_machine() {
    request_shutdown(REBOOT);
}

fn request_shutdown(reason: u32) {
    // SAFETY: the operation reads a `u32` and does not return.
    unsafe { Xen::here().call(SCHED_OP, SCHED_SHUTDOWN, &raw const reason as u64) };
    pause();
}
