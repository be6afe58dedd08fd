//! Times and shares as text.

use std::fmt;
use std::str::FromStr;

/// A span of time in nanoseconds, written `30us`, `10ms` or `1.5ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// Names of units and their nanoseconds, the largest first.
const UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Invalid text of a time or a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUnit {
    /// Not a time.
    #[error("write a time as 30us or 10ms")]
    Time,
    /// A number of instructions.
    #[error("write a time as 30us; on the instruction clock an instruction is 1 ns")]
    Instructions,
    /// Not a share.
    #[error("write a share as 99.99%")]
    Share,
}

impl FromStr for Time {
    type Err = InvalidUnit;

    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, unit) = text.split_at(end.ok_or(InvalidUnit::Time)?);
        let unit = match unit.trim_start() {
            "insn" => return Err(InvalidUnit::Instructions),
            "µs" => "us",
            unit => unit,
        };
        let scale = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, scale) = scale.ok_or(InvalidUnit::Time)?;
        decimal(number, *scale).map(Self).ok_or(InvalidUnit::Time)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS
            .iter()
            .find(|(_, scale)| self.0.is_multiple_of(*scale) && self.0 >= *scale);
        let (unit, scale) = whole.unwrap_or(&UNITS[3]);
        write!(f, "{}{unit}", self.0 / scale)
    }
}

/// A share in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(pub(crate) u64);

/// The whole, in billionths.
pub(crate) const ALL: u64 = 1_000_000_000;

impl Share {
    /// Returns the share as a number from 0 to 1.
    pub fn value(self) -> f64 {
        self.0 as f64 / ALL as f64
    }

    /// Returns whether `part` of `of` is at least this share.
    pub fn is_met(&self, part: u64, of: u64) -> bool {
        u128::from(part) * u128::from(ALL) >= u128::from(of) * u128::from(self.0)
    }
}

impl FromStr for Share {
    type Err = InvalidUnit;

    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        let number = text.strip_suffix('%').ok_or(InvalidUnit::Share)?;
        let share = decimal(number.trim_end(), ALL / 100).filter(|share| *share <= ALL);
        share.map(Self).ok_or(InvalidUnit::Share)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / (ALL / 100), self.0 % (ALL / 100));
        let digits = format!("{whole}.{rest:07}");
        write!(f, "{}%", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Returns a decimal number times `scale`, if the product is an integer.
fn decimal(number: &str, scale: u64) -> Option<u64> {
    let (whole, digits) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().ok()?;
    let parts = 10u64.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let rest = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    let is_whole = rest.is_multiple_of(parts);
    let sum = whole.checked_mul(scale)?.checked_add(rest / parts)?;
    is_whole.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_in_any_unit() {
        for (text, ns) in [
            ("30us", 30_000),
            ("30µs", 30_000),
            ("10 ms", 10_000_000),
            ("1.5ms", 1_500_000),
            ("1s", 1_000_000_000),
            ("7ns", 7),
        ] {
            assert_eq!(text.parse(), Ok(Time(ns)), "{text}");
        }
        for text in [
            "",
            "30",
            "us",
            "30 parsecs",
            "1.ms",
            "0.5ns",
            "-1ms",
            "99999999999s",
        ] {
            assert_eq!(text.parse::<Time>(), Err(InvalidUnit::Time), "{text}");
        }
        assert_eq!("2000insn".parse::<Time>(), Err(InvalidUnit::Instructions));
        assert_eq!(Time(1_500_000).to_string(), "1500us");
        assert_eq!(Time(0).to_string(), "0ns");
    }

    #[test]
    fn shares_are_exact() {
        let share: Share = "99.99%".parse().unwrap();
        assert_eq!(share.to_string(), "99.99%");
        assert!(share.is_met(9_999, 10_000) && !share.is_met(9_998, 10_000));
        let all: Share = "100%".parse().unwrap();
        assert!(all.is_met(1_000_000, 1_000_000) && !all.is_met(999_999, 1_000_000));
        for text in ["99.99", "101%", "-1%", "%", "0.00000001%", "most"] {
            assert_eq!(text.parse::<Share>(), Err(InvalidUnit::Share), "{text}");
        }
    }
}
