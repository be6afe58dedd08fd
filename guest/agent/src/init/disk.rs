//! A look at a disk, for who wants to know whether a guest's disks work: writes, flushes and
//! reads past the page cache, discards, and says on the kernel's console what came of it.

use super::{drivers, mount, Trouble};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Before the name of a block device, among the words of the kernel's command line.
const WORD: &str = "trapline-disk=";

/// Memory and lengths are multiples of this.
const ALIGNED: usize = 4096;

/// Bytes that are moved at once, and how often.
const PIECE: usize = 64 << 10;
const PIECES: u64 = 24;

/// `BLKDISCARD` and `BLKZEROOUT` of Linux's linux/fs.h.
const DISCARD: libc::c_ulong = 0x1277;
const ZERO_OUT: libc::c_ulong = 0x127f;

/// Looks at the disks that the kernel was told of; true if there were any.
///
/// # Errors
/// What is wrong with one.
pub fn look() -> Result<bool, Trouble> {
    let words = fs::read_to_string("/proc/cmdline").map_err(|error| error.to_string())?;
    let words = words.split_ascii_whitespace();
    let disks: Vec<_> = words.filter_map(|word| word.strip_prefix(WORD)).collect();
    if disks.is_empty() {
        return Ok(false);
    }
    for (kind, at) in [("devtmpfs", "/dev"), ("sysfs", "/sys")] {
        mount(kind, at).map_err(|error| format!("{at}: {error}"))?;
    }
    drivers::load().map_err(|error| error.to_string())?;
    for disk in disks {
        let told = look_at(disk).map_err(|error| format!("{disk}: {error}"))?;
        println!("{disk}: {told}");
    }
    Ok(true)
}

fn look_at(disk: &str) -> io::Result<String> {
    let setting = |name: &str| {
        let text = fs::read_to_string(Path::new("/sys/block").join(disk).join(name));
        text.map(|text| text.trim().to_owned())
    };
    let told = format!(
        "{} sectors, {}, read-only {}",
        setting("size")?,
        setting("queue/write_cache")?,
        setting("ro")?
    );
    let is_writable = setting("ro")? == "0";
    let mut options = File::options();
    let options = options.read(true).write(is_writable);
    let file = options
        .custom_flags(libc::O_DIRECT)
        .open(Path::new("/dev").join(disk))?;
    let mut room = vec![0; PIECE + ALIGNED];
    let start = room.as_ptr().align_offset(ALIGNED);
    let piece = &mut room[start..start + PIECE];
    if !is_writable {
        file.read_exact_at(piece, 0)?;
        return Ok(told);
    }
    write_and_read(&file, piece)?;
    for how in [DISCARD, ZERO_OUT] {
        clear(&file, piece, how)?;
    }
    Ok(told + ", all that was written was read")
}

/// Where a piece is: each in another place than the one before.
fn place(number: u64) -> u64 {
    number * 7 % PIECES * PIECE as u64
}

fn write_and_read(file: &File, piece: &mut [u8]) -> io::Result<()> {
    for number in 0..PIECES {
        fill(piece, number);
        file.write_all_at(piece, place(number))?;
    }
    file.sync_data()?;
    let mut wanted = vec![0; piece.len()];
    for number in 0..PIECES {
        fill(&mut wanted, number);
        file.read_exact_at(piece, place(number))?;
        if piece != wanted {
            return Err(io::Error::other(format!("piece {number} reads otherwise")));
        }
    }
    Ok(())
}

/// Bytes that no other piece has, and no other sector of this one.
fn fill(piece: &mut [u8], number: u64) {
    for (word, at) in piece.chunks_exact_mut(8).zip(0_u64..) {
        word.copy_from_slice(&(number << 32 | at).to_le_bytes());
    }
}

/// Clears the first piece.
fn clear(file: &File, piece: &mut [u8], how: libc::c_ulong) -> io::Result<()> {
    let range = [0, piece.len() as u64];
    // SAFETY: both requests read two numbers, which are there.
    if unsafe { libc::ioctl(file.as_raw_fd(), how as libc::Ioctl, range.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    file.read_exact_at(piece, 0)?;
    match piece.iter().all(|byte| *byte == 0) {
        true => file.write_all_at(piece, 0),
        false => Err(io::Error::other("what was cleared is not zero")),
    }
}
