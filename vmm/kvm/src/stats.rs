//! KVM's count of guest exits per vCPU (KVM_GET_STATS_FD, Linux 5.14; Documentation/virt/kvm/api.rst 4.130).
//!
//! The file holds a header, named descriptors and numbers. It is opened at the first query, so that a VM
//! without queries pays nothing.

use kvm_bindings::{kvm_stats_desc, kvm_stats_header};
use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::FileExt;

/// `_IO(KVMIO, 0xce)`.
const KVM_GET_STATS_FD: libc::c_ulong = 0xaece;

/// Name of the counter.
const EXITS: &[u8] = b"exits";

/// Limit for a malformed header.
const MAX_DESCRIPTORS: u32 = 4096;

/// Bytes of a descriptor before its name.
const DESCRIPTOR: usize = size_of::<kvm_stats_desc>();
const OFFSET: usize = offset_of!(kvm_stats_desc, offset);

/// An open counter.
pub(crate) struct ExitCount {
    file: File,
    offset: u64,
}

impl ExitCount {
    /// Opens the counter; `None` without kernel support.
    pub(crate) fn open(vcpu: RawFd) -> Option<ExitCount> {
        // SAFETY: this request takes no argument and only makes a descriptor.
        let fd = unsafe { libc::ioctl(vcpu, KVM_GET_STATS_FD, 0) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the kernel has just given us this descriptor.
        let file = unsafe { File::from_raw_fd(fd) };
        let offset = find(EXITS, |at, into| file.read_exact_at(into, at).ok())?;
        Some(ExitCount { file, offset })
    }

    /// Returns the current value.
    pub(crate) fn read(&self) -> Option<u64> {
        let mut value = [0; 8];
        self.file.read_exact_at(&mut value, self.offset).ok()?;
        Some(u64::from_ne_bytes(value))
    }
}

/// Returns the file offset of counter `name`; `read` reads the statistics file.
fn find(name: &[u8], read: impl Fn(u64, &mut [u8]) -> Option<()>) -> Option<u64> {
    let mut header = [0; size_of::<kvm_stats_header>()];
    read(0, &mut header)?;
    let field = |index: usize| word(&header, index * 4);
    let (name_size, count) = (field(1)?, field(2)?);
    let (descriptors, data) = (u64::from(field(4)?), u64::from(field(5)?));
    let size = DESCRIPTOR + name_size as usize;
    let mut descriptor = [0; 256];
    let descriptor = descriptor.get_mut(..size)?;
    for index in 0..u64::from(count.min(MAX_DESCRIPTORS)) {
        read(descriptors + index * size as u64, descriptor)?;
        let text = descriptor[DESCRIPTOR..].split(|&byte| byte == 0).next();
        if text == Some(name) {
            return Some(data + u64::from(word(descriptor, OFFSET)?));
        }
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(names: &[&str]) -> Vec<u8> {
        let name_size = 16u32;
        let mut bytes = Vec::new();
        let data = 24 + names.len() as u32 * (16 + name_size);
        for field in [0, name_size, names.len() as u32, 24, 24, data] {
            bytes.extend(field.to_ne_bytes());
        }
        for (index, name) in names.iter().enumerate() {
            bytes.extend([0; 8]);
            bytes.extend((index as u32 * 8).to_ne_bytes());
            bytes.extend([0; 4]);
            let mut text = name.as_bytes().to_vec();
            text.resize(name_size as usize, 0);
            bytes.extend(text);
        }
        bytes
    }

    fn find_in(bytes: &[u8]) -> Option<u64> {
        find(EXITS, |at, into| {
            let from = bytes.get(at as usize..at as usize + into.len())?;
            into.copy_from_slice(from);
            Some(())
        })
    }

    #[test]
    fn counter_is_found_by_its_full_name() {
        let bytes = file(&["io_exits", "exits_more", "exits", "hypercalls"]);
        assert_eq!(find_in(&bytes), Some(24 + 4 * 32 + 16));
        assert_eq!(find_in(&file(&["io_exits"])), None);
    }

    #[test]
    fn malformed_statistics_are_rejected() {
        assert_eq!(find_in(&[]), None);
        assert_eq!(find_in(&[0xff; 24]), None);
        let mut endless = file(&["a"]);
        endless[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(find_in(&endless), None);
    }
}
