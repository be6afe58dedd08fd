//! Xen of the distribution: its packages, and the files that have names for its code.

pub mod code;
pub mod packages;
