//! Frames of a page cache, and the keys of their pages.

use super::FRAMES;

/// Lists of the hash table.
pub const LISTS: usize = 2 * FRAMES;

/// No frame.
pub const NONE: u16 = u16::MAX;

/// Page of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub file: u32,
    pub page: u32,
}

impl Key {
    /// Returns its list: by multiplicative hashing (Knuth, volume 3, 6.4).
    pub fn list(self) -> usize {
        let both = u64::from(self.file) << 32 | u64::from(self.page);
        (both.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % LISTS
    }
}

/// State of a frame, in an order in which those that can be read are last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum State {
    Free = 0,
    /// A request that reads it is in flight.
    Reading,
    /// Equal to the disk. In this state and in all that follow the page can be read.
    Valid,
    /// Changed since it was read or written back.
    Dirty,
    /// A request that writes it back is in flight.
    Writing,
}

/// A frame and its page.
#[derive(Clone, Copy)]
pub struct Frame {
    pub key: Key,
    pub state: State,
    /// It was used again since the clock last passed.
    pub used_again: bool,
    /// It was used once.
    pub used: bool,
    /// Next frame of the list.
    pub next: u16,
    /// Frames of the request that begins with this one.
    pub run: u16,
}

impl Frame {
    /// Notes a use of the page.
    #[inline(always)]
    pub fn mark_used(&mut self) {
        self.used_again = self.used;
        self.used = true;
    }
}

/// A frame without a page.
pub const FREE: Frame = Frame {
    key: Key { file: 0, page: 0 },
    state: State::Free,
    used_again: false,
    used: false,
    next: NONE,
    run: 0,
};
