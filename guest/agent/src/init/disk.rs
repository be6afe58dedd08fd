//! Disk test of a guest: writes, flushes and reads with O_DIRECT, discards, and prints the result on
//! the console. Or a journal, to test power failures: records that were printed as stable must exist
//! at the next boot.

use super::Message;
use crate::drivers;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Prefixes of words of the kernel's command line with the name of a block device: to test it, or to
/// write a journal to it.
const TEST: &str = "trapline-disk=";
const JOURNAL: &str = "trapline-journal=";

/// Alignment of buffers and lengths.
const ALIGNED: usize = 4096;

/// Bytes per request, and number of requests.
const PIECE: usize = 64 << 10;
const PIECES: u64 = 24;

/// `BLKDISCARD` and `BLKZEROOUT` (Linux `include/uapi/linux/fs.h`).
const DISCARD: libc::c_ulong = 0x1277;
const ZERO_OUT: libc::c_ulong = 0x127f;

/// Tests the disks of the kernel's command line. Returns true if there are any.
///
/// # Errors
/// Returns the first failure.
pub fn test() -> Result<bool, Message> {
    let words = fs::read_to_string("/proc/cmdline").map_err(|error| error.to_string())?;
    let words = words.split_ascii_whitespace();
    let is_ours = |word: &&str| word.starts_with(TEST) || word.starts_with(JOURNAL);
    let words: Vec<_> = words.filter(is_ours).collect();
    if words.is_empty() {
        return Ok(false);
    }
    drivers::prepare()?;
    for word in words {
        match word.strip_prefix(TEST) {
            Some(disk) => {
                let result = test_disk(disk).map_err(|error| format!("{disk}: {error}"))?;
                println!("{disk}: {result}");
            }
            None => write_journal(&word[JOURNAL.len()..]).map_err(|error| error.to_string())?,
        }
    }
    Ok(true)
}

fn test_disk(disk: &str) -> io::Result<String> {
    let setting = |name: &str| {
        let text = fs::read_to_string(Path::new("/sys/block").join(disk).join(name));
        text.map(|text| text.trim().to_owned())
    };
    let description = format!(
        "{} sectors, {}, read-only {}",
        setting("size")?,
        setting("queue/write_cache")?,
        setting("ro")?
    );
    let is_writable = setting("ro")? == "0";
    let file = open(disk, is_writable)?;
    let mut buffer = vec![0; PIECE + ALIGNED];
    let start = buffer.as_ptr().align_offset(ALIGNED);
    let piece = &mut buffer[start..start + PIECE];
    if !is_writable {
        file.read_exact_at(piece, 0)?;
        return Ok(description);
    }
    write_and_read(&file, piece)?;
    for how in [DISCARD, ZERO_OUT] {
        clear(&file, piece, how)?;
    }
    Ok(description + ", all that was written was read")
}

/// Opens a disk with O_DIRECT.
fn open(disk: &str, is_writable: bool) -> io::Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(is_writable);
    let options = options.custom_flags(libc::O_DIRECT);
    options.open(Path::new("/dev").join(disk))
}

/// Returns the place of a piece. Consecutive pieces are not adjacent.
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

/// Fills a piece with a pattern that is unique for each piece and sector.
fn fill(piece: &mut [u8], number: u64) {
    for (word, at) in piece.chunks_exact_mut(8).zip(0_u64..) {
        word.copy_from_slice(&(number << 32 | at).to_le_bytes());
    }
}

/// Clears the first piece.
fn clear(file: &File, piece: &mut [u8], how: libc::c_ulong) -> io::Result<()> {
    let range = [0, piece.len() as u64];
    // SAFETY: both requests read two numbers.
    if unsafe { libc::ioctl(file.as_raw_fd(), how as libc::Ioctl, range.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    file.read_exact_at(piece, 0)?;
    if piece.iter().all(|byte| *byte == 0) {
        file.write_all_at(piece, 0)
    } else {
        Err(io::Error::other("what was cleared is not zero"))
    }
}

/// Number of records of the journal, which is a ring of places of [`ALIGNED`] bytes.
const RECORDS: u64 = 64;

/// Prints the last record of the journal, and appends records until the machine ends.
fn write_journal(disk: &str) -> io::Result<()> {
    let file = open(disk, true)?;
    let mut buffer = vec![0; 2 * ALIGNED];
    let start = buffer.as_ptr().align_offset(ALIGNED);
    let record = &mut buffer[start..start + ALIGNED];
    let mut found = Vec::new();
    for place in 0..RECORDS {
        file.read_exact_at(record, place * ALIGNED as u64)?;
        found.extend(number_of(record));
    }
    let last = found.iter().max().copied().unwrap_or(0);
    // The place of the next record may contain a torn one.
    let unbroken = (1..RECORDS).take_while(|back| found.contains(&(last + 1).wrapping_sub(*back)));
    println!("{disk}: found {last}, unbroken {}", unbroken.count());
    for number in last + 1.. {
        fill(record, number);
        file.write_all_at(record, number % RECORDS * ALIGNED as u64)?;
        file.sync_data()?;
        println!("{disk}: stable {number}");
    }
    Ok(())
}

/// Returns the number of a complete record.
fn number_of(record: &[u8]) -> Option<u64> {
    let mut whole = vec![0; record.len()];
    let number = u64::from(u32::from_le_bytes(*record[4..].first_chunk()?));
    fill(&mut whole, number);
    (number > 0 && whole == record).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_record_is_ignored() {
        let mut record = vec![0; ALIGNED];
        assert_eq!(number_of(&record), None);
        fill(&mut record, 70_000);
        assert_eq!(number_of(&record), Some(70_000));
        record[ALIGNED / 2..].fill(0);
        assert_eq!(number_of(&record), None);
    }
}
