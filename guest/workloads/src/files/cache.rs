//! Counts of the page cache, and conditions that they have to meet.

use crate::measure::ensure;
use crate::system::{CacheCounts, Files, Needed, Reason, System};
use core::fmt;
use trapline_abi::files::FACT_PREFIX;
use trapline_abi::Op;

/// Share of the pages of a file that may stay in the cache of Linux when it is emptied.
const MOST_KEPT: u64 = 16;

const NEVER_COLD: Reason = "the file system is in memory, or its cache cannot be emptied";

/// Reason why an operation has no figure.
pub enum Failure {
    Skip(Reason),
    Fail(Reason),
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self::Fail(reason)
    }
}

/// Checks that the cache can be emptied: a file system in memory keeps its pages.
///
/// # Errors
/// [`Failure::Skip`] if it cannot.
pub fn check_cache(files: &mut dyn Files, file: u32) -> Result<(), Failure> {
    files.empty_cache(file).map_err(Failure::Skip)?;
    let before = files.cache_counts().map_err(Failure::Skip)?;
    files.read(file, 0, &mut [0])?;
    if files.cache_counts()?.fetched > before.fetched {
        Ok(())
    } else {
        Err(Failure::Skip(NEVER_COLD))
    }
}

/// Checks that these pages were read from the disk.
///
/// # Errors
/// `reason` if not.
pub fn check_cold(difference: &CacheCounts, pages: u64, reason: Reason) -> Result<(), Reason> {
    // Linux is only advised to drop pages, and keeps those that are locked or under writeback (posix_fadvise(2)).
    let kept = match difference.needed {
        Some(_) => 0,
        None => pages / MOST_KEPT,
    };
    ensure(difference.fetched + kept >= pages, reason)
}

/// Sums of the counts of all samples.
#[derive(Default)]
pub struct Counts {
    pages: u64,
    sum: CacheCounts,
}

impl Counts {
    /// Adds a sample that used this number of pages.
    pub fn add(&mut self, difference: &CacheCounts, pages: u64) {
        self.pages += pages;
        self.sum.fetched += difference.fetched;
        if let Some(Needed { hits, misses }) = difference.needed {
            let sum = self.sum.needed.get_or_insert_with(Needed::default);
            sum.hits += hits;
            sum.misses += misses;
        }
        if let Some(written) = difference.written {
            *self.sum.written.get_or_insert(0) += written;
        }
    }

    /// Prints the counts of `op` as a fact, unless the system does not count.
    pub fn print<S: System>(&self, system: &mut S, op: Op) {
        if self.pages != 0 {
            let name = op.name();
            system.print_fact(format_args!("{FACT_PREFIX}{name} {self}"));
        }
    }
}

/// Formats the counts as a fact.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages needed, ", self.pages)?;
        if let Some(Needed { hits, misses }) = self.sum.needed {
            write!(f, "{hits} hits, {misses} misses, ")?;
        }
        write!(f, "{} read from the disk", self.sum.fetched)?;
        match self.sum.written {
            Some(written) => write!(f, ", {written} written to it"),
            None => Ok(()),
        }
    }
}
