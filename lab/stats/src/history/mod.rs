//! Shifts in the figures of a store's runs.
//!
//! A series holds one figure per run, of one operation of one configuration, measured with the same
//! settings. On the wall clock a series is tested for a shift of its mean with a statistic
//! that is corrected for autocorrelation ([`strongest`]) and critical values that hold for
//! autocorrelated and heavy-tailed noise ([`p_value`]); the tests of all series of the store
//! are corrected together ([`change_points`]). On an exact clock every changed digit is a
//! change point ([`exact_change_points`]). Nothing is random: equal series have equal points.

mod change_points;
mod critical;
mod pattern;
mod screen;
mod series;
mod statistic;

pub use change_points::{change_points, exact_change_points, ChangePoint, FEWEST_TESTED};
pub use critical::{p_value, CRITICAL_LENGTHS, LEVELS};
pub use pattern::{pattern, Pattern};
pub use screen::{screen, Screened, Screening, Shift};
pub use series::{Entry, RunTime, Series, SeriesBuilder, SeriesSettings};
pub use statistic::{strongest, Candidate, Shape, LEAST_PULSE, LEAST_RUNS};

/// Parameters of the search for shifts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The false discovery rate over all series of the store: the largest expected share of
    /// series without a shift among those reported.
    pub level: f64,
    /// The smallest change that is reported, as a share: 0.01 is one percent. On an exact
    /// clock every change is reported.
    pub least_change: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            level: 0.05,
            least_change: 0.0,
        }
    }
}
