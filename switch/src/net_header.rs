//! The header before a frame (Virtual I/O Device 1.2, 5.1.6): `struct virtio_net_hdr` with `num_buffers`.

use std::ptr::NonNull;

/// Its length in bytes.
pub const NET_HEADER: u32 = 12;

/// Returns the last four bytes of the header of a frame without offloads in a number of buffers.
#[inline]
fn last_word(buffers: u16) -> u32 {
    u32::from(buffers) << 16
}

/// Returns the header of a frame without offloads in a number of buffers.
pub fn bytes(buffers: u16) -> [u8; NET_HEADER as usize] {
    let mut header = [0; NET_HEADER as usize];
    header[8..].copy_from_slice(&last_word(buffers).to_le_bytes());
    header
}

/// Writes it.
///
/// # Safety
/// `at` has [`NET_HEADER`] bytes.
#[inline(always)]
pub unsafe fn write(at: NonNull<u8>, buffers: u16) {
    // SAFETY: two words within the header.
    unsafe {
        at.cast::<u64>().write_unaligned(0);
        at.add(8)
            .cast::<u32>()
            .write_unaligned(last_word(buffers).to_le());
    }
}
