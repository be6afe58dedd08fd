//! The contract between the three floors of the house: what a guest is told,
//! what it may say, and what the machine around it offers.
//!
//! Everything here is `no_std` and without dependencies, because it is compiled
//! into the image, into the Linux agent, into the VMM and into the lab. A change
//! of any byte that crosses a boundary raises [`VERSION`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod block;
pub mod catalogue;
pub mod codec;
pub mod frame;
pub mod interrupt;
pub mod job;
pub mod mark;
pub mod platform;
pub mod populate;
pub mod record;
mod stamp;
pub mod ticker;

pub use catalogue::{Direction, Op, OpSet, Unit, Workload};
pub use frame::{Decoder, Item};
pub use interrupt::{Found, Interrupt};
pub use job::Job;
pub use record::{Counter, Record, Stage};

/// Version of everything in this crate that crosses a boundary: frame layout,
/// record payloads, command-line words, ports and note layout.
pub const VERSION: u16 = 4;
