//! Files of a job: a directory, or the ext4 file system of a guest's disk. Their page cache is the kernel's.

use crate::drivers;
use crate::sys::{allow_writes, mount, mount_read_only};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use trapline_abi::block::Disk;
use trapline_abi::files::{DIRECTORY, PAGE};
use trapline_abi::Job;
use trapline_workloads::{CacheCounts, Files, Reason};

/// Mount point in a guest, and type of its file system.
const PLACE: &str = "/files";
const KIND: &str = "ext4";

/// Counters of this process (Linux, Documentation/filesystems/proc.rst).
const COUNTERS: &str = "/proc/self/io";

/// Files below an open directory.
pub struct Directory {
    root: File,
    /// A disk is mounted, read-only until a file is opened for writing.
    is_mounted: bool,
}

impl Directory {
    /// Opens the directory of the files of `job`.
    ///
    /// # Errors
    /// There is none, or the disk cannot be mounted.
    pub fn open(job: &Job) -> Result<Self, Reason> {
        let root = match job.disk {
            Some(Disk::Descriptor(number)) => File::open(format!("/proc/self/fd/{number}")),
            Some(disk @ Disk::Device(_)) => {
                mount_disk(&format!("/dev/{disk}"))?;
                File::open(PLACE)
            }
            None => File::open(DIRECTORY),
        };
        let root = root.map_err(|_| "this environment has no files")?;
        Ok(Self {
            root,
            is_mounted: matches!(job.disk, Some(Disk::Device(_))),
        })
    }
}

/// Mounts a guest's disk, whose init has to mount devtmpfs and to load the drivers.
fn mount_disk(device: &str) -> Result<(), Reason> {
    if !Path::new(device).exists() {
        let _ = mount("devtmpfs", "/dev");
        drivers::load()
            .map_err(|_| "the kernel refuses a driver of the disk or its file system")?;
    }
    let mounted = mount_read_only(device, KIND, PLACE);
    mounted.map_err(|_| "the file system of the disk cannot be mounted")
}

impl Directory {
    #[inline(always)]
    fn open_with(&self, path: &CStr, access: libc::c_int) -> Result<u32, Reason> {
        let flags = access | libc::O_CLOEXEC;
        // SAFETY: an open descriptor, and a string that outlives the call.
        let file = unsafe { libc::openat(self.root.as_raw_fd(), path.as_ptr(), flags) };
        u32::try_from(file).map_err(|_| "a file cannot be opened")
    }
}

impl Files for Directory {
    #[inline(always)]
    fn open(&mut self, path: &CStr) -> Result<u32, Reason> {
        self.open_with(path, libc::O_RDONLY)
    }

    fn open_for_writing(&mut self, path: &CStr) -> Result<u32, Reason> {
        if self.is_mounted {
            allow_writes(PLACE).map_err(|_| "the file system cannot be mounted for writing")?;
        }
        self.open_with(path, libc::O_RDWR)
    }

    #[inline(always)]
    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Reason> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let at = (offset + done as u64) as i64;
            // SAFETY: a buffer of this length; the kernel checks the descriptor.
            let written =
                unsafe { libc::pwrite(file as i32, rest.as_ptr().cast(), rest.len(), at) };
            match usize::try_from(written) {
                Ok(0) | Err(_) => return Err("a file cannot be written"),
                Ok(written) => done += written,
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn sync(&mut self, file: u32) -> Result<(), Reason> {
        // SAFETY: takes a number, which the kernel checks.
        match unsafe { libc::fdatasync(file as i32) } {
            0 => Ok(()),
            _ => Err("a file cannot be written to the disk"),
        }
    }

    #[inline(always)]
    fn read(&mut self, file: u32, offset: u64, buffer: &mut [u8]) -> Result<usize, Reason> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = &mut buffer[done..];
            let at = (offset + done as u64) as i64;
            // SAFETY: a buffer of this length; the kernel checks the descriptor.
            let read =
                unsafe { libc::pread(file as i32, rest.as_mut_ptr().cast(), rest.len(), at) };
            match usize::try_from(read) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(_) => return Err("a file cannot be read"),
            }
        }
        Ok(done)
    }

    #[inline(always)]
    fn close(&mut self, file: u32) {
        // SAFETY: the workload closes each file that it has opened once.
        unsafe { libc::close(file as i32) };
    }

    fn empty_cache(&mut self, file: u32) -> Result<(), Reason> {
        // SAFETY: takes numbers only.
        match unsafe { libc::posix_fadvise(file as i32, 0, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err("the kernel cannot empty the page cache of a file"),
        }
    }

    fn cache_counts(&mut self) -> Result<CacheCounts, Reason> {
        let bytes = read_bytes().map_err(|_| "the kernel does not count what a process reads")?;
        Ok(CacheCounts {
            fetched: bytes / PAGE as u64,
            needed: None,
            written: None,
        })
    }
}

/// Returns the bytes that this process has caused to be read from disks.
fn read_bytes() -> io::Result<u64> {
    let text = fs::read_to_string(COUNTERS)?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("read_bytes: "));
    let bytes = value.and_then(|value| value.parse().ok());
    bytes.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
