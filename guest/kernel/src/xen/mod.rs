//! Xen as the hypervisor below: [`hypercall`] calls it, [`console`] is the ring by which
//! a domain speaks to dom0, [`events`] are a domain's interrupts, [`memory`] is what it
//! has, and here is its end.
//!
//! Nothing of this is executed unless the command line says that this is a domain of
//! Xen, or there is none and the hypervisor says so itself.

mod console;
mod events;
mod hypercall;
mod memory;

pub use console::{read_line, Console};
pub use events::{taken, Events, EVENT_VECTOR};
pub use hypercall::Xen;
pub use memory::memory_map;

use crate::cpu::pause;
use hypercall::SCHED_OP;

/// Operation of [`SCHED_OP`], and its reasons (Xen `public/sched.h`).
const SCHED_SHUTDOWN: u64 = 2;
const POWER_OFF: u32 = 0;
const REBOOT: u32 = 1;

/// Ends the domain.
pub fn shut_down() {
    end(POWER_OFF);
}

/// Ends the domain and with it the machine, if it is the first. Where that is powered
/// off the machine halts for ever, but it can be restarted, which ends it as well.
pub fn restart_machine() {
    end(REBOOT);
}

fn end(reason: u32) {
    // SAFETY: the operation reads a `u32` and does not come back.
    unsafe { Xen::here().call(SCHED_OP, SCHED_SHUTDOWN, &raw const reason as u64) };
    pause();
}
