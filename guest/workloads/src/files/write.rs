//! Writes to files.
//!
//! Each sample writes a version of the content of its own, so that a lost write is detected. After the measured time it is
//! read back: from the disk, if the sample has called `sync`, from the cache otherwise. Each part of the large file that is as
//! long as the buffer has the content of the first, except for two words of each page, which the measured time includes.

use super::cache::{check_cache, check_cold, Counts, Failure};
use super::series::{Access, Series, Sync, BUFFER, MOST_RANDOM};
use crate::measure::{ensure, Bench};
use crate::system::{CacheCounts, Files, Reason, System};
use trapline_abi::files::{File, PAGE, WORD};

const LOST: Reason = "the file does not have the content that was written";

/// Returns the number of samples.
///
/// # Errors
/// The reason why the operation is skipped or fails.
pub fn measure<S: System>(
    bench: &mut Bench<'_, S>,
    series: Series,
    sync: Sync,
    file: u32,
    buffer: &mut [u8],
) -> Result<u32, Failure> {
    let (op, job) = (series.op, bench.job);
    let run = Run {
        series,
        offsets: series.offsets(job.file_mib),
        sync,
        file,
    };
    let samples = series.samples(job.batches);
    let files = bench.system.files(job)?;
    if sync != Sync::Never {
        check_cache(files, file)?;
    }
    // Pages that are read back are in the cache afterwards.
    let first = series.file(0).version(samples);
    run.fill(buffer, first);
    run.pass(files, buffer, first)?;
    run.verify(files, buffer, first)?;
    let mut counts = Counts::default();
    bench.begin(op, 0);
    for sample in 0..samples {
        let content = series.file(0).version(sample);
        run.fill(buffer, content);
        let files = bench.system.files(job)?;
        if series.cold {
            files.empty_cache(file)?;
        }
        let before = files.cache_counts();
        bench.timed(op, |system| {
            let written = system
                .files(job)
                .and_then(|files| run.pass(files, buffer, content));
            (if written.is_ok() { series.count() } else { 0 }, written)
        })?;
        let files = bench.system.files(job)?;
        if let (Ok(before), Ok(after)) = (before, files.cache_counts()) {
            let difference = after.since(&before);
            run.check(&difference)?;
            counts.add(&difference, series.pages());
        }
        run.verify(files, buffer, content)?;
    }
    counts.print(bench.system, op);
    Ok(samples)
}

/// A series with what its calls need, so that no call computes it.
struct Run {
    series: Series,
    /// Offsets of random calls.
    offsets: [u64; MOST_RANDOM],
    sync: Sync,
    file: u32,
}

impl Run {
    /// Returns the offset of a call in the file.
    #[inline(always)]
    fn offset(&self, call: u32) -> u64 {
        match self.series.access {
            Access::Random => self.offsets[call as usize % MOST_RANDOM],
            _ => u64::from(call) * self.series.bytes() as u64,
        }
    }

    /// Fills the buffer with what a sample writes, except for two words of each page where calls share the buffer.
    fn fill(&self, buffer: &mut [u8], content: File) {
        if self.series.exceeds_buffer() {
            return content.fill(0, buffer);
        }
        for call in 0..self.series.calls {
            content.fill(self.offset(call), self.series.part(buffer, call));
        }
    }

    /// Returns true if a call has read what it wrote.
    fn is_written(&self, call: u32, content: File, bytes: &[u8]) -> bool {
        let offset = self.offset(call);
        if !self.series.exceeds_buffer() {
            return content.holds(offset, bytes);
        }
        let start = u64::from(call) * bytes.len() as u64 % BUFFER as u64;
        let mut pages = bytes.chunks_exact(PAGE).zip((start..).step_by(PAGE));
        content.is_stamped(offset, bytes)
            && pages.all(|(page, at)| content.holds(at + WORD as u64, &page[WORD..PAGE - WORD]))
    }

    /// Performs the calls of a sample.
    #[inline(always)]
    fn pass(&self, files: &mut dyn Files, buffer: &mut [u8], content: File) -> Result<(), Reason> {
        let last = self.series.calls - 1;
        for call in 0..self.series.calls {
            let offset = self.offset(call);
            let part = self.series.part(buffer, call);
            if self.series.exceeds_buffer() {
                content.stamp(offset, part);
            }
            files.write(self.file, offset, part)?;
            let syncs = match self.sync {
                Sync::Never => false,
                Sync::EachWrite => true,
                Sync::LastWrite => call == last,
            };
            if syncs {
                files.sync(self.file)?;
            }
        }
        Ok(())
    }

    /// Checks what the cache did in a sample, as far as it counts.
    fn check(&self, difference: &CacheCounts) -> Result<(), Reason> {
        if let (Some(needed), false) = (difference.needed, self.series.cold) {
            ensure(needed.misses == 0, "a page was not in the cache")?;
        }
        let expected = match self.sync {
            Sync::Never => 0,
            Sync::EachWrite | Sync::LastWrite => self.series.pages(),
        };
        ensure(
            difference.written.is_none_or(|pages| pages == expected),
            "the number of pages written to the disk is not that of changed pages",
        )
    }

    /// Reads back what a sample has written, and compares it.
    fn verify(
        &self,
        files: &mut dyn Files,
        buffer: &mut [u8],
        content: File,
    ) -> Result<(), Reason> {
        if self.sync != Sync::Never {
            files.empty_cache(self.file)?;
        }
        let before = files.cache_counts();
        for call in 0..self.series.calls {
            let offset = self.offset(call);
            let part = self.series.part(buffer, call);
            part.fill(0);
            let read = files.read(self.file, offset, part)?;
            let is_whole = read == part.len();
            ensure(is_whole && self.is_written(call, content, part), LOST)?;
        }
        match (self.sync, before, files.cache_counts()) {
            (Sync::Never, ..) => files.sync(self.file),
            (_, Ok(before), Ok(after)) => {
                check_cold(&after.since(&before), self.series.pages(), NOT_ON_DISK)
            }
            _ => Ok(()),
        }
    }
}

const NOT_ON_DISK: Reason = "what was written is in the cache only";
