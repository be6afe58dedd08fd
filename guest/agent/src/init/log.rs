//! A log on a journalled filesystem, for who wants to know whether what a guest has flushed
//! outlives it: a writer for each CPU appends records to a file of its own and says each
//! record's number on the kernel's console when its fsync has returned, not before. At the
//! next boot the kernel replays its journal, and what each file holds is read and told.

use super::{drivers, mount, mount_from, Trouble};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

/// Before the name of a block device, among the words of the kernel's command line.
const WORD: &str = "trapline-log=";

/// Before the number of records after which a writer ends; without it none does.
const RECORDS: &str = "trapline-records=";

/// Where the filesystem, which is an ext4, is mounted.
const PLACE: &str = "/journal";
const KIND: &str = "ext4";

/// Bytes of a record: less than a block, so that most are appended to one that was flushed
/// before.
const RECORD: usize = 512;

/// Keeps the log that the kernel was told of; true if it was told of one.
///
/// # Errors
/// The device cannot be used as that.
pub fn keep() -> Result<bool, Trouble> {
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
            .map_err(|_| format!("{RECORDS}{text}: no number"))?,
    };
    let kept = keep_on(&format!("/dev/{device}"), records);
    kept.map(|()| true)
        .map_err(|error| format!("{device}: {error}"))
}

fn keep_on(device: &str, records: u64) -> io::Result<()> {
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
    super::zero_or_error(unsafe { libc::umount(place.as_ptr()) }.into())
}

/// The file of one writer.
struct Log {
    writer: u64,
    file: File,
    /// Records that are there.
    records: u64,
}

impl Log {
    /// Opens a file and says how many records it begins with. What lies behind them was
    /// never told, and goes.
    fn open(writer: u64) -> io::Result<Self> {
        let path = Path::new(PLACE).join(format!("log{writer}"));
        let mut options = File::options();
        let options = options.read(true).write(true).create(true);
        let mut file = options.open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let records = whole(writer, &bytes);
        let behind = bytes.len() as u64 - records * RECORD as u64;
        println!("journal found {writer} {records} {behind}");
        file.set_len(records * RECORD as u64)?;
        Ok(Self {
            writer,
            file,
            records,
        })
    }

    /// Appends so many records, each flushed before it is told.
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

/// How many records of a writer these bytes begin with.
fn whole(writer: u64, bytes: &[u8]) -> u64 {
    let numbered = bytes.chunks_exact(RECORD).zip(0..);
    let whole = numbered.take_while(|(bytes, number)| *bytes == record(writer, *number));
    whole.count() as u64
}

/// Bytes that no other record has, and no other word of this one.
fn record(writer: u64, number: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    for (word, at) in record.chunks_exact_mut(8).zip(0_u64..) {
        let unlike = (writer << 56 | number << 8 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&(!unlike).to_le_bytes());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_as_long_as_each_is_whole_and_in_its_place() {
        let bytes: Vec<u8> = (0..5).flat_map(|number| record(1, number)).collect();
        assert_eq!(whole(1, &bytes), 5);
        assert_eq!(whole(0, &bytes), 0, "another writer's");
        assert_eq!(whole(1, &bytes[..bytes.len() - 1]), 4, "a piece");
        let mut torn = bytes.clone();
        torn[2 * RECORD + 300] ^= 1;
        assert_eq!(whole(1, &torn), 2);
        let mut zeros = bytes;
        zeros[3 * RECORD..].fill(0);
        assert_eq!(whole(1, &zeros), 3);
    }
}
