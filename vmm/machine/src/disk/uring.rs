//! Work by the kernel's rings: one system call hands over what was ordered, waits for what
//! has landed, and for the bell.
//!
//! Through a ring a process could do nearly all that its seccomp filter forbids. So this one
//! is restricted, for good, to five operations on the disk's own files and its bell.

use super::job::{Job, Next, Step};
use super::{DiskFile, Engine};
use io_uring::register::Restriction;
use io_uring::{opcode, squeue, types, IoUring};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use trapline_monitor::virtio::block::{Order, Status, MOST};
use trapline_monitor::virtio::Memory;

/// Room for all orders, and for waiting for the bell.
const ENTRIES: u32 = 2 * MOST as u32;

/// Registered files.
const CACHED: types::Fixed = types::Fixed(0);
const DIRECT: types::Fixed = types::Fixed(1);
const BELL: types::Fixed = types::Fixed(2);

/// No ticket.
const RUNG: u64 = u64::MAX;

/// How many threads the kernel may make for work that would wait.
const WORKERS: [u32; 2] = [8, 8];

/// A ring that may do what is needed, and nothing else.
pub struct Uring {
    ring: IoUring,
}

/// The same with what it works on. Its memory has to stay until all orders have landed.
pub struct Working {
    ring: IoUring,
    jobs: Vec<Job>,
    file: DiskFile,
    landed: Vec<(u16, Status)>,
    /// The kernel does not wait for the bell any more, or not yet.
    deaf: bool,
}

impl Uring {
    /// A ring for this disk.
    ///
    /// # Errors
    /// The kernel's refusal, or it is older than Linux 5.13.
    pub fn new(file: &DiskFile, bell: BorrowedFd<'_>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_r_disabled().build(ENTRIES)?;
        // It came with waiting for the bell more than once.
        if !ring.params().is_feature_resource_tagging() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let cached = file.cached.as_raw_fd();
        let direct = file.direct.as_ref().map_or(cached, AsRawFd::as_raw_fd);
        let submitter = ring.submitter();
        submitter.register_files(&[cached, direct, bell.as_raw_fd()])?;
        // An older kernel has its own limit.
        let _limited = submitter.register_iowq_max_workers(&mut WORKERS.clone());
        submitter.register_restrictions(&mut restrictions())?;
        submitter.register_enable_rings()?;
        Ok(Self { ring })
    }

    /// Ready to work.
    pub fn working_on(self, file: DiskFile) -> Working {
        Working {
            ring: self.ring,
            jobs: (0..MOST).map(|_| Job::default()).collect(),
            file,
            landed: Vec::with_capacity(MOST.into()),
            deaf: true,
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
    /// Puts the next step of a job into the ring.
    fn push(&mut self, ticket: u16) {
        let job = &self.jobs[usize::from(ticket)];
        let entry = entry(job).user_data(ticket.into());
        self.push_entry(&entry);
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points at stays until it has landed: a job's pieces, which
        // change only when it begins anew, and guest memory, see `Engine`.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // There are more entries than orders, so it is never full for long.
            let _again = self.ring.submit();
        }
    }

    fn listen(&mut self) {
        self.deaf = false;
        let poll = opcode::PollAdd::new(BELL, libc::POLLIN as u32).multi(true);
        self.push_entry(&poll.build().user_data(RUNG));
    }

    /// Takes note of what has come: whether the bell rang.
    fn note(&mut self) -> bool {
        let mut rung = false;
        loop {
            let next = self.ring.completion().next();
            let Some(event) = next else {
                return rung;
            };
            match u16::try_from(event.user_data()) {
                Ok(ticket) => self.came(ticket, event.result()),
                Err(_) => {
                    rung = true;
                    self.deaf |= !io_uring::cqueue::more(event.flags());
                }
            }
        }
    }

    fn came(&mut self, ticket: u16, result: i32) {
        match self.jobs[usize::from(ticket)].advance(result) {
            Next::Ended(status) => self.landed.push((ticket, status)),
            Next::Step => self.push(ticket),
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
        let job = &mut self.jobs[usize::from(order.ticket)];
        match job.begin(order, memory, &self.file) {
            true => self.push(order.ticket),
            false => self.landed.push((order.ticket, Status::Failed)),
        }
    }

    fn wait(&mut self, more: bool) -> bool {
        if self.deaf {
            self.listen();
        }
        let want = usize::from(!more && self.landed.is_empty());
        // What was interrupted is done the next time.
        let _count = self.ring.submit_and_wait(want);
        self.note()
    }

    fn reap(&mut self, landed: &mut dyn FnMut(u16, Status)) {
        for (ticket, status) in self.landed.drain(..) {
            landed(ticket, status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Wanted;
    use std::os::fd::AsFd;
    use trapline_interface::Doorbell;

    /// What would get past the seccomp filter.
    #[test]
    fn a_ring_does_nothing_but_a_disks_work() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let disk = DiskFile::open(&Wanted {
            path: file.path().to_owned(),
            ..Wanted::default()
        });
        let (disk, bell) = (disk.unwrap(), Doorbell::alone().unwrap());
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
            // SAFETY: what it points at lives until it has landed, just below.
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
