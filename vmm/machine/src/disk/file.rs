//! The file of a disk: opened, locked, and looked at once.

use super::Wanted;
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use thiserror::Error;
use trapline_monitor::virtio::block::{Shape, IDENTITY, SECTOR};

/// Why a file is no disk.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum BadDisk {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is neither a regular file nor a block device")]
    Kind,
    #[error("it has {0} bytes, which is not a multiple of 512 above 0: truncate -s %512 FILE")]
    Length(u64),
    #[error("somebody else has it open as a disk: end that, or give it to both with ',ro'")]
    Locked,
    #[error("another file took its place just now: start again")]
    Replaced,
    #[error(
        "engine=uring: the kernel gives no io_uring ({0}): leave that out to work by \
         threads, or see sysctl kernel.io_uring_disabled"
    )]
    NoUring(io::Error),
}

/// An open disk.
#[derive(Debug)]
pub struct DiskFile {
    /// By way of the page cache.
    pub cached: File,
    /// Past it, where that was asked for and can be.
    pub direct: Option<File>,
    /// To what memory addresses, offsets and lengths have to be aligned for that.
    pub alignment: usize,
    /// What a driver is told.
    pub shape: Shape,
}

impl DiskFile {
    /// Opens and locks what is wanted. Whoever else opens it as a disk, in this or another
    /// process, is turned away, unless both only read it.
    ///
    /// # Errors
    /// Why it is no disk.
    pub fn open(wanted: &Wanted) -> Result<Self, BadDisk> {
        // Opening a pipe would wait for somebody at its other end.
        is_disk(&fs::metadata(&wanted.path)?)?;
        let mut cached = open(wanted, 0)?;
        let metadata = cached.metadata()?;
        is_disk(&metadata)?;
        lock(&cached, wanted.read_only)?;
        let length = cached.seek(SeekFrom::End(0))?;
        if length == 0 || !length.is_multiple_of(SECTOR) {
            return Err(BadDisk::Length(length));
        }
        let direct = match wanted.direct {
            true => open_direct(wanted, &metadata)?,
            false => None,
        };
        let alignment = direct.as_ref().map_or(SECTOR as usize, alignment);
        let block = (metadata.blksize() as usize).max(alignment);
        Ok(Self {
            shape: Shape {
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

fn is_disk(metadata: &Metadata) -> Result<(), BadDisk> {
    match metadata.is_file() || metadata.file_type().is_block_device() {
        true => Ok(()),
        false => Err(BadDisk::Kind),
    }
}

fn open(wanted: &Wanted, flags: i32) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(!wanted.read_only);
    options.custom_flags(flags).open(&wanted.path)
}

/// `None` where its filesystem has nothing of the kind.
fn open_direct(wanted: &Wanted, same: &Metadata) -> Result<Option<File>, BadDisk> {
    let file = match open(wanted, libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    match (metadata.dev(), metadata.ino()) == (same.dev(), same.ino()) {
        true => Ok(Some(file)),
        false => Err(BadDisk::Replaced),
    }
}

fn lock(file: &File, shared: bool) -> Result<(), BadDisk> {
    let how = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: the descriptor is open, and the rest is a number.
    let status = unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) };
    let error = io::Error::last_os_error();
    match status {
        0 => Ok(()),
        _ if error.kind() == io::ErrorKind::WouldBlock => Err(BadDisk::Locked),
        _ => Err(error.into()),
    }
}

/// Whether ranges can be given back to the filesystem: tried behind the end, where there
/// is nothing.
fn punches(file: &File, length: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let Ok(at) = libc::off_t::try_from(length) else {
        return false;
    };
    // SAFETY: the descriptor is open, and the rest are numbers.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, at, SECTOR as libc::off_t) == 0 }
}

/// What the kernel says since 6.1; else a sector, and what is refused goes by the cache.
fn alignment(file: &File) -> usize {
    // SAFETY: all zero is a valid value of it.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    // Not the C library's function: Rust's own library refers to that weakly, and in a
    // static program it is then not there.
    // SAFETY: an open descriptor, an empty path that says so, and room for what is told.
    let status = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut told,
        )
    };
    let told = match status == 0 && told.stx_mask & libc::STATX_DIOALIGN != 0 {
        true => told.stx_dio_mem_align.max(told.stx_dio_offset_align),
        false => 0,
    };
    (told as usize).max(SECTOR as usize).next_power_of_two()
}

/// Its file's name, as much as fits.
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
