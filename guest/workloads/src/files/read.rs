//! Reads of files.
//!
//! Only the large file does not fit the buffer: two words of each page are compared within the measured time, and all bytes
//! in a pass before it.

use super::cache::{check_cache, check_cold, Counts, Failure};
use super::series::{Access, Series, MOST_RANDOM};
use crate::measure::{ensure, Bench};
use crate::system::{CacheCounts, Files, Reason, System};
use core::ffi::CStr;
use trapline_abi::files::{Class, Path};

/// Maximum number of files that a sample opens.
const MOST_FILES: usize = Class::Small.count() as usize;

const WRONG: Reason = "the data read is not the content of the file at that place";

/// Returns the number of samples.
///
/// # Errors
/// The reason why the operation is skipped or fails.
pub fn measure<S: System>(
    bench: &mut Bench<'_, S>,
    series: Series,
    open: Option<u32>,
    buffer: &mut [u8],
) -> Result<u32, Failure> {
    let (op, job) = (series.op, bench.job);
    let paths: [Path; MOST_FILES] = core::array::from_fn(|call| series.file(call as u32).path());
    let run = Run {
        series,
        offsets: series.offsets(job.file_mib),
        paths: core::array::from_fn(|call| paths[call].as_c_str()),
        open,
    };
    run.check_cache(bench.system.files(job)?)?;
    run.pass(bench.system.files(job)?, buffer, true)?;
    run.verify(buffer)?;
    let samples = series.samples(job.batches);
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
        if let (Some(before), Ok(after)) = (before, after) {
            let difference = after.since(&before);
            check(&difference, &series)?;
            counts.add(&difference, series.pages());
        }
        run.verify(buffer)?;
    }
    counts.print(bench.system, op);
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
            Access::Sequential => u64::from(call) * self.series.bytes() as u64,
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
                    let is_right = if verifies {
                        file.holds(offset, part)
                    } else {
                        file.is_stamped(offset, part)
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
        check_cache(files, file)
    }

    /// Empties the cache before a sample of a cold operation. Returns the counts of the cache.
    fn before(&self, files: &mut dyn Files) -> Result<Option<CacheCounts>, Reason> {
        if let Some(file) = self.open.filter(|_| self.series.cold) {
            files.empty_cache(file)?;
        }
        Ok(files.cache_counts().ok())
    }
}

/// Checks what the cache did in a sample.
///
/// # Errors
/// A warm operation has read from the disk, or a cold one has not read everything from it.
fn check(difference: &CacheCounts, series: &Series) -> Result<(), Reason> {
    if series.cold {
        check_cold(
            difference,
            series.pages(),
            "a cold read was not from the disk",
        )
    } else {
        ensure(difference.fetched == 0, "a warm read was from the disk")
    }
}
