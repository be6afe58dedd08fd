//! A disk that requests are made of: the file or device that the job names, past the
//! kernel's cache where that can be had.
//!
//! Requests one at a time are plain `pread` and `pwrite`; many at a time go through
//! io_uring, or by as many threads where the kernel has none. Contents are made before a
//! request and looked at after it, never in its time.

mod buffers;
mod one;
mod ring;
mod threads;

use crate::init;
use buffers::Buffers;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trapline_abi::block::{Disk, Kind, Request, Transfer, LARGE, SMALL};
use trapline_abi::Job;
use trapline_workloads::block::{generation, Places, PREPARED};
use trapline_workloads::Reason;

/// After so long no further requests are made: a slow disk is judged by fewer.
const LONGEST: Duration = Duration::from_secs(10);

/// An open disk, filled.
pub struct Target {
    file: File,
    /// Past the kernel's cache.
    direct: bool,
    ring: bool,
}

/// The requests of a transfer: where each goes, and until when they are made.
#[derive(Clone, Copy)]
pub struct Requests<'a> {
    file: &'a File,
    transfer: Transfer,
    places: Places,
    count: usize,
    until: Instant,
}

impl Target {
    /// The disk of `job`, filled. All that was on it is lost.
    ///
    /// # Errors
    /// There is none, or it is too small or fails.
    pub fn open(job: &Job) -> Result<Self, Reason> {
        let disk = job.disk.ok_or("this environment has no disk")?;
        let path = path(disk);
        if matches!(disk, Disk::Device(_)) && !path.exists() {
            // The init of a guest has no devices yet; who is no init may not, and need not.
            let _ = init::mount("devtmpfs", "/dev");
            init::drivers::load().map_err(|_| "the kernel refuses the disk's driver")?;
        }
        let (file, direct) = open(&path).map_err(|_| "the disk cannot be opened")?;
        let target = Self {
            file,
            direct,
            ring: ring::is_there(),
        };
        let fills = target.fill(job.disk_mib);
        fills.map_err(|_| "the disk cannot be filled: it is too small, or fails")?;
        Ok(target)
    }

    /// What there is to say of how it is measured, by name.
    pub fn facts(&self) -> [(&'static str, &'static str); 2] {
        let cache = match self.direct {
            true => "none (O_DIRECT)",
            false => "the kernel's: its file system has no O_DIRECT",
        };
        let engine = match self.ring {
            true => "io_uring at depth 32, pread and pwrite at depth 1",
            false => "32 threads at depth 32, for the kernel has no io_uring; pread and pwrite",
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

    /// See [`trapline_workloads::System::transfer`].
    pub fn transfer(
        &self,
        transfer: &Transfer,
        job: &Job,
        slots: &mut [Request],
    ) -> Result<usize, Reason> {
        let requests = Requests {
            file: &self.file,
            transfer: *transfer,
            places: Places::new(transfer, transfer.places(job)),
            count: slots.len(),
            until: Instant::now() + LONGEST,
        };
        let made = match (transfer.depth, self.ring) {
            (1, _) => one::make(&requests, slots),
            (_, true) => ring::make(&requests, slots),
            (_, false) => threads::make(&requests, slots),
        }?;
        if transfer.kind != Kind::Read {
            self.file.sync_data().map_err(|_| FAILED)?;
            self.read_back(&requests, made)?;
        }
        Ok(made)
    }

    /// Compares what the disk holds with what the first `made` requests have written.
    fn read_back(&self, requests: &Requests<'_>, made: usize) -> Result<(), Reason> {
        let mut buffers = Buffers::new(1, requests.transfer.bytes).ok_or(NO_MEMORY)?;
        for index in 0..made {
            let at = requests.offset(index);
            let read = self.file.read_exact_at(buffers.bytes_mut(0), at);
            read.map_err(|_| FAILED)?;
            let place = requests.place(index);
            if !buffers.hold(0, place, generation(requests.transfer.op)) {
                return Err("the disk does not hold what was written to it");
            }
        }
        Ok(())
    }
}

const FAILED: Reason = "the disk refused a request";
const NO_MEMORY: Reason = "memory is too small for a request";
const WRONG: Reason = "what was read is not what the disk holds at that place";

impl Requests<'_> {
    fn place(&self, index: usize) -> u64 {
        self.places.of(index as u64)
    }

    /// Where request `index` goes, in bytes.
    fn offset(&self, index: usize) -> u64 {
        self.place(index) * u64::from(self.transfer.bytes)
    }

    /// Whether there is time for another.
    fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// Whether request `index` is to be made.
    fn goes_on(&self, index: usize) -> bool {
        index < self.count && self.has_time()
    }

    /// Whether looking at every byte that is read would take as long as a fast disk.
    fn is_pressed(&self) -> bool {
        self.transfer.bytes == LARGE && self.transfer.depth > 1
    }

    /// What `slot` has to hold before request `index` is made.
    fn before(&self, buffers: &mut Buffers, slot: usize, index: usize) {
        if self.transfer.kind != Kind::Read {
            let place = self.place(index);
            buffers.fill(slot, place, generation(self.transfer.op));
        }
    }

    /// Whether `slot` holds what it must when request `index` is done.
    fn after(&self, buffers: &Buffers, slot: usize, index: usize) -> Result<(), Reason> {
        let is_right = match self.transfer.kind {
            Kind::Read if self.is_pressed() => {
                buffers.are_stamped(slot, self.place(index), PREPARED)
            }
            Kind::Read => buffers.hold(slot, self.place(index), PREPARED),
            Kind::Write | Kind::WriteSync => true,
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

/// The file, past the kernel's cache if its file system can do that.
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

/// Units of 4 KiB in a request of so many bytes.
const fn units(bytes: u32) -> u64 {
    (bytes / SMALL) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job on a disk of 2 MiB, in a file that is gone when it is dropped.
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

    fn check(requests: &[Request]) {
        let ordered = requests
            .windows(2)
            .all(|pair| pair[0].start <= pair[1].start);
        assert!(ordered, "in the order in which they were made");
        assert!(requests.iter().all(|request| request.end > request.start));
    }

    #[test]
    fn every_transfer_is_made_whole_by_either_engine() {
        let (_file, job) = disk();
        for ring in [true, false] {
            let mut target = Target::open(&job).unwrap();
            target.ring &= ring;
            for transfer in Transfer::ALL {
                let mut slots = vec![Request::default(); transfer.requests(&job) as usize];
                let made = target.transfer(&transfer, &job, &mut slots);
                assert_eq!(made, Ok(slots.len()), "{transfer:?}");
                check(&slots);
            }
        }
    }

    #[test]
    fn what_is_not_at_its_place_is_found() {
        let (file, job) = disk();
        let mut target = Target::open(&job).unwrap();
        for ring in [true, false] {
            target.ring &= ring;
            let mut unit = [0; SMALL as usize];
            file.read_exact_at(&mut unit, 8 * 4096).unwrap();
            file.write_all_at(&unit, 9 * 4096).unwrap();
            for transfer in Transfer::ALL.into_iter().take(4) {
                // All of the disk: whichever requests come first.
                let mut slots = vec![Request::default(); transfer.places(&job) as usize];
                let made = target.transfer(&transfer, &job, &mut slots);
                assert_eq!(made, Err(WRONG), "{transfer:?}");
            }
        }
    }

    #[test]
    fn without_a_disk_there_is_a_reason() {
        let (_file, job) = disk();
        let none = Job { disk: None, ..job };
        let told = |job: &Job| Target::open(job).err().unwrap();
        assert!(told(&none).contains("no disk"));
        let gone = Job {
            disk: Disk::from_name("vdzz"),
            ..job
        };
        assert!(told(&gone).contains("opened"));
    }
}
