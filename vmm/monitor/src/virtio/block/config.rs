//! Configuration space of a block device (virtio 1.2, section 5.2.4).

use super::{Geometry, MAX_CLEARED, MAX_PARTS, SECTOR};

/// Returns the configuration space.
pub fn configuration(geometry: &Geometry) -> [u8; 60] {
    let mut bytes = [0; 60];
    let block = geometry.block.max(SECTOR as u32);
    let exponent = (block / SECTOR as u32).ilog2() as u8;
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &geometry.sectors.to_le_bytes());
    put(12, &MAX_PARTS.to_le_bytes());
    put(20, &(SECTOR as u32).to_le_bytes());
    put(24, &[exponent, 0]);
    put(26, &((block / SECTOR as u32) as u16).to_le_bytes());
    if geometry.clears {
        for max in [36, 48] {
            put(max, &MAX_CLEARED.to_le_bytes());
            // Ranges in one request.
            put(max + 4, &1_u32.to_le_bytes());
        }
        put(44, &(block / SECTOR as u32).to_le_bytes());
        put(56, &[1]);
    }
    bytes
}
