//! Device logic, and nothing but logic: registers in, effects out.
//!
//! No device here owns a descriptor or a thread. What it needs from outside - to
//! say or hear a byte, to raise an interrupt, to know a count - it asks of a
//! [`Host`]; what it wants done to the machine it returns as an [`Effect`]. A guest
//! may poke any address with any value of any size: every access has a defined
//! result, and none takes memory.

mod board;
mod host;
mod populate;
mod serial;
mod virtio;

pub use board::{Board, Counts, Effect};
pub use host::{Host, Terminal, Trigger};
pub use populate::{Order, Populate};
pub use serial::Serial;
pub use virtio::Transport;
