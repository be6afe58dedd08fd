//! Announcement of an address to the instrumentation of a simulated machine.

use std::io;

/// Returns whether hypervisors find the length of an intercepted instruction themselves: all have one length.
pub fn finds_lengths() -> bool {
    false
}

/// Executes the announcement of an address.
///
/// # Errors
/// Always, as there is none.
pub fn announce(_address: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
