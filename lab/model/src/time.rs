//! Durations and dates as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Invalid text of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected a time above zero, like 90s, 20m or 2h")]
pub struct InvalidDuration;

/// Returns the milliseconds since 1970 (UTC); 0 if the clock is set before.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

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

/// The last second of the year 9999, after which no date has the usual form.
const LAST_SECOND: u64 = 253_402_300_799;

/// Formats date and time in UTC, as `2024-02-29T01:01:00Z`. Files from elsewhere can have times before 1970 or after the
/// year 9999: these are `unknown date`.
pub fn date(at: SystemTime) -> String {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) if since.as_secs() <= LAST_SECOND => {
            humantime::format_rfc3339_seconds(at).to_string()
        }
        _ => "unknown date".to_owned(),
    }
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

    #[test]
    fn dates_out_of_range_are_unknown() {
        let at = |seconds| {
            UNIX_EPOCH
                .checked_add(Duration::from_secs(seconds))
                .unwrap()
        };
        assert_eq!(date(at(951_786_060)), "2000-02-29T01:01:00Z");
        assert_eq!(date(at(LAST_SECOND)), "9999-12-31T23:59:59Z");
        let past = UNIX_EPOCH - Duration::from_secs(1);
        for at in [past, at(LAST_SECOND + 1), at(u64::MAX / 1000)] {
            assert_eq!(date(at), "unknown date");
        }
    }
}
