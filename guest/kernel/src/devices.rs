//! Devices that applications write and read by number. An application at ring 0 calls the functions, system calls of
//! programs at ring 3 pass their arguments on.

/// Number of the null device, which takes all bytes and returns none. Pipes have smaller numbers.
pub const NULL: u64 = 32;

/// Writes `length` bytes at an address that the caller may read. Returns their number; `None` without such a device.
#[inline(never)]
pub fn write(device: u64, _address: u64, length: u64) -> Option<u64> {
    (device == NULL).then_some(length)
}

/// Reads at most `length` bytes to an address that the caller may write. Returns their number; `None` without such a
/// device.
#[inline(never)]
pub fn read(device: u64, _address: u64, _length: u64) -> Option<u64> {
    (device == NULL).then_some(0)
}
