//! 95% intervals of the share of expiries served in time.
//!
//! A cause that delays one expiry delays the next ones, too, so the observations are windows, each with its
//! share. Neighbouring windows with similar shares count for less.

use crate::bound::{lower_bound, Weighted};
use trapline_abi::interrupt::WINDOW;
use trapline_model::irq::Share;

/// Largest autocorrelation that is corrected for.
const LARGEST: f64 = 0.99;

/// Standard errors between an estimate and its one-sided 95% limit.
const UPPER: f64 = 1.645;

/// Largest multiple of a run that [`InTimeInterval::windows_to_prove`] considers.
const LONGEST: f64 = 1e9;

/// Counts of one window, which has at least one expiry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowCount {
    /// The boot; windows of different boots are not neighbours.
    pub boot: u32,
    /// Number of expiries.
    pub expiries: u64,
    /// Number of late or missed expiries.
    pub late: u64,
}

/// Result of checking a requirement on the share in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The whole interval satisfies it; on an exact clock, the count does.
    Met,
    /// The whole interval violates it; on an exact clock, the count does.
    NotMet,
    /// The interval holds shares that satisfy it and shares that violate it.
    NotProven,
}

impl Proof {
    /// Returns the printed name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::NotProven => "not proven",
        }
    }
}

/// 95% interval of the share of expiries served in time, from 0 to 1. None is given that takes late expiries for independent:
/// no run shows that there are no bursts or phases that it has not seen.
#[derive(Clone, Debug, PartialEq)]
pub struct InTimeInterval {
    /// Valid if late expiries come in bursts of up to a window, observed or not.
    pub bursts: (f64, f64),
    /// Number of windows.
    pub windows: usize,
    /// Neighbouring windows that count as one, 1 or more.
    pub windows_per_block: f64,
    /// Shares in time, weighted by number of blocks.
    blocks: Vec<Weighted>,
    /// True if any expiry was late.
    has_late: bool,
}

impl InTimeInterval {
    /// Returns the interval for `windows` in order of time; `None` if there is no expiry.
    pub fn of(windows: &[WindowCount]) -> Option<Self> {
        let expiries: u64 = windows.iter().map(|one| one.expiries).sum();
        let late: u64 = windows.iter().map(|one| one.late).sum();
        if expiries == 0 {
            return None;
        }
        let merged = Merging::of(windows);
        let in_time = blocks(windows, WindowCount::in_time, merged.per_block);
        let of_late = blocks(windows, WindowCount::late, merged.at_most);
        Some(Self {
            bursts: (lower_bound(&in_time), 1.0 - lower_bound(&of_late)),
            windows: windows.len(),
            windows_per_block: merged.per_block,
            blocks: in_time,
            has_late: late > 0,
        })
    }

    /// Compares a requirement with the interval for bursts. One late expiry disproves a
    /// requirement of all.
    pub fn proof(&self, require: Share) -> Proof {
        let (low, high) = self.bursts;
        let require = require.value();
        if low >= require {
            Proof::Met
        } else if high < require || (self.has_late && require >= 1.0) {
            Proof::NotMet
        } else {
            Proof::NotProven
        }
    }

    /// Returns the number of windows like those observed that prove the requirement; `None` if these do not
    /// satisfy it, or no number suffices.
    pub fn windows_to_prove(&self, require: Share) -> Option<u64> {
        let proves = |times: f64| {
            let more = self.blocks.iter().map(|one| Weighted {
                weight: one.weight * times,
                ..*one
            });
            lower_bound(&more.collect::<Vec<_>>()) >= require.value()
        };
        if !proves(LONGEST) {
            return None;
        }
        let (mut few, mut enough) = (0.0, LONGEST.ln());
        for _ in 0..50 {
            let middle = f64::midpoint(few, enough);
            if proves(middle.exp()) {
                enough = middle;
            } else {
                few = middle;
            }
        }
        Some((enough.exp() * self.full_windows()).ceil() as u64)
    }

    /// Returns the number of windows; a partial one counts as a fraction.
    fn full_windows(&self) -> f64 {
        let blocks: f64 = self.blocks.iter().map(|one| one.weight).sum();
        blocks * self.windows_per_block
    }
}

impl WindowCount {
    fn late(&self) -> f64 {
        self.late as f64 / self.expiries as f64
    }

    fn in_time(&self) -> f64 {
        (self.expiries - self.late) as f64 / self.expiries as f64
    }
}

/// Numbers of neighbouring windows that count as one block.
struct Merging {
    /// From the estimate of the autocorrelation.
    per_block: f64,
    /// From its upper 95% limit. For the upper end of the share in time: equally late windows may be of one
    /// phase, which the estimate does not show.
    at_most: f64,
}

impl Merging {
    fn of(windows: &[WindowCount]) -> Self {
        let count = windows.len() as f64;
        let per_block = |correlation: f64| {
            let correlation = correlation.clamp(0.0, LARGEST);
            // Variance of the mean of a first-order autoregressive process relative to independent
            // values (Bayley and Hammersley 1946).
            let times = (1.0 + correlation) / (1.0 - correlation);
            times.clamp(1.0, (count / 2.0).max(1.0))
        };
        let correlation = autocorrelation(windows);
        Self {
            per_block: per_block(correlation),
            at_most: per_block(correlation + UPPER / count.sqrt()),
        }
    }
}

/// Returns the autocorrelation of the shares of neighbouring windows, corrected for its small-sample bias
/// (Shaman and Stine 1988); 0 if all shares are equal.
fn autocorrelation(windows: &[WindowCount]) -> f64 {
    let expiries: u64 = windows.iter().map(|one| one.expiries).sum();
    let late: u64 = windows.iter().map(|one| one.late).sum();
    if windows
        .windows(2)
        .all(|pair| pair[0].late() == pair[1].late())
    {
        return 0.0;
    }
    let mean = late as f64 / expiries as f64;
    let deviation = |one: &WindowCount| (one.late() - mean) * (one.expiries as f64).sqrt();
    let variance: f64 = windows.iter().map(|one| deviation(one).powi(2)).sum();
    let neighbours = windows
        .windows(2)
        .filter(|pair| pair[0].boot == pair[1].boot);
    let covariance: f64 = neighbours
        .map(|pair| deviation(&pair[0]) * deviation(&pair[1]))
        .sum();
    let estimate = covariance / variance;
    estimate + (1.0 + 4.0 * estimate.max(0.0)) / windows.len() as f64
}

/// Returns the distinct shares of windows, weighted by number of blocks.
fn blocks(
    windows: &[WindowCount],
    share: impl Fn(&WindowCount) -> f64,
    per_block: f64,
) -> Vec<Weighted> {
    let full = f64::from(WINDOW) * per_block;
    let mut all: Vec<Weighted> = windows
        .iter()
        .map(|one| Weighted {
            value: share(one),
            weight: one.expiries as f64 / full,
        })
        .collect();
    all.sort_by(|a, b| a.value.total_cmp(&b.value));
    all.dedup_by(|next, kept| {
        let is_same = next.value == kept.value;
        if is_same {
            kept.weight += next.weight;
        }
        is_same
    });
    all
}
