//! io_uring engine: one system call submits requests, waits for completions and for the doorbell.
//!
//! An unrestricted ring could bypass the seccomp filter. This one is restricted permanently to five
//! operations on the disk's files and its doorbell.

use super::job::{Job, Next, Step};
use super::{DiskFile, Engine};
use io_uring::register::Restriction;
use io_uring::{opcode, squeue, types, IoUring};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use trapline_monitor::virtio::block::{Order, Status, MAX};
use trapline_monitor::virtio::Memory;

/// Capacity: all requests and the doorbell's poll.
const ENTRIES: u32 = 2 * MAX as u32;

/// Registered files.
const CACHED: types::Fixed = types::Fixed(0);
const DIRECT: types::Fixed = types::Fixed(1);
const BELL: types::Fixed = types::Fixed(2);

/// User data of the doorbell's poll.
const RUNG: u64 = u64::MAX;

/// Limit of kernel worker threads.
const WORKERS: [u32; 2] = [8, 8];

/// A restricted ring.
pub struct Uring {
    ring: IoUring,
}

/// A restricted ring with its disk. Guest memory must stay mapped until all requests complete.
pub struct Working {
    ring: IoUring,
    jobs: Vec<Job>,
    file: DiskFile,
    landed: Vec<(u16, Status)>,
    /// The doorbell's poll is not armed.
    needs_poll: bool,
}

impl Uring {
    /// Creates the ring.
    ///
    /// # Errors
    /// The kernel refuses, or is older than Linux 5.13.
    pub fn new(file: &DiskFile, bell: BorrowedFd<'_>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_r_disabled().build(ENTRIES)?;
        // Introduced with multishot poll.
        if !ring.params().is_feature_resource_tagging() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let cached = file.cached.as_raw_fd();
        let direct = file.direct.as_ref().map_or(cached, AsRawFd::as_raw_fd);
        let submitter = ring.submitter();
        submitter.register_files(&[cached, direct, bell.as_raw_fd()])?;
        // Older kernels have a fixed limit.
        let _limited = submitter.register_iowq_max_workers(&mut WORKERS.clone());
        submitter.register_restrictions(&mut restrictions())?;
        submitter.register_enable_rings()?;
        Ok(Self { ring })
    }

    /// Attaches the disk.
    pub fn working_on(self, file: DiskFile) -> Working {
        Working {
            ring: self.ring,
            jobs: (0..MAX).map(|_| Job::default()).collect(),
            file,
            landed: Vec::with_capacity(MAX.into()),
            needs_poll: true,
        }
    }
}

fn restrictions() -> [Restriction; 6] {
    [
        Restriction::sqe_op(opcode::Readv::CODE),
        Restriction::sqe_op(opcode::Writev::CODE),
        Restriction::sqe_op(opcode::Fsync::CODE),
        Restriction::sqe_op(opcode::Fallocate::CODE),
        Restriction::sqe_op(opcode::PollAdd::CODE),
        Restriction::sqe_flags_required(squeue::Flags::FIXED_FILE.bits()),
    ]
}

impl Working {
    /// Submits the job's next system call.
    fn push(&mut self, tag: u16) {
        let job = &self.jobs[usize::from(tag)];
        let entry = entry(job).user_data(tag.into());
        self.push_entry(&entry);
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: the entry points at a job's pieces, which change only at its next start, and at guest memory, see
        // `Engine`.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // The ring has more entries than there are requests.
            let _again = self.ring.submit();
        }
    }

    fn listen(&mut self) {
        self.needs_poll = false;
        let poll = opcode::PollAdd::new(BELL, libc::POLLIN as u32).multi(true);
        self.push_entry(&poll.build().user_data(RUNG));
    }

    /// Handles completions. Returns true if the doorbell rang.
    fn note(&mut self) -> bool {
        let mut rung = false;
        loop {
            let next = self.ring.completion().next();
            let Some(event) = next else {
                return rung;
            };
            match u16::try_from(event.user_data()) {
                Ok(tag) => self.came(tag, event.result()),
                Err(_) => {
                    rung = true;
                    self.needs_poll |= !io_uring::cqueue::more(event.flags());
                }
            }
        }
    }

    fn came(&mut self, tag: u16, result: i32) {
        match self.jobs[usize::from(tag)].advance(result) {
            Next::Ended(status) => self.landed.push((tag, status)),
            Next::Step => self.push(tag),
        }
    }
}

fn entry(job: &Job) -> squeue::Entry {
    let (file, pieces) = (if job.direct { DIRECT } else { CACHED }, job.pieces());
    let (at, count) = (pieces.as_ptr(), pieces.len() as u32);
    match job.step {
        Step::Read => opcode::Readv::new(file, at, count)
            .offset(job.offset)
            .build(),
        Step::Write => opcode::Writev::new(file, at, count)
            .offset(job.offset)
            .rw_flags(job.write_flags())
            .build(),
        Step::Sync => opcode::Fsync::new(CACHED)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        Step::Punch | Step::Zero => opcode::Fallocate::new(CACHED, job.left)
            .offset(job.offset)
            .mode(job.mode())
            .build(),
    }
}

impl Engine for Working {
    fn submit(&mut self, order: &Order<'_>, memory: &Memory) {
        let job = &mut self.jobs[usize::from(order.tag)];
        if job.begin(order, memory, &self.file) {
            self.push(order.tag)
        } else {
            self.landed.push((order.tag, Status::Failed))
        }
    }

    fn wait(&mut self, more: bool) -> bool {
        if self.needs_poll {
            self.listen();
        }
        let want = usize::from(!more && self.landed.is_empty());
        // An interrupted submission continues at the next call.
        let _count = self.ring.submit_and_wait(want);
        self.note()
    }

    fn reap(&mut self, landed: &mut dyn FnMut(u16, Status)) {
        for (tag, status) in self.landed.drain(..) {
            landed(tag, status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskConfig;
    use std::os::fd::AsFd;
    use trapline_interface::Doorbell;

    /// Operations that would bypass the seccomp filter are rejected.
    #[test]
    fn ring_rejects_other_operations() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let disk = DiskFile::open(&DiskConfig {
            path: file.path().to_owned(),
            ..DiskConfig::default()
        });
        let (disk, bell) = (disk.unwrap(), Doorbell::unregistered().unwrap());
        let mut ring = Uring::new(&disk, bell.0.as_fd()).unwrap().ring;
        let (here, path) = (types::Fd(libc::AT_FDCWD), c"/etc/passwd".as_ptr());
        let fd = types::Fd(disk.cached.as_raw_fd());
        let mut byte = 0;
        for (entry, allowed) in [
            (opcode::Fsync::new(CACHED).build(), true),
            (opcode::Fsync::new(fd).build(), false),
            (opcode::Read::new(CACHED, &raw mut byte, 1).build(), false),
            (opcode::OpenAt::new(here, path).build(), false),
            (
                opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
                false,
            ),
            (opcode::Nop::new().build(), false),
        ] {
            // SAFETY: the entry's pointers stay valid until its completion below.
            unsafe { ring.submission().push(&entry).unwrap() };
            ring.submit_and_wait(1).unwrap();
            let result = ring.completion().next().unwrap().result();
            assert_eq!(result, if allowed { 0 } else { -libc::EACCES });
        }
        let submitter = ring.submitter();
        assert!(submitter.register_files_update(0, &[0]).is_err());
        assert!(submitter
            .register_restrictions(&mut restrictions())
            .is_err());
    }
}
