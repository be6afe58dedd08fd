//! Entries of page tables (Intel SDM volume 3, table 4-20), and their places.

use super::frames::FRAME;

pub const PRESENT: u64 = 1 << 0;
pub const WRITABLE: u64 = 1 << 1;
pub const USER: u64 = 1 << 2;
pub const ACCESSED: u64 = 1 << 5;
/// Set by the processor when a page is written.
pub const DIRTY: u64 = 1 << 6;
/// Physical address of a page or table.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Entry that points to a table. Its own entries restrict access further.
pub const TABLE: u64 = PRESENT | WRITABLE | USER | ACCESSED;

/// Entries of a table.
pub const ENTRIES: usize = 512;

/// Bytes that one table of the lowest level maps.
pub const REACH: u64 = ENTRIES as u64 * FRAME;

/// Table of any level.
pub type Table = [u64; ENTRIES];

/// Returns the index of `address` in its table of `level`; 0 is the lowest level.
pub fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize % ENTRIES
}
