//! Disk of workload `block`.

use core::fmt;

/// Disk to measure. Its contents are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Open file descriptor of the process.
    Descriptor(u8),
    /// Device of this name in `/dev`, padded with zeros.
    Device([u8; NAME]),
}

/// Maximum length of a device name.
const NAME: usize = 8;

impl Disk {
    /// Parses the name of a disk: `fd4` or `vda`.
    pub fn from_name(name: &str) -> Option<Disk> {
        if let Some(number) = name.strip_prefix("fd") {
            return number.parse().ok().map(Disk::Descriptor);
        }
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mut device = [0; NAME];
        device
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        (is_plain && !name.is_empty()).then_some(Disk::Device(device))
    }
}

/// Formats the name that [`Disk::from_name`] parses.
impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor(number) => write!(f, "fd{number}"),
            Self::Device(name) => {
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                f.write_str(core::str::from_utf8(name).unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn disk_names_are_parsed_and_paths_rejected() {
        for name in ["fd4", "vda", "ubda", "nvme0n1"] {
            assert_eq!(Disk::from_name(name).unwrap().to_string(), name);
        }
        for name in ["", "fd", "fd999", "../vda", "vda/1", "averylongname"] {
            assert_eq!(Disk::from_name(name), None, "{name}");
        }
    }
}
