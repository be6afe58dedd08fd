//! Decision which pages of an open file are read before they are needed.
//!
//! As in Linux (mm/readahead.c), the window doubles while a file is read in order, and the next one is requested when the
//! reader reaches a marked page, so that it need not wait.

use core::ops::Range;

/// Sizes of a window, in pages: 16 KiB and 128 KiB, as in Linux.
const FIRST: u64 = 4;
/// Pages of the largest window.
pub const LARGEST: u64 = 32;

/// No page.
const NONE: u64 = u64::MAX;

/// State of an open file.
#[derive(Clone, Copy, Debug)]
pub struct ReadAhead {
    /// Page that follows the last one accessed.
    next: u64,
    /// Page whose access requests the next window.
    mark: u64,
    /// First page that is not requested.
    end: u64,
    /// Pages of the last window.
    size: u64,
}

impl ReadAhead {
    /// State of a file that was not read.
    pub const NEW: Self = Self {
        next: 0,
        mark: NONE,
        end: 0,
        size: 0,
    };

    /// Returns the pages to request at an access to `page`, if it is missing or marked. The call needs all pages up to
    /// `last`.
    pub fn access(&mut self, page: u64, last: u64, is_missing: bool) -> Option<Range<u64>> {
        let is_in_order = page == self.next || page + 1 == self.next;
        self.next = page + 1;
        let needed = last - page + 1;
        if is_missing && is_in_order {
            self.size = needed.max(2 * self.size).clamp(FIRST, LARGEST);
            self.end = page + self.size;
            self.mark = page + self.size / 2;
            return Some(page..self.end);
        }
        if is_missing {
            *self = Self {
                next: self.next,
                ..Self::NEW
            };
            return Some(page..page + needed.min(LARGEST));
        }
        if page != self.mark {
            return None;
        }
        self.size = (2 * self.size).clamp(FIRST, LARGEST);
        let begin = self.end;
        self.end = begin + self.size;
        self.mark = begin;
        Some(begin..self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what accesses to `pages` one by one request, if only requested pages are not missing.
    fn requests(pages: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
        let mut state = ReadAhead::NEW;
        let mut present = std::collections::BTreeSet::new();
        let mut all = Vec::new();
        for page in pages {
            let requested = state.access(page, page, !present.contains(&page));
            present.extend(requested.clone().into_iter().flatten());
            assert!(present.contains(&page), "{page} is requested");
            all.extend(requested);
        }
        all
    }

    #[test]
    fn windows_double_while_a_file_is_read_in_order() {
        let expected = [0..4, 4..12, 12..28, 28..60, 60..92];
        assert_eq!(requests(0..30)[..], expected);
    }

    #[test]
    fn random_accesses_read_nothing_ahead() {
        assert_eq!(requests([7, 3, 100, 3]), [7..8, 3..4, 100..101]);
    }

    #[test]
    fn a_reader_in_order_waits_only_for_the_first_window() {
        let mut state = ReadAhead::NEW;
        let (mut end, mut waits) = (0, 0);
        for page in 0..1000 {
            waits += u64::from(page >= end);
            if let Some(requested) = state.access(page, page, page >= end) {
                end = requested.end;
            }
        }
        assert_eq!(waits, 1);
    }
}
