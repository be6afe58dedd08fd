//! Access to the frame of a stopped process by copies, in place of the mapping of its stack.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Opens the memory of a process.
pub(crate) fn open(pid: libc::pid_t) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.open(format!("/proc/{pid}/mem"))
}

/// Copies words from the memory of a process.
pub(crate) fn read<const N: usize>(memory: &File, at: u64) -> io::Result<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    memory.read_exact_at(bytes.as_flattened_mut(), at)?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// Copies words to the memory of a process.
pub(crate) fn write<const N: usize>(memory: &File, at: u64, words: [u64; N]) -> io::Result<()> {
    memory.write_all_at(words.map(u64::to_le_bytes).as_flattened(), at)
}
