//! A slice of a plan: those of its boots that one of several hosts, or one of several tasks, executes.
//!
//! Slices follow from what is asked for alone, not from what a host can measure, so that they are the same on every host:
//! together they are the whole plan, and no boot is in two of them. Boots that are compared with each other stay together: a
//! block of the wall clock is in one slice. The boot that gives an exact figure and the one that must reproduce it are in
//! different ones, so that different hosts may prove it.

use std::fmt;
use std::str::FromStr;

/// Slices of a plan, at most.
pub const MOST: u32 = 100_000;

/// One of several slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slice {
    /// Its number, from 1.
    number: u32,
    /// Number of slices.
    of: u32,
}

/// A text that is no slice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the number of a slice and that of all, like 1/4")]
pub struct InvalidSlice;

impl Slice {
    /// Returns the number of slices.
    pub fn of(self) -> u32 {
        self.of
    }

    /// Returns whether it has a block of the wall clock.
    pub(crate) fn has_block(self, block: u32) -> bool {
        self.has(block)
    }

    /// Returns whether it has a boot on an exact clock of the configuration in this place of `count`. Configurations that
    /// are next to each other often share a machine, and are in one slice.
    pub(crate) fn has_exact(self, place: usize, count: usize, replicate: u32) -> bool {
        let first = place as u64 * u64::from(self.of) / count.max(1) as u64;
        self.has((first as u32).wrapping_add(replicate % self.of))
    }

    fn has(self, unit: u32) -> bool {
        unit % self.of == self.number - 1
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Slice {
    type Err = InvalidSlice;

    fn from_str(text: &str) -> Result<Self, InvalidSlice> {
        let (number, of) = text.split_once('/').ok_or(InvalidSlice)?;
        let parsed = |text: &str| text.parse::<u32>().map_err(|_| InvalidSlice);
        let (number, of) = (parsed(number)?, parsed(of)?);
        if (1..=of).contains(&number) && of <= MOST {
            Ok(Self { number, of })
        } else {
            Err(InvalidSlice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_read_from_its_text() {
        for text in ["1/1", "2/4", "100000/100000"] {
            assert_eq!(text.parse::<Slice>().unwrap().to_string(), text);
        }
        for text in [
            "", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/4", "1/100001", "a/b",
        ] {
            assert_eq!(text.parse::<Slice>(), Err(InvalidSlice), "{text}");
        }
    }
}
