//! Virtio devices with their locks, doorbells and interrupts.
//!
//! A vCPU reaches the registers of a [`Slot`]; a thread of the device waits for the doorbell, so that a notification
//! does not exit to user space.

mod counters;
mod slot;

pub use counters::{Counters, Counts};
pub use slot::Slot;

#[cfg(test)]
mod tests;
