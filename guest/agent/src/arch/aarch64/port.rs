//! Ports, which this instruction set does not have.

use std::io;

/// Access to a range of ports. The type has no values.
pub enum PortAccess {}

impl PortAccess {
    /// Requests access to `count` ports from `first` on.
    ///
    /// # Errors
    /// Always.
    pub fn request(_first: u16, _count: u8) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Writes nothing.
pub fn out8(_port: u16, _value: u8) {}

/// Returns zero.
pub fn in8(_port: u16) -> u8 {
    0
}
