//! Decodes what a guest sends: console bytes to records, records to a [`GuestReport`].
//!
//! The crate is pure: no process, no clock and no file, so that tests can send arbitrary bytes.
//!
//! Console bytes are untrusted. Memory stays bounded: samples per operation, log, problems and, by
//! [`byte_limit`], all streams together. Each claim of a guest is checked where it can be: an
//! operation must have been requested, must end once, and must have sent as many samples as it reports.

mod decoded;
mod decoder;
mod log;
mod operation;
mod report;
mod usage;
mod window;

pub use decoder::{byte_limit, GuestDecoder, MAX_BYTES};
pub use log::Log;
pub use report::{Elapsed, EndState, GuestReport, Hello, NOT_REPORTED};
pub use usage::{NoProbe, Usage, UsageProbe};
pub use window::{Lateness, Window};

#[cfg(test)]
mod tests;
