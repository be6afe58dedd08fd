//! The machine: everything below it wired together, one machine per process.
//!
//! [`Machine`] is the loop: enter the guest, let the [`trapline_monitor::devices::Board`]
//! answer, enter again. Around it: [`settings`] (what was asked for), [`setup`]
//! (image, memory, vCPU), [`console`] (what the guest says), [`events`] (what this
//! VMM says), [`sandbox`] (what it may still do while a guest runs) and
//! [`signals`]. [`populate`] gives the guest more memory. No threads but those of a
//! [`ticker`], a serial [`line`] or a [`disk`], for who asks for them, and next to no allocation: both would be paid for before the guest's
//! first instruction.

#[cfg(test)]
mod apart;
pub mod clock;
pub mod console;
pub mod disk;
pub mod ending;
pub mod events;
pub mod failure;
pub mod file;
pub mod line;
pub mod linux;
pub mod machine;
pub mod net;
pub mod placement;
pub mod populate;
pub mod sandbox;
pub mod settings;
pub mod setup;
pub mod signals;
pub mod threads;
pub mod ticker;
pub mod usage;
pub mod virtio;
pub mod vsock;

pub use ending::Ending;
pub use failure::Failure;
pub use machine::Machine;
pub use settings::Settings;
