//! Interface between guests, VMMs and the lab: operations, jobs, records, ports and boot protocol.
//!
//! The crate is `no_std` and has no dependencies, because the image, the Linux agent, the VMM and
//! the lab are all compiled with it. A change of any byte that crosses a boundary raises
//! [`VERSION`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arch;
pub mod block;
pub mod codec;
pub mod files;
pub mod frame;
pub mod instruction_set;
pub mod interrupt;
pub mod job;
pub mod marker;
mod names;
pub mod net;
pub mod operation;
pub mod packet;
pub mod platform;
pub mod populate;
pub mod record;
pub mod spaces;
mod stamp;
pub mod sweep;
pub mod ticker;
pub mod workload;

pub use frame::{Decoder, Item};
pub use interrupt::{CpuState, Interrupt};
pub use job::Job;
pub use operation::{Direction, Measure, Need, Op, OpSet, Unit};
pub use record::{Counter, Record, Stage};
pub use workload::Workload;

/// Version of the interface: frame layout, record payloads, command-line words, ports and note
/// layout.
pub const VERSION: u16 = 4;
