//! One order on its way: which system call comes next, and what its result means.

use super::DiskFile;
use std::os::fd::{AsRawFd, RawFd};
use trapline_monitor::virtio::block::{Data, Order, Status, Work, MOST};
use trapline_monitor::virtio::Memory;
use vm_memory::GuestMemoryBackend;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Read,
    Write,
    /// What was written becomes stable.
    Sync,
    /// A range is given back to the filesystem; it reads as zeroes from then on.
    Punch,
    /// A range reads as zeroes, and keeps its place.
    Zero,
}

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another one.
    Step,
    /// Nothing: that is how it ended.
    Ended(Status),
}

/// An order. Its pieces of guest memory never become references: only the kernel reads and
/// writes them.
#[derive(Debug)]
pub struct Job {
    /// What is to be done.
    pub step: Step,
    /// Where on the disk, in bytes, and how many are left.
    pub offset: u64,
    /// How many bytes are left.
    pub left: u64,
    /// Past the page cache.
    pub direct: bool,
    /// A write is stable when it comes back.
    pub stable: bool,
    pieces: Vec<libc::iovec>,
    /// How many of the pieces are done with.
    done: usize,
}

// SAFETY: the pieces are addresses of guest memory, which belongs to no thread; they are
// only handed to the kernel.
unsafe impl Send for Job {}

impl Default for Job {
    fn default() -> Self {
        Self {
            step: Step::Sync,
            offset: 0,
            left: 0,
            direct: false,
            stable: false,
            pieces: Vec::new(),
            done: 0,
        }
    }
}

impl Job {
    /// Becomes `order`, in this memory. What the memory does not have in one piece
    /// cannot be done.
    #[must_use]
    pub fn begin(&mut self, order: &Order<'_>, memory: &Memory, file: &DiskFile) -> bool {
        self.pieces.clear();
        (self.done, self.direct, self.left) = (0, false, 0);
        self.stable = order.stable;
        match &order.work {
            Work::Read { offset, into } => self.move_data(Step::Read, *offset, into, memory, file),
            Work::Write { offset, from } => {
                self.move_data(Step::Write, *offset, from, memory, file)
            }
            Work::Flush => self.range(Step::Sync, 0, 0),
            Work::Discard { offset, length } => self.range(Step::Punch, *offset, *length),
            Work::Clear {
                offset,
                length,
                unmap,
            } => {
                let step = if *unmap { Step::Punch } else { Step::Zero };
                self.range(step, *offset, *length)
            }
        }
    }

    fn range(&mut self, step: Step, offset: u64, length: u64) -> bool {
        (self.step, self.offset, self.left) = (step, offset, length);
        true
    }

    fn move_data(
        &mut self,
        step: Step,
        offset: u64,
        data: &Data<'_>,
        memory: &Memory,
        file: &DiskFile,
    ) -> bool {
        (self.step, self.offset, self.left) = (step, offset, data.len() as u64);
        let mut bits = offset as usize;
        for part in data.parts().take(MOST.into()) {
            let Ok(slice) = memory.get_slice(part.at, part.length) else {
                return false;
            };
            let start = slice.ptr_guard_mut().as_ptr();
            bits |= start.addr() | part.length;
            self.pieces.push(libc::iovec {
                iov_base: start.cast(),
                iov_len: part.length,
            });
        }
        self.direct = file.direct.is_some() && bits.is_multiple_of(file.alignment);
        true
    }

    /// The pieces of memory that are left, of the data of a read or write.
    pub fn pieces(&self) -> &[libc::iovec] {
        &self.pieces[self.done..]
    }

    /// How the kernel is to write.
    pub fn write_flags(&self) -> i32 {
        if self.stable {
            libc::RWF_DSYNC
        } else {
            0
        }
    }

    /// How a range is to be changed.
    pub fn mode(&self) -> i32 {
        let how = match self.step {
            Step::Zero => libc::FALLOC_FL_ZERO_RANGE,
            _ => libc::FALLOC_FL_PUNCH_HOLE,
        };
        how | libc::FALLOC_FL_KEEP_SIZE
    }

    /// What comes next after this result of the step: a count, or a negative error number.
    pub fn advance(&mut self, result: i32) -> Next {
        match (self.step, result.saturating_neg()) {
            (_, libc::EINTR) => Next::Step,
            // It is aligned in another way than it has to be: by the page cache it goes.
            (Step::Read | Step::Write, libc::EINVAL) if self.direct => {
                self.direct = false;
                Next::Step
            }
            (Step::Read | Step::Write, ..0) => self.moved(result.unsigned_abs().into()),
            // A hole reads as zeroes, too.
            (Step::Zero, libc::EOPNOTSUPP) => {
                self.step = Step::Punch;
                Next::Step
            }
            (Step::Punch, libc::EOPNOTSUPP) => Next::Ended(Status::Unsupported),
            (Step::Punch | Step::Zero, 0) if self.stable => {
                self.step = Step::Sync;
                Next::Step
            }
            (Step::Sync | Step::Punch | Step::Zero, 0) => Next::Ended(Status::Done),
            // An error; or the end of a file that has become shorter.
            _ => Next::Ended(Status::Failed),
        }
    }

    /// Some of the data was moved.
    fn moved(&mut self, count: u64) -> Next {
        let mut count = count.min(self.left) as usize;
        self.left -= count as u64;
        self.offset += count as u64;
        if self.left == 0 {
            return Next::Ended(Status::Done);
        }
        while let Some(piece) = self.pieces.get_mut(self.done).filter(|_| count > 0) {
            let part = count.min(piece.iov_len);
            piece.iov_base = piece.iov_base.wrapping_byte_add(part);
            piece.iov_len -= part;
            count -= part;
            self.done += usize::from(piece.iov_len == 0);
        }
        Next::Step
    }

    /// Does all of it, by ordinary system calls.
    pub fn run(&mut self, file: &DiskFile) -> Status {
        loop {
            let result = self.call(file);
            if let Next::Ended(status) = self.advance(result) {
                return status;
            }
        }
    }

    fn call(&self, file: &DiskFile) -> i32 {
        let (fd, pieces) = (self.fd(file), self.pieces());
        let (at, count) = (pieces.as_ptr(), pieces.len() as libc::c_int);
        let (offset, left) = (self.offset as libc::off_t, self.left as libc::off_t);
        let result = match self.step {
            // SAFETY: there are as many pieces as is said. Each is guest memory, which stays
            // mapped until all orders have landed, and nobody here has a reference into it.
            Step::Read => unsafe { libc::preadv(fd, at, count, offset) },
            Step::Write => {
                let flags = self.write_flags();
                // SAFETY: as for reading.
                unsafe { libc::pwritev2(fd, at, count, offset, flags) }
            }
            // SAFETY: a number, of an open file.
            Step::Sync => unsafe { libc::fdatasync(fd) as isize },
            // SAFETY: numbers, the first of an open file.
            Step::Punch | Step::Zero => unsafe {
                libc::fallocate(fd, self.mode(), offset, left) as isize
            },
        };
        match result {
            // The kernel moves less than 2 GiB at once.
            0.. => result as i32,
            _ => -std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        }
    }

    fn fd(&self, file: &DiskFile) -> RawFd {
        let direct = file.direct.as_ref().filter(|_| self.direct);
        direct.unwrap_or(&file.cached).as_raw_fd()
    }
}
