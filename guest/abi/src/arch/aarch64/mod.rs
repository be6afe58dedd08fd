//! 64-bit Arm: QEMU's machine `virt`.

pub mod marker;
pub mod platform;
