//! Durability test: logs on a journalled filesystem. One writer per CPU appends records to its own
//! file and prints the number of each record on the console after fsync has returned. At the next
//! boot the kernel replays its journal, and the number of records in each file is printed.

use super::Message;
use crate::drivers;
use crate::sys::{mount, mount_from, zero_or_error};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

/// Prefix of the word of the kernel's command line with the block device.
const WORD: &str = "trapline-log=";

/// Prefix of the word with the number of records per writer; unlimited without it.
const RECORDS: &str = "trapline-records=";

/// Mount point and type of the filesystem.
const PLACE: &str = "/journal";
const KIND: &str = "ext4";

/// Bytes of a record: less than a block, so that most records are appended to a flushed block.
const RECORD: usize = 512;

/// Runs the test of the kernel's command line. Returns true if there is one.
///
/// # Errors
/// The device cannot be used.
pub fn test() -> Result<bool, Message> {
    let words = fs::read_to_string("/proc/cmdline").map_err(|error| error.to_string())?;
    let word = |prefix| {
        let mut words = words.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(prefix))
    };
    let Some(device) = word(WORD) else {
        return Ok(false);
    };
    let records = match word(RECORDS) {
        None => u64::MAX,
        Some(text) => text
            .parse()
            .map_err(|_| format!("{RECORDS}{text}: not a number"))?,
    };
    let result = write_logs(&format!("/dev/{device}"), records);
    result
        .map(|()| true)
        .map_err(|error| format!("{device}: {error}"))
}

fn write_logs(device: &str, records: u64) -> io::Result<()> {
    mount("devtmpfs", "/dev")?;
    drivers::load()?;
    mount_from(device, KIND, PLACE)?;
    let writers = thread::available_parallelism()?.get() as u64;
    let opened: io::Result<Vec<_>> = (0..writers).map(Log::open).collect();
    let logs = opened?;
    println!("journal ready");
    thread::scope(|scope| {
        let write = |mut log: Log| scope.spawn(move || log.write(records));
        let writers: Vec<_> = logs.into_iter().map(write).collect();
        let panicked = |_| Err(io::Error::other("a writer panicked"));
        let mut writers = writers.into_iter();
        writers.try_for_each(|writer| writer.join().unwrap_or_else(panicked))
    })?;
    unmount()?;
    println!("journal unmounted");
    Ok(())
}

fn unmount() -> io::Result<()> {
    let place = std::ffi::CString::new(PLACE)?;
    // SAFETY: a string that outlives the call.
    zero_or_error(unsafe { libc::umount(place.as_ptr()) }.into())
}

/// File of one writer.
struct Log {
    writer: u64,
    file: File,
    /// Number of records.
    records: u64,
}

impl Log {
    /// Opens a file, prints the number of complete records and truncates the rest.
    fn open(writer: u64) -> io::Result<Self> {
        let path = Path::new(PLACE).join(format!("log{writer}"));
        let mut options = File::options();
        let options = options.read(true).write(true).create(true);
        let mut file = options.open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let records = count_complete(writer, &bytes);
        let rest = bytes.len() as u64 - records * RECORD as u64;
        println!("journal found {writer} {records} {rest}");
        file.set_len(records * RECORD as u64)?;
        Ok(Self {
            writer,
            file,
            records,
        })
    }

    /// Appends `count` records. Prints each one after it is flushed.
    fn write(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            let record = record(self.writer, self.records);
            self.file
                .write_all_at(&record, self.records * RECORD as u64)?;
            self.file.sync_all()?;
            self.records += 1;
            println!("journal told {} {}", self.writer, self.records);
        }
        Ok(())
    }
}

/// Returns the number of complete records at the start of `bytes`.
fn count_complete(writer: u64, bytes: &[u8]) -> u64 {
    let numbered = bytes.chunks_exact(RECORD).zip(0..);
    let complete = numbered.take_while(|(bytes, number)| *bytes == record(writer, *number));
    complete.count() as u64
}

/// Returns the content of a record, which is unique for each record and word.
fn record(writer: u64, number: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    for (word, at) in record.chunks_exact_mut(8).zip(0_u64..) {
        let hash = (writer << 56 | number << 8 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&(!hash).to_le_bytes());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_and_misplaced_records_are_not_counted() {
        let bytes: Vec<u8> = (0..5).flat_map(|number| record(1, number)).collect();
        assert_eq!(count_complete(1, &bytes), 5);
        assert_eq!(count_complete(0, &bytes), 0, "another writer's");
        assert_eq!(count_complete(1, &bytes[..bytes.len() - 1]), 4, "a piece");
        let mut torn = bytes.clone();
        torn[2 * RECORD + 300] ^= 1;
        assert_eq!(count_complete(1, &torn), 2);
        let mut zeros = bytes;
        zeros[3 * RECORD..].fill(0);
        assert_eq!(count_complete(1, &zeros), 3);
    }
}
