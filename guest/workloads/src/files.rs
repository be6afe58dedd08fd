//! Reads and writes of files, in the page cache and on the disk.
//!
//! [`series`] has the calls of each operation, [`read`] and [`write`] perform them, [`cache`] checks what the page cache did:
//! its counts prove that warm operations read nothing from the disk and cold ones everything. Every byte is compared with
//! the content of the file ([`trapline_abi::files`]) after the measured time.

mod cache;
mod read;
mod series;
mod write;

use self::cache::Failure;
use self::series::{Access, Series, BUFFER};
use crate::measure::Bench;
use crate::system::{Block, System};
use trapline_abi::{Op, Workload};

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
        let measured = match (series.writes, file) {
            (Some(sync), Some(file)) => write::measure(bench, series, sync, file, buffer),
            _ => read::measure(bench, series, file, buffer),
        };
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

/// Opens the file of `series` if its samples do not open files.
fn open<S: System>(bench: &mut Bench<'_, S>, series: Series) -> Result<Option<u32>, Failure> {
    match series.access {
        Access::Open | Access::Whole => Ok(None),
        Access::Random | Access::Sequential => {
            let path = series.file(0).path();
            let files = bench.system.files(bench.job)?;
            Ok(Some(match series.writes {
                None => files.open(path.as_c_str())?,
                Some(_) => files.open_for_writing(path.as_c_str())?,
            }))
        }
    }
}
