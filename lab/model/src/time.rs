//! Durations as text.

use std::time::Duration;
use thiserror::Error;

/// Invalid text of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected a time above zero, like 90s, 20m or 2h")]
pub struct InvalidDuration;

/// Parses a duration: numbers with units, such as `1h 30m`.
///
/// # Errors
/// The text is invalid.
pub fn from_text(text: &str) -> Result<Duration, InvalidDuration> {
    humantime::parse_duration(text).map_err(|_| InvalidDuration)
}

/// Parses a duration above zero.
///
/// # Errors
/// The text is invalid, or zero.
pub fn positive_from_text(text: &str) -> Result<Duration, InvalidDuration> {
    let time = from_text(text)?;
    (!time.is_zero()).then_some(time).ok_or(InvalidDuration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_is_rejected() {
        assert_eq!(from_text("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(from_text("90"), Err(InvalidDuration));
        assert_eq!(from_text("0s"), Ok(Duration::ZERO));
        assert_eq!(positive_from_text("0s"), Err(InvalidDuration));
    }
}
