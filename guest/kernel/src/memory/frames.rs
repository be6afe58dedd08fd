//! Free frames of RAM, touched and untouched.
//!
//! The first touch of a frame causes an exit, later ones do not. So the two kinds are kept apart:
//! untouched frames are allocated first, lowest address first, and a frame that is freed untouched
//! is untouched again. The lists are outside of the frames, because links in them would touch
//! them.

use core::ops::Range;

/// Bytes of a frame.
pub const FRAME: u64 = 4096;

/// Maximum number of runs of one kind of [`Frames`]. If memory is freed in more scattered runs, the excess runs are
/// lost.
const MOST_RUNS: usize = 512;

/// Adjacent free frames, as an address range.
pub type Run = Range<u64>;

const NO_RUN: Run = 0..0;

/// Free runs, sorted by address, not adjacent.
pub struct Runs<const MOST: usize> {
    runs: [Run; MOST],
    used: usize,
}

impl<const MOST: usize> Runs<MOST> {
    pub const fn new() -> Self {
        Self {
            runs: [NO_RUN; MOST],
            used: 0,
        }
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        let runs = self.runs[..self.used].iter();
        runs.map(|run| run.end - run.start).sum()
    }

    /// Returns true if no further run can be added that is not adjacent to one.
    pub fn is_full(&self) -> bool {
        self.used == MOST
    }

    /// Removes up to `bytes` from the front of the first run.
    #[inline(always)]
    pub fn take(&mut self, bytes: u64) -> Option<Run> {
        let first = self.runs[..self.used].first_mut()?;
        let taken = first.start..first.end.min(first.start + bytes);
        first.start = taken.end;
        if first.is_empty() {
            self.remove(0);
        }
        Some(taken)
    }

    /// Removes `bytes` from the end of the last run; `None` if it is not longer.
    fn take_last(&mut self, bytes: u64) -> Option<Run> {
        let last = self.runs[..self.used].last_mut()?;
        if last.end - last.start <= bytes {
            return None;
        }
        last.end -= bytes;
        Some(last.end..last.end + bytes)
    }

    /// Adds a run that overlaps none, and merges it with adjacent ones.
    pub fn add(&mut self, run: Run) {
        let after = self.runs[..self.used].partition_point(|other| other.start < run.start);
        let joins_next = after < self.used && self.runs[after].start == run.end;
        let joins_previous = after > 0 && self.runs[after - 1].end == run.start;
        match (joins_previous, joins_next) {
            (true, true) => {
                self.runs[after - 1].end = self.runs[after].end;
                self.remove(after);
            }
            (true, false) => self.runs[after - 1].end = run.end,
            (false, true) => self.runs[after].start = run.start,
            (false, false) => self.insert(after, run),
        }
    }

    fn insert(&mut self, at: usize, run: Run) {
        if self.used == MOST {
            return;
        }
        self.used += 1;
        self.runs[at..self.used].rotate_right(1);
        self.runs[at] = run;
    }

    fn remove(&mut self, at: usize) {
        self.runs[at..self.used].rotate_left(1);
        self.used -= 1;
    }
}

/// Free frames.
pub struct Frames {
    untouched: Runs<MOST_RUNS>,
    touched: Runs<MOST_RUNS>,
}

impl Frames {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self {
            untouched: Runs::new(),
            touched: Runs::new(),
        }
    }

    /// Returns the number of free bytes.
    pub fn free_bytes(&self) -> u64 {
        self.untouched.bytes() + self.touched.bytes()
    }

    /// Allocates a run of at most `bytes`, untouched if available.
    pub fn take(&mut self, bytes: u64) -> Option<Run> {
        self.untouched
            .take(bytes)
            .or_else(|| self.touched.take(bytes))
    }

    /// Allocates a run of exactly `bytes` from the end of a kind, untouched if available.
    pub fn take_last(&mut self, bytes: u64) -> Option<Run> {
        let run = self.untouched.take_last(bytes);
        run.or_else(|| self.touched.take_last(bytes))
    }

    /// Allocates a run of at most `bytes` that is written at once, touched if available.
    #[inline(always)]
    pub fn take_to_write(&mut self, bytes: u64) -> Option<Run> {
        let run = self.touched.take(bytes);
        run.or_else(|| self.untouched.take(bytes))
    }

    /// Allocates a frame for a table.
    #[inline(always)]
    pub fn take_for_table(&mut self) -> Option<u64> {
        self.take_to_write(FRAME).map(|run| run.start)
    }

    /// Adds or frees a run. `touched` is true if it may have been written.
    pub fn free(&mut self, run: Run, touched: bool) {
        if touched {
            self.touched.add(run)
        } else {
            self.untouched.add(run)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: u64 = FRAME;

    fn frames(range: Run) -> Frames {
        let mut frames = Frames::new();
        frames.free(range, false);
        frames
    }

    #[test]
    fn untouched_frames_come_first_and_from_below() {
        let mut frames = frames(4 * F..8 * F);
        frames.free(F..2 * F, true);
        assert_eq!(frames.take(2 * F), Some(4 * F..6 * F));
        assert_eq!(frames.take(9 * F), Some(6 * F..8 * F), "a run may be short");
        assert_eq!(frames.take(F), Some(F..2 * F), "then touched ones");
        assert_eq!(frames.take(F), None);
        assert_eq!(frames.free_bytes(), 0);
    }

    #[test]
    fn a_last_run_is_whole_or_not_allocated() {
        let mut frames = frames(4 * F..8 * F);
        assert_eq!(frames.take_last(2 * F), Some(6 * F..8 * F));
        assert_eq!(frames.take_last(2 * F), None, "something is left");
        assert_eq!(frames.take(9 * F), Some(4 * F..6 * F));
        assert_eq!(frames.take_last(F), None);
    }

    #[test]
    fn tables_use_touched_frames_first() {
        let mut frames = frames(4 * F..8 * F);
        frames.free(F..2 * F, true);
        assert_eq!(frames.take_for_table(), Some(F));
        assert_eq!(frames.take_for_table(), Some(4 * F));
    }

    #[test]
    fn adjacent_runs_are_merged_in_any_order() {
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let mut frames = Frames::new();
            for index in order {
                frames.free(index * F..(index + 1) * F, false);
            }
            assert_eq!(frames.take(3 * F), Some(0..3 * F), "{order:?}");
        }
    }

    #[test]
    fn excess_runs_are_lost() {
        let mut frames = Frames::new();
        let pieces = MOST_RUNS as u64 + 10;
        for index in 0..pieces {
            frames.free(2 * index * F..(2 * index + 1) * F, true);
        }
        assert_eq!(frames.free_bytes(), MOST_RUNS as u64 * F);
        for index in 0..MOST_RUNS as u64 {
            assert_eq!(frames.take(5 * F), Some(2 * index * F..(2 * index + 1) * F));
        }
        assert_eq!(frames.take(F), None);
    }
}
