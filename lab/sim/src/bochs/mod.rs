//! Bochs as a simulated machine with Intel's virtualization. It emulates one instruction after the
//! other, and its clock is their number.

pub mod acpi;
pub mod machine;
pub mod memory;
pub mod multiboot;
pub mod program;
pub mod unpack;
pub mod watch;
