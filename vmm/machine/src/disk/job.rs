//! A request in progress: its next system call, and the interpretation of the result.

use super::DiskFile;
use std::os::fd::{AsRawFd, RawFd};
use trapline_monitor::virtio::block::{Data, Order, Status, Work, MAX};
use trapline_monitor::virtio::Memory;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Read,
    Write,
    /// fdatasync.
    Sync,
    /// Deallocates a range, which then reads as zeroes.
    Punch,
    /// Zeroes a range and keeps its allocation.
    Zero,
}

/// Next action after a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another system call.
    Step,
    /// The request is complete.
    Ended(Status),
}

/// A request. Its guest memory never becomes a reference: only the kernel accesses it.
#[derive(Debug)]
pub struct Job {
    /// Current system call.
    pub step: Step,
    /// Offset on the disk, in bytes.
    pub offset: u64,
    /// Remaining bytes.
    pub left: u64,
    /// Use the O_DIRECT file.
    pub direct: bool,
    /// Use RWF_DSYNC.
    pub stable: bool,
    pieces: Vec<libc::iovec>,
    /// Number of completed pieces.
    done: usize,
}

// SAFETY: the pieces are addresses of guest memory, which belongs to no thread; only the kernel accesses
// it.
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
    /// Starts `order`. Returns false if a range is not contiguous guest memory.
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
        for part in data.parts().take(MAX.into()) {
            let Some(start) = memory.pointer(part.at, part.length) else {
                return false;
            };
            bits |= start.addr().get() | part.length;
            self.pieces.push(libc::iovec {
                iov_base: start.as_ptr().cast(),
                iov_len: part.length,
            });
        }
        self.direct = file.direct.is_some() && bits.is_multiple_of(file.alignment);
        true
    }

    /// Remaining pieces of memory.
    pub fn pieces(&self) -> &[libc::iovec] {
        &self.pieces[self.done..]
    }

    /// Flags of `pwritev2`.
    pub fn write_flags(&self) -> i32 {
        if self.stable {
            libc::RWF_DSYNC
        } else {
            0
        }
    }

    /// Mode of `fallocate`.
    pub fn mode(&self) -> i32 {
        let how = match self.step {
            Step::Zero => libc::FALLOC_FL_ZERO_RANGE,
            _ => libc::FALLOC_FL_PUNCH_HOLE,
        };
        how | libc::FALLOC_FL_KEEP_SIZE
    }

    /// Interprets a result: a count, or a negative error number.
    pub fn advance(&mut self, result: i32) -> Next {
        match (self.step, result.saturating_neg()) {
            (_, libc::EINTR) => Next::Step,
            // Misaligned for O_DIRECT: retry through the page cache.
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
            // An error, or the end of a file that was truncated.
            _ => Next::Ended(Status::Failed),
        }
    }

    /// Accounts for `count` transferred bytes.
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

    /// Executes the request with ordinary system calls.
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
            // SAFETY: the slice has `count` elements. Each is guest memory, which stays mapped until completion, and to
            // which no reference exists.
            Step::Read => unsafe { libc::preadv(fd, at, count, offset) },
            Step::Write => {
                let flags = self.write_flags();
                // SAFETY: as for reading.
                unsafe { libc::pwritev2(fd, at, count, offset, flags) }
            }
            // SAFETY: takes the number of an open file.
            Step::Sync => unsafe { libc::fdatasync(fd) as isize },
            // SAFETY: takes numbers, the first of an open file.
            Step::Punch | Step::Zero => unsafe {
                libc::fallocate(fd, self.mode(), offset, left) as isize
            },
        };
        match result {
            // The kernel transfers less than 2 GiB at once.
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
