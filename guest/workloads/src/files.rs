//! Reads of files, from the page cache and from the disk.
//!
//! Every byte that is read is compared with the content of the file ([`trapline_abi::files`]), after the measured time.
//! Only the large file does not fit the buffer: two words of each page are compared within that time, and all bytes in a
//! pass before it. The counts of the cache prove that warm operations read nothing from the disk and cold ones everything.

use crate::block::Places;
use crate::measure::{ensure, Bench};
use crate::system::{Block, CacheCounts, Files, Reason, System};
use core::ffi::CStr;
use core::fmt;
use trapline_abi::files::{Class, File, Path, FACT_PREFIX, PAGE};
use trapline_abi::{Op, Workload};

/// Bytes of the buffer, and of the calls that read a file from its start to its end.
const BUFFER: usize = 1 << 20;
const CALL: usize = 64 << 10;

/// Passes over a large file: each takes as long as all samples of another operation.
const LARGE_PASSES: u32 = 4;

/// Maximum number of random calls of a sample, and of files that a sample opens.
const MOST_RANDOM: usize = 256;
const MOST_FILES: usize = Class::Small.count() as usize;

/// Share of the pages of a file that may stay in the cache of Linux when it is emptied.
const MOST_KEPT: u64 = 16;

const WRONG: Reason = "the data read is not the content of the file at that place";

/// One sample of an operation.
#[derive(Clone, Copy)]
struct Series {
    op: Op,
    class: Class,
    access: Access,
    /// Calls of a sample: of `open` or of `read`.
    calls: u32,
    /// The cache has no page of the file before a sample.
    cold: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Opens and closes one file after the other.
    Open,
    /// Opens, reads and closes one file after the other.
    Whole,
    /// Reads pages of an open file in random order.
    Random,
    /// Reads an open file from its start to its end.
    Sequential,
}

impl Series {
    /// Returns the series of `op`; `None` if it reads no files.
    fn of(op: Op, file_mib: u32) -> Option<Self> {
        use Access::{Open, Random, Sequential, Whole};
        use Class::{Large, Mebibyte, Medium, Small};
        let large = (u64::from(file_mib) << 20) / CALL as u64;
        let (class, access, calls, cold) = match op {
            Op::OpenFile => (Small, Open, 256, false),
            Op::ReadFile1k => (Small, Whole, 256, false),
            Op::ReadFile64k => (Medium, Whole, 16, false),
            Op::Read4kWarm => (Mebibyte, Random, 256, false),
            Op::Read4kCold => (Large, Random, 64, true),
            Op::Read1mWarm => (Mebibyte, Sequential, 16, false),
            Op::Read1mCold => (Mebibyte, Sequential, 16, true),
            Op::ReadLarge => (Large, Sequential, large as u32, true),
            _ => return None,
        };
        Some(Self {
            op,
            class,
            access,
            calls,
            cold,
        })
    }

    /// Returns the bytes of a call.
    fn bytes(&self) -> usize {
        match self.access {
            Access::Open => 0,
            Access::Whole => self.class.bytes(0) as usize,
            Access::Random => PAGE,
            Access::Sequential => CALL,
        }
    }

    /// Returns the file of a call.
    fn file(&self, call: u32) -> File {
        let index = match self.access {
            Access::Open | Access::Whole => call % self.class.count(),
            Access::Random | Access::Sequential => 0,
        };
        File {
            class: self.class,
            index,
        }
    }

    /// Returns the offsets of random calls in a file of this number of pages.
    fn offsets(&self, pages: u64) -> [u64; MOST_RANDOM] {
        let places = Places::random(self.op, pages as u32);
        let offset = |call| places.place(call as u64 % pages) * PAGE as u64;
        core::array::from_fn(offset)
    }

    /// Returns the part of the buffer that a call reads to.
    #[inline(always)]
    fn part<'a>(&self, buffer: &'a mut [u8], call: u32) -> &'a mut [u8] {
        let bytes = self.bytes();
        let start = call as usize * bytes % BUFFER;
        &mut buffer[start..start + bytes]
    }

    /// Returns true if later calls of a sample overwrite what earlier ones read.
    fn exceeds_buffer(&self) -> bool {
        self.calls as usize * self.bytes() > BUFFER
    }

    /// Returns the operations of a sample, or bytes if a rate is measured.
    fn count(&self) -> u64 {
        let per_call = match self.access {
            Access::Sequential => self.bytes() as u64,
            _ => 1,
        };
        u64::from(self.calls) * per_call
    }

    /// Returns the pages that a sample needs.
    fn pages(&self) -> u64 {
        u64::from(self.calls) * self.bytes().div_ceil(PAGE) as u64
    }
}

/// Not inlined, because the lab identifies these markers by the name of this module.
#[inline(never)]
pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for op in Workload::Files.operations() {
        if !bench.job.selects(op) {
            continue;
        }
        match bench.system.files(bench.job).map(drop) {
            Ok(()) => prepare(bench, op),
            Err(reason) => bench.skip(op, reason),
        }
        bench.system.quiesce();
    }
}

/// Measures `op` with a buffer of its own.
fn prepare<S: System>(bench: &mut Bench<'_, S>, op: Op) {
    let Some(series) = Series::of(op, bench.job.file_mib) else {
        return;
    };
    let Some(block) = bench.system.allocate(BUFFER) else {
        return bench.fail(op, "not enough memory for a buffer");
    };
    let Block { start, length } = block;
    // SAFETY: the block is exclusive until it is released below. This is the first write to it.
    let buffer = unsafe {
        start.as_ptr().write_bytes(0, length);
        core::slice::from_raw_parts_mut(start.as_ptr(), BUFFER)
    };
    let measured = open(bench, series).and_then(|file| {
        let measured = measure(bench, series, file, buffer);
        if let Some(file) = file {
            bench.system.files(bench.job)?.close(file);
        }
        measured
    });
    match measured {
        Ok(samples) => bench.end(op, samples, series.count() << 8 | u64::from(op.number())),
        Err(Failure::Skip(reason)) => bench.skip(op, reason),
        Err(Failure::Fail(reason)) => bench.fail(op, reason),
    }
    // SAFETY: allocated above; the buffer is no longer used.
    unsafe { bench.system.release(block) };
}

/// Reason why an operation has no figure.
enum Failure {
    Skip(Reason),
    Fail(Reason),
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self::Fail(reason)
    }
}

/// Opens the file of `series` if its samples do not open files.
fn open<S: System>(bench: &mut Bench<'_, S>, series: Series) -> Result<Option<u32>, Failure> {
    match series.access {
        Access::Open | Access::Whole => Ok(None),
        Access::Random | Access::Sequential => {
            let path = series.file(0).path();
            let files = bench.system.files(bench.job)?;
            Ok(Some(files.open(path.as_c_str())?))
        }
    }
}

/// Returns the number of samples.
fn measure<S: System>(
    bench: &mut Bench<'_, S>,
    series: Series,
    open: Option<u32>,
    buffer: &mut [u8],
) -> Result<u32, Failure> {
    let (op, job) = (series.op, bench.job);
    let pages = (series.class.bytes(job.file_mib) / PAGE as u64).max(1);
    let paths: [Path; MOST_FILES] = core::array::from_fn(|call| series.file(call as u32).path());
    let run = Run {
        series,
        offsets: series.offsets(pages),
        paths: core::array::from_fn(|call| paths[call].as_c_str()),
        open,
    };
    run.check_cache(bench.system.files(job)?)?;
    run.pass(bench.system.files(job)?, buffer, true)?;
    run.verify(buffer)?;
    let samples = match series.exceeds_buffer() {
        true => job.batches.min(LARGE_PASSES),
        false => job.batches,
    };
    let mut counts = Counts::default();
    bench.begin(op, 0);
    for _ in 0..samples {
        buffer.fill(0);
        let before = run.before(bench.system.files(job)?)?;
        bench.timed(op, |system| {
            let read = system
                .files(job)
                .and_then(|files| run.pass(files, buffer, false));
            (if read.is_ok() { series.count() } else { 0 }, read)
        })?;
        let after = bench.system.files(job)?.cache_counts();
        counts.add(before, after.ok(), &series)?;
        run.verify(buffer)?;
    }
    if counts.pages != 0 {
        let name = op.name();
        bench
            .system
            .print_fact(format_args!("{FACT_PREFIX}{name} {counts}"));
    }
    Ok(samples)
}

/// A series with what its calls need, so that no call computes it.
struct Run<'a> {
    series: Series,
    /// Offsets of random calls.
    offsets: [u64; MOST_RANDOM],
    /// Paths of the files that calls open, in turn.
    paths: [&'a CStr; MOST_FILES],
    /// The open file, if calls open none.
    open: Option<u32>,
}

impl Run<'_> {
    /// Returns the offset of a call in its file.
    #[inline(always)]
    fn offset(&self, call: u32) -> u64 {
        match self.series.access {
            Access::Open | Access::Whole => 0,
            Access::Random => self.offsets[call as usize % MOST_RANDOM],
            Access::Sequential => u64::from(call) * CALL as u64,
        }
    }

    /// Performs the calls of a sample. With `verifies`, all bytes are compared where later calls overwrite them, two
    /// words of each page without.
    #[inline(always)]
    fn pass(&self, files: &mut dyn Files, buffer: &mut [u8], verifies: bool) -> Result<(), Reason> {
        for call in 0..self.series.calls {
            let file = match self.open {
                Some(file) => file,
                None => files.open(self.paths[call as usize % MOST_FILES])?,
            };
            if self.series.access != Access::Open {
                let offset = self.offset(call);
                let part = self.series.part(buffer, call);
                let read = files.read(file, offset, part)?;
                ensure(
                    read == part.len(),
                    "a read returned fewer bytes than the file has",
                )?;
                if self.series.exceeds_buffer() {
                    let file = self.series.file(call);
                    let is_right = match verifies {
                        true => file.holds(offset, part),
                        false => file.is_stamped(offset, part),
                    };
                    ensure(is_right, WRONG)?;
                }
            }
            if self.open.is_none() {
                files.close(file);
            }
        }
        Ok(())
    }

    /// Compares all that a sample has read.
    fn verify(&self, buffer: &mut [u8]) -> Result<(), Reason> {
        if self.series.exceeds_buffer() {
            return Ok(());
        }
        let mut calls = 0..self.series.calls;
        let is_right = calls.all(|call| {
            let offset = self.offset(call);
            let part = self.series.part(buffer, call);
            self.series.file(call).holds(offset, part)
        });
        ensure(is_right, WRONG)
    }

    /// Checks that the cache can be emptied, if that is needed: a file system in memory keeps its pages.
    fn check_cache(&self, files: &mut dyn Files) -> Result<(), Failure> {
        let Some(file) = self.open.filter(|_| self.series.cold) else {
            return Ok(());
        };
        files.empty_cache(file).map_err(Failure::Skip)?;
        let before = files.cache_counts().map_err(Failure::Skip)?;
        files.read(file, 0, &mut [0])?;
        match files.cache_counts()?.fetched > before.fetched {
            true => Ok(()),
            false => Err(Failure::Skip(NEVER_COLD)),
        }
    }

    /// Empties the cache before a sample of a cold operation. Returns the counts of the cache.
    fn before(&self, files: &mut dyn Files) -> Result<Option<CacheCounts>, Reason> {
        if let Some(file) = self.open.filter(|_| self.series.cold) {
            files.empty_cache(file)?;
        }
        Ok(files.cache_counts().ok())
    }
}

const NEVER_COLD: Reason = "the file system is in memory, or its cache cannot be emptied";

/// What the cache did in all samples.
#[derive(Default)]
struct Counts {
    fetched: u64,
    pages: u64,
    needed: Option<(u64, u64)>,
}

impl Counts {
    /// Adds a sample.
    ///
    /// # Errors
    /// A warm operation has read from the disk, or a cold one has not read everything from it.
    fn add(
        &mut self,
        before: Option<CacheCounts>,
        after: Option<CacheCounts>,
        series: &Series,
    ) -> Result<(), Reason> {
        let (Some(before), Some(after)) = (before, after) else {
            return Ok(());
        };
        let fetched = after.fetched.saturating_sub(before.fetched);
        // Linux is only advised to drop pages, and keeps those that are locked or under writeback (posix_fadvise(2)).
        let kept = match before.needed {
            Some(_) => 0,
            None => series.pages() / MOST_KEPT,
        };
        match series.cold {
            true => ensure(
                fetched + kept >= series.pages(),
                "a cold read was not from the disk",
            ),
            false => ensure(fetched == 0, "a warm read was from the disk"),
        }?;
        self.fetched += fetched;
        self.pages += series.pages();
        if let (Some(before), Some(after)) = (before.needed, after.needed) {
            let (hits, misses) = self.needed.get_or_insert((0, 0));
            *hits += after.hits - before.hits;
            *misses += after.misses - before.misses;
        }
        Ok(())
    }
}

/// Formats the counts as a fact.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages needed, ", self.pages)?;
        if let Some((hits, misses)) = self.needed {
            write!(f, "{hits} hits, {misses} misses, ")?;
        }
        write!(f, "{} read from the disk", self.fetched)
    }
}
