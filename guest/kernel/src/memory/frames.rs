//! Frames: which pages of RAM are free, and which of those nobody ever touched.
//!
//! To a hypervisor the first touch of a page is an event; the second is nothing.
//! So the two kinds are kept apart, untouched frames are given out first, lowest
//! address first, and a frame that comes back untouched is untouched again. The
//! books are kept outside the frames: a list threaded through them would touch
//! them.

use core::ops::Range;

/// Bytes of a frame.
pub const FRAME: u64 = 4096;

/// The most runs of one kind. More arise only if memory is given back in as many
/// scattered pieces; then the piece that finds no place is lost to this boot.
const MOST_RUNS: usize = 512;

/// Adjacent free frames, as an address range.
pub type Run = Range<u64>;

const NO_RUN: Run = 0..0;

/// Free runs, sorted by address, none touching another.
struct Runs {
    runs: [Run; MOST_RUNS],
    used: usize,
}

impl Runs {
    const fn new() -> Self {
        Self {
            runs: [NO_RUN; MOST_RUNS],
            used: 0,
        }
    }

    fn bytes(&self) -> u64 {
        let runs = self.runs[..self.used].iter();
        runs.map(|run| run.end - run.start).sum()
    }

    /// Takes up to `bytes` from the front of the first run.
    fn take(&mut self, bytes: u64) -> Option<Run> {
        let first = self.runs[..self.used].first_mut()?;
        let taken = first.start..first.end.min(first.start + bytes);
        first.start = taken.end;
        if first.is_empty() {
            self.remove(0);
        }
        Some(taken)
    }

    /// Adds a run that overlaps none, and joins it with its neighbours.
    fn add(&mut self, run: Run) {
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
        if self.used == MOST_RUNS {
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

/// All free frames.
pub struct Frames {
    untouched: Runs,
    touched: Runs,
}

impl Frames {
    /// No frames at all.
    pub const fn new() -> Self {
        Self {
            untouched: Runs::new(),
            touched: Runs::new(),
        }
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        self.untouched.bytes() + self.touched.bytes()
    }

    /// Takes a run of at most `bytes`, untouched as long as there are such.
    pub fn take(&mut self, bytes: u64) -> Option<Run> {
        self.untouched
            .take(bytes)
            .or_else(|| self.touched.take(bytes))
    }

    /// Takes a frame that will be written to at once: a touched one, if there is.
    pub fn take_for_table(&mut self) -> Option<u64> {
        let run = self.touched.take(FRAME);
        run.or_else(|| self.untouched.take(FRAME))
            .map(|run| run.start)
    }

    /// Gives a run (back). `touched`: somebody may have written to it.
    pub fn give(&mut self, run: Run, touched: bool) {
        match touched {
            true => self.touched.add(run),
            false => self.untouched.add(run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: u64 = FRAME;

    fn frames(range: Run) -> Frames {
        let mut frames = Frames::new();
        frames.give(range, false);
        frames
    }

    #[test]
    fn untouched_frames_come_first_and_from_below() {
        let mut frames = frames(4 * F..8 * F);
        frames.give(F..2 * F, true);
        assert_eq!(frames.take(2 * F), Some(4 * F..6 * F));
        assert_eq!(frames.take(9 * F), Some(6 * F..8 * F), "a run may be short");
        assert_eq!(frames.take(F), Some(F..2 * F), "then touched ones");
        assert_eq!(frames.take(F), None);
        assert_eq!(frames.free(), 0);
    }

    #[test]
    fn a_table_does_not_waste_an_untouched_frame() {
        let mut frames = frames(4 * F..8 * F);
        frames.give(F..2 * F, true);
        assert_eq!(frames.take_for_table(), Some(F));
        assert_eq!(frames.take_for_table(), Some(4 * F));
    }

    #[test]
    fn neighbours_join_whatever_the_order_they_come_back_in() {
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
                frames.give(index * F..(index + 1) * F, false);
            }
            assert_eq!(frames.take(3 * F), Some(0..3 * F), "{order:?}");
        }
    }

    #[test]
    fn more_pieces_than_there_is_room_for_are_lost_not_mixed_up() {
        let mut frames = Frames::new();
        let pieces = MOST_RUNS as u64 + 10;
        for index in 0..pieces {
            frames.give(2 * index * F..(2 * index + 1) * F, true);
        }
        assert_eq!(frames.free(), MOST_RUNS as u64 * F);
        for index in 0..MOST_RUNS as u64 {
            assert_eq!(frames.take(5 * F), Some(2 * index * F..(2 * index + 1) * F));
        }
        assert_eq!(frames.take(F), None);
    }
}
