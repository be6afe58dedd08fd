//! Disk of a job: a file or device, opened with O_DIRECT if possible.
//!
//! Requests at depth 1 use `pread` and `pwrite`; at larger depths io_uring, or threads if the kernel
//! has none. Buffers are filled before a request and verified after it, outside of the measured
//! time.

mod buffers;
mod one;
mod ring;
mod threads;

use crate::drivers;
use crate::sys::mount;
use buffers::Buffers;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trapline_abi::block::{Access, Disk, DiskRequest, Transfer, LARGE, SMALL};
use trapline_abi::Job;
use trapline_workloads::block::{generation, Places, PREPARED};
use trapline_workloads::Reason;

/// Maximum duration of a transfer; a slow disk completes fewer requests.
const MAX_DURATION: Duration = Duration::from_secs(10);

/// Open disk with its test pattern.
pub struct Target {
    file: File,
    /// Opened with O_DIRECT.
    direct: bool,
    ring: bool,
}

/// Requests of a transfer.
#[derive(Clone, Copy)]
pub struct Requests<'a> {
    file: &'a File,
    transfer: Transfer,
    places: Places,
    count: usize,
    until: Instant,
}

impl Target {
    /// Opens and fills the disk of `job`. Its contents are overwritten.
    ///
    /// # Errors
    /// There is none, or it is too small or fails.
    pub fn open(job: &Job) -> Result<Self, Reason> {
        let disk = job.disk.ok_or("this environment has no disk")?;
        let path = path(disk);
        if matches!(disk, Disk::Device(_)) && !path.exists() {
            // The init of a guest has to mount devtmpfs; other processes need not.
            let _ = mount("devtmpfs", "/dev");
            drivers::load().map_err(|_| "the kernel refuses the disk's driver")?;
        }
        let (file, direct) = open(&path).map_err(|_| "the disk cannot be opened")?;
        let target = Self {
            file,
            direct,
            ring: ring::is_available(),
        };
        let fills = target.fill(job.disk_mib);
        fills.map_err(|_| "the disk cannot be filled: it is too small, or fails")?;
        Ok(target)
    }

    /// Returns names and values that describe the measurement.
    pub fn facts(&self) -> [(&'static str, &'static str); 2] {
        let cache = if self.direct {
            "none (O_DIRECT)"
        } else {
            "the kernel's: its file system has no O_DIRECT"
        };
        let engine = if self.ring {
            "io_uring at depth 32, pread and pwrite at depth 1"
        } else {
            "32 threads at depth 32, for the kernel has no io_uring; pread and pwrite"
        };
        [("cache", cache), ("engine", engine)]
    }

    fn fill(&self, mib: u32) -> io::Result<()> {
        let mut buffers = Buffers::new(1, LARGE).ok_or(io::ErrorKind::OutOfMemory)?;
        for place in 0..u64::from(mib) {
            buffers.fill(0, place, PREPARED);
            self.file
                .write_all_at(buffers.bytes(0), place * u64::from(LARGE))?;
        }
        self.file.sync_data()
    }

    /// See [`trapline_workloads::System::transfer`]. Never inlined, so that its markers are known by
    /// the name of this module.
    #[inline(never)]
    pub fn transfer(
        &self,
        transfer: &Transfer,
        job: &Job,
        slots: &mut [DiskRequest],
    ) -> Result<usize, Reason> {
        let requests = self.requests(transfer, job, slots.len());
        let made = match (transfer.depth, self.ring) {
            (1, _) => one::run(&requests, slots),
            (_, true) => ring::run(&requests, slots),
            (_, false) => threads::run(&requests, slots),
        }?;
        if transfer.access != Access::Read {
            self.file.sync_data().map_err(|_| FAILED)?;
        }
        Ok(made)
    }

    fn requests(&self, transfer: &Transfer, job: &Job, count: usize) -> Requests<'_> {
        Requests {
            file: &self.file,
            transfer: *transfer,
            places: Places::new(transfer, transfer.places(job)),
            count,
            until: Instant::now() + MAX_DURATION,
        }
    }

    /// See [`trapline_workloads::System::read_back`].
    pub fn read_back(&self, transfer: &Transfer, job: &Job, made: usize) -> Result<(), Reason> {
        if transfer.access == Access::Read {
            return Ok(());
        }
        let requests = self.requests(transfer, job, made);
        let mut buffers = Buffers::new(1, requests.transfer.bytes).ok_or(NO_MEMORY)?;
        for index in 0..made {
            let at = requests.offset(index);
            let read = self.file.read_exact_at(buffers.bytes_mut(0), at);
            read.map_err(|_| FAILED)?;
            let place = requests.place(index);
            if !buffers.hold(0, place, generation(requests.transfer.op)) {
                return Err("the disk does not have the written content");
            }
        }
        Ok(())
    }
}

const FAILED: Reason = "the disk refused a request";
const NO_MEMORY: Reason = "not enough memory for a request";
const WRONG: Reason = "the data read is not the content of the disk at that place";

impl Requests<'_> {
    fn place(&self, index: usize) -> u64 {
        self.places.place(index as u64)
    }

    /// Returns the offset of request `index`, in bytes.
    fn offset(&self, index: usize) -> u64 {
        self.place(index) * u64::from(self.transfer.bytes)
    }

    /// Returns true if there is time for another request.
    fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// Returns true if request `index` is to be submitted.
    fn continues_at(&self, index: usize) -> bool {
        index < self.count && self.has_time()
    }

    /// Returns true if verifying every byte would take as long as a fast disk.
    fn verifies_stamps_only(&self) -> bool {
        self.transfer.bytes == LARGE && self.transfer.depth > 1
    }

    /// Prepares `slot` for request `index`.
    fn before(&self, buffers: &mut Buffers, slot: usize, index: usize) {
        if self.transfer.access != Access::Read {
            let place = self.place(index);
            buffers.fill(slot, place, generation(self.transfer.op));
        }
    }

    /// Verifies `slot` after request `index`.
    fn after(&self, buffers: &Buffers, slot: usize, index: usize) -> Result<(), Reason> {
        let is_right = match self.transfer.access {
            Access::Read if self.verifies_stamps_only() => {
                buffers.are_stamped(slot, self.place(index), PREPARED)
            }
            Access::Read => buffers.hold(slot, self.place(index), PREPARED),
            Access::Write | Access::WriteSync => true,
        };
        is_right.then_some(()).ok_or(WRONG)
    }
}

fn path(disk: Disk) -> PathBuf {
    match disk {
        Disk::Descriptor(number) => format!("/proc/self/fd/{number}").into(),
        Disk::Device(_) => format!("/dev/{disk}").into(),
    }
}

/// Opens the file, with O_DIRECT if its file system supports it.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.clone().custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((options.open(path)?, false))
        }
        Err(error) => Err(error),
    }
}

/// Returns the number of units of 4 KiB in `bytes`.
const fn units(bytes: u32) -> u64 {
    (bytes / SMALL) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    /// Returns a job on a disk of 2 MiB, in an unlinked file.
    fn disk() -> (File, Job) {
        use std::os::fd::AsRawFd;
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("trapline-disk-{process}-{number}"));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let number = u8::try_from(file.as_raw_fd()).unwrap();
        let job = Job {
            disk: Some(Disk::Descriptor(number)),
            disk_mib: 2,
            requests: 512,
            ..Job::EMPTY
        };
        (file, job)
    }

    fn check(requests: &[DiskRequest]) {
        let ordered = requests
            .windows(2)
            .all(|pair| pair[0].start <= pair[1].start);
        assert!(ordered, "in the order of submission");
        assert!(requests.iter().all(|request| request.end > request.start));
    }

    #[test]
    fn every_transfer_is_completed_by_either_engine() {
        let (_file, job) = disk();
        for ring in [true, false] {
            let mut target = Target::open(&job).unwrap();
            target.ring &= ring;
            for transfer in Transfer::ALL {
                let mut slots = vec![DiskRequest::default(); transfer.requests(&job) as usize];
                let made = target.transfer(&transfer, &job, &mut slots);
                assert_eq!(made, Ok(slots.len()), "{transfer:?}");
                let verified = target.read_back(&transfer, &job, slots.len());
                assert_eq!(verified, Ok(()), "{transfer:?}");
                check(&slots);
            }
        }
    }

    #[test]
    fn misplaced_data_is_detected() {
        let (file, job) = disk();
        let mut target = Target::open(&job).unwrap();
        for ring in [true, false] {
            target.ring &= ring;
            let mut unit = [0; SMALL as usize];
            file.read_exact_at(&mut unit, 8 * 4096).unwrap();
            file.write_all_at(&unit, 9 * 4096).unwrap();
            for transfer in Transfer::ALL.into_iter().take(4) {
                // The whole disk, independent of the order of requests.
                let mut slots = vec![DiskRequest::default(); transfer.places(&job) as usize];
                let made = target.transfer(&transfer, &job, &mut slots);
                assert_eq!(made, Err(WRONG), "{transfer:?}");
            }
        }
    }

    #[test]
    fn a_missing_disk_is_an_error() {
        let (_file, job) = disk();
        let none = Job { disk: None, ..job };
        let error = |job: &Job| Target::open(job).err().unwrap();
        let gone = Job {
            disk: Disk::from_name("vdzz"),
            ..job
        };
        expect![[r#"
            this environment has no disk
            the disk cannot be opened"#]]
        .assert_eq(&[&none, &gone].map(error).join("\n"));
    }
}
