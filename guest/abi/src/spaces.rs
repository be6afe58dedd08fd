//! Address spaces of a guest at ring 3, where loads of CR3 and `invlpg` are privileged.
//!
//! A 32-bit read of port [`crate::platform::SPACES`] returns [`BY_PORT`], [`BY_CALL`] or [`FAULTS_BY_PORT`] if the VMM has this
//! interface. A 32-bit write of the guest-physical address of a [`SpaceRequest`] performs the request. If the port returns
//! [`BY_CALL`], code of the VMM at [`ENTRY`] performs requests, too: it is called with the operation in `rdi`, the
//! arguments in `rsi` and `rdx`, and preserves what C functions preserve. It returns 0, or 1 if the request has to be
//! made by the port and then repeated.
//!
//! Addresses below [`SHARED_END`] have the same translations in all address spaces.

/// End of the addresses whose translations are the same in all address spaces.
pub const SHARED_END: u64 = 1 << 39;

/// Requests are made by the port.
pub const BY_PORT: u32 = u32::from_le_bytes(*b"spcp");
/// Requests are made by calls of [`ENTRY`].
pub const BY_CALL: u32 = u32::from_le_bytes(*b"spcc");
/// Requests are made by the port, and page faults do not reach the VMM: the guest requests their address by [`FAULT`].
pub const FAULTS_BY_PORT: u32 = u32::from_le_bytes(*b"spcf");
/// Address of the VMM's code in the guest's process.
pub const ENTRY: u64 = 0x6fff_0000_0400;

/// Operation: sets [`SpaceRequest::fault_address`] of this request at each page fault from now on. With [`FAULTS_BY_PORT`] it
/// has no effect.
pub const OPEN: u64 = 0;
/// Operation: loads a top-level page table. MXCSR and the x87 control word are undefined afterwards. Translations of a
/// table may persist until it is loaded while it is in use, or discarded.
pub const LOAD: u64 = 1;
/// Operation: removes the translations of a range of pages, given by address and length, in the current address space.
pub const FLUSH: u64 = 2;
/// Operation: discards the translations of a top-level table, which may be the current one until the next load.
pub const DISCARD: u64 = 3;
/// Operation, with [`FAULTS_BY_PORT`] only: sets [`SpaceRequest::fault_address`] of this request to the address of the last page
/// fault.
pub const FAULT: u64 = 4;

/// Request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceRequest {
    /// One of the operations.
    pub operation: u64,
    /// First argument.
    pub first: u64,
    /// Second argument.
    pub second: u64,
    /// Address of the last page fault, as in CR2.
    pub fault_address: u64,
}

/// Offset of [`SpaceRequest::fault_address`].
pub const FAULT_ADDRESS: u64 = 24;

impl SpaceRequest {
    /// Bytes that a VMM reads of a request.
    pub const BYTES: usize = 24;

    /// Parses a request.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let field = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Self {
            operation: field(0),
            first: field(1),
            second: field(2),
            fault_address: 0,
        }
    }
}
