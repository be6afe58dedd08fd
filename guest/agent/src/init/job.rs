//! What a machine has to do reaches it when everything else is there already, so
//! that one machine, saved at this point, serves many jobs: as a file of QEMU's
//! firmware configuration device (QEMU `docs/specs/fw_cfg.rst`). Its directory
//! is read anew each time, for it is not part of the machine's state. A machine
//! without that device is started for one job, and has it among its files.

use super::port::Port;
use std::fs;
use std::io;
use trapline_abi::platform::JOB_FILE;

/// The item that lists the files: their number, then an entry for each.
const DIRECTORY: u16 = 0x19;

/// Of an entry: four bytes of length, two of its item, two unused, then the name.
const ENTRY: usize = 64;

/// More than a job may take, in bytes.
const MOST: usize = 1 << 20;

/// Where the job is on a machine without the device. The file is longer than any
/// job, so that a machine's way to it does not depend on what it will do.
const FILE: &str = "/trapline/job";

/// Reads the job.
pub fn read(port: &mut Port) -> io::Result<String> {
    let Some((item, length)) = find(port) else {
        return read_file().map_err(|error| {
            io::Error::other(format!(
                "the machine has no file {JOB_FILE}; {FILE}: {error}"
            ))
        });
    };
    if length > MOST {
        return Err(io::Error::other(format!("{JOB_FILE} has {length} bytes")));
    }
    let mut text = vec![0; length];
    port.select(item);
    port.read(&mut text);
    String::from_utf8(text).map_err(io::Error::other)
}

/// The text in the file, which ends with zeros.
fn read_file() -> io::Result<String> {
    let text = fs::read_to_string(FILE)?;
    Ok(text.trim_end_matches('\0').to_owned())
}

/// The item and the length of the job's file.
fn find(port: &mut Port) -> Option<(u16, usize)> {
    let mut count = [0; 4];
    port.select(DIRECTORY);
    port.read(&mut count);
    // No device answers with all ones.
    let count = match u32::from_be_bytes(count) {
        u32::MAX => 0,
        count => count.min(1 << 16),
    };
    (0..count).find_map(|_| {
        let mut entry = [0; ENTRY];
        port.read(&mut entry);
        is_the_job(&entry)
    })
}

fn is_the_job(entry: &[u8; ENTRY]) -> Option<(u16, usize)> {
    let (head, name) = entry.split_at(8);
    let name = name.split(|byte| *byte == 0).next()?;
    let length = u32::from_be_bytes(head[..4].try_into().ok()?);
    let item = u16::from_be_bytes(head[4..6].try_into().ok()?);
    (name == JOB_FILE.as_bytes()).then_some((item, length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_the_device_writes_it() {
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&[0, 0, 1, 2, 0, 0x2a, 0, 0]);
        entry[8..8 + JOB_FILE.len()].copy_from_slice(JOB_FILE.as_bytes());
        assert_eq!(is_the_job(&entry), Some((0x2a, 0x102)));
        entry[8] = b'x';
        assert_eq!(is_the_job(&entry), None);
    }
}
