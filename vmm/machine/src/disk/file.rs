//! Opening and locking a disk's file.

use super::DiskConfig;
use crate::stop::print_error;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;
use trapline_monitor::virtio::block::{Geometry, IDENTITY, SECTOR};

/// Reason why a file cannot be used as a disk.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum DiskError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("neither a regular file nor a block device")]
    Kind,
    #[error("length of {0} bytes is not a positive multiple of 512; run truncate -s %512 FILE")]
    Length(u64),
    #[error("locked by another process, or given twice; stop it, or open it with ',ro' in both")]
    Locked,
    #[error("replaced during start; start again")]
    Replaced,
    #[error(
        "engine=uring: io_uring is not available ({0}); leave it out to use threads, or \
         see sysctl kernel.io_uring_disabled"
    )]
    NoUring(io::Error),
}

/// An open disk.
#[derive(Debug)]
pub struct DiskFile {
    /// File opened through the page cache.
    pub cached: File,
    /// File opened with O_DIRECT, if requested and supported.
    pub direct: Option<File>,
    /// Alignment of addresses, offsets and lengths for O_DIRECT.
    pub alignment: usize,
    /// Properties shown to the driver.
    pub geometry: Geometry,
}

impl DiskFile {
    /// Opens and locks the disk. The lock is exclusive, or shared if the disk is read-only.
    ///
    /// # Errors
    /// The file is not usable as a disk.
    pub fn open(wanted: &DiskConfig) -> Result<Self, DiskError> {
        let mut cached = open(wanted, 0)?;
        let metadata = cached.metadata()?;
        lock(&cached, wanted.read_only)?;
        if let Some(warning) = format_warning(&wanted.path, &cached) {
            print_error(&warning);
        }
        let length = cached.seek(SeekFrom::End(0))?;
        if length == 0 || !length.is_multiple_of(SECTOR) {
            return Err(DiskError::Length(length));
        }
        let direct = if wanted.direct {
            open_direct(wanted, &metadata)?
        } else {
            None
        };
        let alignment = direct.as_ref().map_or(SECTOR as usize, alignment);
        let block = (metadata.blksize() as usize).max(alignment);
        Ok(Self {
            geometry: Geometry {
                sectors: length / SECTOR,
                read_only: wanted.read_only,
                clears: !wanted.read_only && metadata.is_file() && punches(&cached, length),
                block: block.clamp(512, 1 << 16).next_power_of_two() as u32,
                identity: identity(&wanted.path),
            },
            cached,
            direct,
            alignment,
        })
    }
}

/// Returns a warning if the file begins like an image of QEMU, VMware, VirtualBox, Parallels, or Hyper-V. It is no error, because the guest of a raw
/// disk may write such bytes.
pub fn format_warning(path: &Path, file: &File) -> Option<String> {
    const FORMATS: [(&[u8], &str); 10] = [
        (b"QFI\xfb", "qcow2"),
        (b"KDMV", "vmdk"),
        (b"# Disk DescriptorFile", "vmdk"),
        (b"COWD", "vmdk"),
        (b"vhdxfile", "vhdx"),
        (b"conectix", "vpc"),
        (b"<<< ", "vdi"),
        (b"QED\0", "qed"),
        (b"WithoutFreeSpace", "parallels"),
        (b"WithouFreSpacExt", "parallels"),
    ];
    let mut start = [0; SECTOR as usize];
    let length = file.read_at(&mut start, 0).ok()?;
    let start = &start[..length];
    let (_, format) = FORMATS.iter().find(|(magic, _)| start.starts_with(magic))?;
    let path = path.display();
    Some(format!(
        "disk {path}: {format} image is served as raw\n\
         help: qemu-img convert -O raw {path} {path}.raw"
    ))
}

/// Opens a regular file or block device. Opening a FIFO does not block.
fn open(wanted: &DiskConfig, flags: i32) -> Result<File, DiskError> {
    let mut options = File::options();
    options.read(true).write(!wanted.read_only);
    let opened = options
        .custom_flags(flags | libc::O_NONBLOCK)
        .open(&wanted.path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        // A directory, a socket, or a device without a driver.
        Some(libc::EISDIR | libc::ENXIO) => DiskError::Kind,
        _ => DiskError::Io(error),
    })?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(DiskError::Kind);
    }
    // With O_NONBLOCK, io_uring returns EAGAIN instead of waiting for the disk.
    // SAFETY: the descriptor is open, and the rest are numbers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// Opens the file with O_DIRECT; `None` if the filesystem does not support it.
fn open_direct(wanted: &DiskConfig, same: &Metadata) -> Result<Option<File>, DiskError> {
    let file = match open(wanted, libc::O_DIRECT) {
        Err(DiskError::Io(error)) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if (metadata.dev(), metadata.ino()) == (same.dev(), same.ino()) {
        Ok(Some(file))
    } else {
        Err(DiskError::Replaced)
    }
}

/// Time to wait for the lock, and interval between attempts: after the end of a process the kernel frees its io_uring,
/// which holds the file, in the background.
const PATIENCE: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(5);

fn lock(file: &File, shared: bool) -> Result<(), DiskError> {
    let how = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    let begun = Instant::now();
    loop {
        // SAFETY: the descriptor is open, and the rest is a number.
        if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error.into());
        }
        if begun.elapsed() >= PATIENCE {
            return Err(DiskError::Locked);
        }
        thread::sleep(INTERVAL);
    }
}

/// Returns true if hole punching is supported, tried behind the end of the file.
fn punches(file: &File, length: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let Ok(at) = libc::off_t::try_from(length) else {
        return false;
    };
    // SAFETY: the descriptor is open, and the rest are numbers.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, at, SECTOR as libc::off_t) == 0 }
}

/// Returns the O_DIRECT alignment (`statx`, Linux 6.1), or one sector if unknown.
fn alignment(file: &File) -> usize {
    // SAFETY: all zero is a valid value of it.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // By number: std refers only weakly to the C library's `statx`, which a static link may drop.
    // SAFETY: an open descriptor, an empty path with AT_EMPTY_PATH, and a buffer for the result.
    let status = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut stat,
        )
    };
    let reported = if status == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0 {
        stat.stx_dio_mem_align.max(stat.stx_dio_offset_align)
    } else {
        0
    };
    (reported as usize).max(SECTOR as usize).next_power_of_two()
}

/// Returns the file name, truncated.
fn identity(path: &Path) -> [u8; IDENTITY] {
    let mut bytes = [0; IDENTITY];
    let name = path
        .file_name()
        .map_or(&[][..], |name| name.as_encoded_bytes());
    for (place, byte) in bytes.iter_mut().zip(name) {
        *place = if byte.is_ascii_graphic() { *byte } else { b'_' };
    }
    bytes
}
