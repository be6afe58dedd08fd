//! Instruction profiles: the functions in which the instructions of an operation execute.
//!
//! The counts of the plugin between two markers ([`counter`], [`mod@format`]) and the names of
//! addresses ([`symbols`]) give a [`Profile`], whose total is the measured figure and whose
//! residual is the part that the counts do not explain. [`text`] prints it. No module depends on
//! a running machine.

mod address_space;
pub mod bochs_trace;
mod breakdown;
pub mod counter;
mod current_block;
pub mod format;
mod insn;
pub mod irq_path;
pub mod irq_tracer;
mod lengths;
mod levels;
pub mod page;
mod retirement;
pub mod source;
mod stacks;
pub mod stages;
pub mod symbols;
pub mod text;

pub use address_space::{AddressLayout, AddressSpace, XEN};
pub use breakdown::{changes, Batch, Change, FunctionCost, Profile, StageProfile, MEASUREMENT};
pub use format::Window;
pub use insn::{Event, MAX_LENGTH};
pub use levels::MAX_LEVELS;
pub use stacks::Stack;
pub use symbols::{Function, Symbols};
