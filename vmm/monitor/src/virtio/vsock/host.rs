//! The host side of vsock connections.

use super::Key;

/// Result of reading from a host program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// Number of bytes read.
    Bytes(usize),
    /// No data yet.
    Pending,
    /// End of the stream.
    End,
}

/// The host program has closed its receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// Host programs. No method blocks.
pub trait Host {
    /// Connects to the listener at `key.host`; returns false if there is none.
    fn connect(&mut self, key: Key) -> bool;

    /// The guest has accepted a connection from the host.
    fn accepted(&mut self, key: Key);

    /// Writes bytes; returns the number accepted, possibly 0.
    ///
    /// # Errors
    /// The program accepts no more bytes.
    fn write(&mut self, key: Key, bytes: &[u8]) -> Result<usize, Gone>;

    /// Reads into `room`.
    fn read(&mut self, key: Key, room: &mut [u8]) -> ReadResult;

    /// The guest has shut down its sending side.
    fn finish(&mut self, key: Key);

    /// Closes a connection, which may already be closed.
    fn close(&mut self, key: Key);
}
