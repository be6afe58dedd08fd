//! x86-64.

pub mod announcement;
pub mod devices;
pub mod fork;
pub mod port;
pub mod program;
pub mod sled;
