//! x86-64: PC machines, QEMU's microvm and those of trapline-vmm.

pub mod marker;
pub mod platform;
