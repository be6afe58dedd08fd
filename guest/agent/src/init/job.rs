//! Job of a simulated machine, read after its setup, so that one snapshot serves many jobs.
//!
//! It is a file of QEMU's firmware configuration device (QEMU `docs/specs/fw_cfg.rst`), whose
//! directory is not part of a snapshot and is read each time. A machine without the device is started
//! for one job, which is in its initramfs. Zeros follow the job, so that its first launch is the same work
//! whatever follows it (trapline-sim, `Script::padded`).

use crate::devices::Devices;
use std::fs;
use std::io;
use trapline_abi::platform::JOB_FILE;

/// Item with the directory: the number of files, then an entry per file.
const DIRECTORY: u16 = 0x19;

/// Length of an entry: 4 bytes of length, 2 of the item, 2 unused, then the name.
const ENTRY: usize = 64;

/// Maximum length of a job, in bytes.
const MAX_LENGTH: usize = 1 << 20;

/// File with the job on a machine without the device.
const FILE: &str = "/trapline/job";

/// Reads the job with the zeros after it.
pub fn read(devices: &mut Devices) -> io::Result<String> {
    let Some((item, length)) = find(devices) else {
        return fs::read_to_string(FILE).map_err(|error| {
            io::Error::other(format!(
                "the machine has no file {JOB_FILE}; {FILE}: {error}"
            ))
        });
    };
    if length > MAX_LENGTH {
        return Err(io::Error::other(format!("{JOB_FILE} has {length} bytes")));
    }
    let mut text = vec![0; length];
    devices.select(item);
    devices.read(&mut text);
    String::from_utf8(text).map_err(io::Error::other)
}

/// Returns the item and the length of the job file.
fn find(devices: &mut Devices) -> Option<(u16, usize)> {
    let mut count = [0; 4];
    devices.select(DIRECTORY);
    devices.read(&mut count);
    // All ones: no device.
    let count = match u32::from_be_bytes(count) {
        u32::MAX => 0,
        count => count.min(1 << 16),
    };
    (0..count).find_map(|_| {
        let mut entry = [0; ENTRY];
        devices.read(&mut entry);
        parse_entry(&entry)
    })
}

fn parse_entry(entry: &[u8; ENTRY]) -> Option<(u16, usize)> {
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
    fn directory_entries_are_parsed() {
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&[0, 0, 1, 2, 0, 0x2a, 0, 0]);
        entry[8..8 + JOB_FILE.len()].copy_from_slice(JOB_FILE.as_bytes());
        assert_eq!(parse_entry(&entry), Some((0x2a, 0x102)));
        entry[8] = b'x';
        assert_eq!(parse_entry(&entry), None);
    }
}
