//! A layer-2 learning switch in user space, whose ports are vhost-user devices and taps.
//!
//! [`session`] negotiates with the VMM of a guest, which shares the guest's memory. [`engine`] is the only thread that touches
//! the rings ([`ring`]) and taps ([`tap`]): it copies each frame once, from the memory of the sender to a buffer of the receiver.
//! A port may have its frames copied to a file ([`mirror`]).
//!
//! Guests are hostile. Each descriptor is read once; each address and length is checked against the shared memory
//! ([`memory`]). A port with an invalid ring stops; the others go on. Memory that its owner truncates does not fault
//! ([`fault`]). No notification waits ([`notify`]).

pub mod control;
mod copy;
pub mod counters;
pub mod cpu;
pub mod driver;
pub mod engine;
mod events;
pub mod fault;
pub mod frame;
pub mod handle;
pub mod memory;
pub mod mirror;
pub mod net_header;
pub mod notify;
mod patience;
pub mod policy;
pub mod port;
mod prefetch;
pub mod privileges;
pub mod report;
pub mod ring;
pub mod sandbox;
pub mod session;
pub mod socket;
pub mod table;
pub mod tap;
mod work;
