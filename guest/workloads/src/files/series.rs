//! Calls of each operation.

use crate::block::Places;
use trapline_abi::files::{Class, File, PAGE};
use trapline_abi::Op;

/// Bytes of the buffer, and of the calls that read or write a file from its start to its end.
pub const BUFFER: usize = 1 << 20;
const CALL: usize = 64 << 10;

/// Passes over a large file: each takes as long as all samples of another operation.
const LARGE_PASSES: u32 = 4;

/// Maximum number of random calls of a sample.
pub const MOST_RANDOM: usize = 256;

/// One sample of an operation.
#[derive(Clone, Copy)]
pub struct Series {
    pub op: Op,
    pub class: Class,
    pub access: Access,
    /// Calls of a sample: of `open`, `read` or `write`.
    pub calls: u32,
    /// The cache has no page of the file before a sample.
    pub cold: bool,
    /// Writes, and does not read.
    pub writes: Option<Sync>,
}

/// Calls of a sample.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Opens and closes one file after the other.
    Open,
    /// Opens, reads and closes one file after the other.
    Whole,
    /// Reads or writes pages of an open file in random order.
    Random,
    /// Reads or writes an open file from its start to its end.
    Sequential,
}

/// Calls of `sync` in a sample that writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// None: the cache need not write anything to the disk.
    Never,
    /// One after each write.
    EachWrite,
    /// One after the last write.
    LastWrite,
}

impl Series {
    /// Returns the series of `op`; `None` if it uses no files.
    pub fn of(op: Op, file_mib: u32) -> Option<Self> {
        use Access::{Open, Random, Sequential, Whole};
        use Class::{Large, Mebibyte, Medium, Small};
        let large = (u64::from(file_mib) << 20) / CALL as u64;
        let (class, access, calls, cold, writes) = match op {
            Op::OpenFile => (Small, Open, 256, false, None),
            Op::ReadFile1k => (Small, Whole, 256, false, None),
            Op::ReadFile64k => (Medium, Whole, 16, false, None),
            Op::Read4kWarm => (Mebibyte, Random, 256, false, None),
            Op::Read4kCold => (Large, Random, 64, true, None),
            Op::Read1mWarm => (Mebibyte, Sequential, 16, false, None),
            Op::Read1mCold => (Mebibyte, Sequential, 16, true, None),
            Op::ReadLarge => (Large, Sequential, large as u32, true, None),
            // Fewer than the pages at which the cache of the image begins to write them back.
            Op::Write4kWarm => (Mebibyte, Random, 128, false, Some(Sync::Never)),
            Op::Write4kFsync => (Mebibyte, Random, 64, false, Some(Sync::EachWrite)),
            Op::WriteLarge => (Large, Sequential, large as u32, true, Some(Sync::LastWrite)),
            _ => return None,
        };
        Some(Self {
            op,
            class,
            access,
            calls,
            cold,
            writes,
        })
    }

    /// Returns the bytes of a call.
    pub fn bytes(&self) -> usize {
        match self.access {
            Access::Open => 0,
            Access::Whole => self.class.bytes(0) as usize,
            Access::Random => PAGE,
            Access::Sequential => CALL,
        }
    }

    /// Returns the file of a call.
    pub fn file(&self, call: u32) -> File {
        let index = match self.access {
            Access::Open | Access::Whole => call % self.class.count(),
            Access::Random | Access::Sequential => 0,
        };
        File {
            class: self.class,
            index,
        }
    }

    /// Returns the offsets of random calls. The large file has `file_mib`.
    pub fn offsets(&self, file_mib: u32) -> [u64; MOST_RANDOM] {
        let pages = (self.class.bytes(file_mib) / PAGE as u64).max(1);
        let places = Places::random(self.op, pages as u32);
        let offset = |call| places.place(call as u64 % pages) * PAGE as u64;
        core::array::from_fn(offset)
    }

    /// Returns the part of the buffer that a call reads to.
    #[inline(always)]
    pub fn part<'a>(&self, buffer: &'a mut [u8], call: u32) -> &'a mut [u8] {
        let bytes = self.bytes();
        let start = call as usize * bytes % BUFFER;
        &mut buffer[start..start + bytes]
    }

    /// Returns true if later calls of a sample overwrite what earlier ones read.
    pub fn exceeds_buffer(&self) -> bool {
        self.calls as usize * self.bytes() > BUFFER
    }

    /// Returns the number of samples of a job with this number of batches.
    pub fn samples(&self, batches: u32) -> u32 {
        if self.exceeds_buffer() {
            batches.min(LARGE_PASSES)
        } else {
            batches
        }
    }

    /// Returns the operations of a sample, or bytes if a rate is measured.
    pub fn count(&self) -> u64 {
        let per_call = match self.access {
            Access::Sequential => self.bytes() as u64,
            _ => 1,
        };
        u64::from(self.calls) * per_call
    }

    /// Returns the pages that a sample needs.
    pub fn pages(&self) -> u64 {
        u64::from(self.calls) * self.bytes().div_ceil(PAGE) as u64
    }
}
