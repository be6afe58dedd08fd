//! Processes: programs at ring 3 with address spaces of their own.
//!
//! They exist only while workload `system` is measured: code that is measured there is itself process 1.
//!
//! [`pool`] has the frames, [`address_space`] the page tables, [`table`] the states of processes,
//! [`pipe`] the buffers; these need no machine. [`switch`] switches between kernel stacks, [`calls`]
//! implements system calls and page faults, `entry.s` is between a program and the kernel. [`ring`] has what
//! differs between a kernel at ring 0 ([`ring0`]), at ring 0 and isolated from programs ([`isolated`] with its [`entries`] and
//! [`user_tables`], `isolated.s`), and at ring 3 ([`ring3`], `entry3.s`). [`step`] is a program for all. [`launch`]
//! starts process 1 with the [`resources`] of all. [`user`] is `System` for programs, by the
//! [`system_calls`] of [`number`]. [`hostile`] has programs that misbehave.

mod address_space;
#[cfg(trapline_image)]
mod calls;
#[cfg(trapline_image)]
mod cpu;
#[cfg(trapline_image)]
mod entries;
#[cfg(trapline_image)]
mod hostile;
#[cfg(trapline_image)]
mod isolated;
#[cfg(trapline_image)]
mod launch;
#[cfg(trapline_image)]
mod number;
mod pipe;
mod pool;
#[cfg(trapline_image)]
mod resources;
#[cfg(trapline_image)]
mod ring;
#[cfg(trapline_image)]
mod ring0;
#[cfg(trapline_image)]
mod ring3;
#[cfg(trapline_image)]
mod step;
#[cfg(trapline_image)]
mod switch;
#[cfg(trapline_image)]
mod system_calls;
mod table;
#[cfg(trapline_image)]
mod user;
mod user_tables;

#[cfg(trapline_image)]
pub use calls::end_on_exception;
#[cfg(trapline_image)]
pub use launch::{contain_programs, measure};
#[cfg(trapline_image)]
pub use number::EXIT;

/// Function that process 1 executes at ring 3, with the address of its job. Returns the exit status.
#[cfg(trapline_image)]
type Entry = extern "C" fn(*const trapline_abi::Job) -> u8;
