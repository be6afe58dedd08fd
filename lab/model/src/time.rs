//! Stretches of time, as people write them.

use std::time::Duration;
use thiserror::Error;

/// A text that is no stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a time like 90s, 20m or 2h is expected")]
pub struct BadTime;

/// The time that `text` tells: numbers with their units, as `1h 30m`.
///
/// # Errors
/// It tells none.
pub fn from_text(text: &str) -> Result<Duration, BadTime> {
    humantime::parse_duration(text).map_err(|_| BadTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_added_and_a_number_alone_is_no_time() {
        assert_eq!(from_text("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(from_text("90"), Err(BadTime));
    }
}
