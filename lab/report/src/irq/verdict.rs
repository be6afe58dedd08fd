//! Verdicts on the required share of expiries in time.

use super::shares;
use crate::{figures, Report};
use trapline_abi::interrupt::WINDOW;
use trapline_model::irq::{Share, MOST_EXPIRIES};
use trapline_model::Clock;
use trapline_stats::irq::{ExpiryStats, InTimeInterval, Interrupts, Proof};

/// The verdict on one timer in one environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The environment and the timer.
    pub name: String,
    /// The clock.
    pub clock: Clock,
    /// The result.
    pub proof: Proof,
    require: Share,
    spread: ExpiryStats,
    interval: Option<InTimeInterval>,
    /// Nanoseconds from one expiry to the next.
    period: Option<f64>,
}

impl Verdict {
    fn new(interrupts: &Interrupts, require: Share) -> Self {
        Self {
            name: interrupts.name(),
            clock: interrupts.clock,
            proof: interrupts.proof(require),
            require,
            spread: interrupts.all.clone(),
            interval: interrupts.in_time_interval.clone(),
            period: interrupts.period,
        }
    }

    /// Returns the verdict with the counts and the interval behind it.
    pub fn words(&self) -> String {
        let ExpiryStats {
            expiries, above, ..
        } = self.spread;
        let (in_time, missed) = (self.spread.in_time(), self.spread.missed());
        let count = figures::count;
        let mut words = format!(
            "{}: {}, {} of {} in time ({}",
            self.name,
            self.proof.name(),
            count(in_time),
            count(expiries),
            figures::share(in_time, expiries)
        );
        if let Some(interval) = &self.interval {
            words.push_str(&format!(", interval {}", shares::interval(interval.bursts)));
        }
        words.push(')');
        if self.spread.too_late() > 0 {
            words.push_str(&format!(
                "; {} late, {} missed",
                count(above),
                count(missed)
            ));
        }
        words
    }

    /// Returns what would prove a requirement that is not proven.
    pub fn help(&self) -> Option<String> {
        if self.proof != Proof::NotProven {
            return None;
        }
        let windows = self.interval.as_ref()?.windows_to_prove(self.require);
        Some(match windows {
            Some(windows) => self.enough(windows),
            None if self.require.value() >= 1.0 => {
                "no number of expiries proves 100%; one late expiry disproves it".to_owned()
            }
            None => "no number of such windows proves it; more may disprove it".to_owned(),
        })
    }

    /// The options by which so many windows are measured, and how long that takes.
    fn enough(&self, windows: u64) -> String {
        let per_boot = u64::from(MOST_EXPIRIES / WINDOW);
        let boots = windows.div_ceil(per_boot);
        let samples = windows.div_ceil(boots) * u64::from(WINDOW);
        let like = match self.spread.too_late() {
            0 => "without a late expiry",
            _ => "like these",
        };
        let mut words = format!(
            "{} windows {like} prove it: --samples {samples}",
            figures::count(windows)
        );
        if boots > 1 {
            words.push_str(&format!(" --boots {boots}"));
        }
        if let Some(period) = self.period {
            let time = period * (samples * boots) as f64;
            words.push_str(&format!(" (takes {})", duration(time)));
        }
        words
    }
}

/// Nanoseconds as seconds, minutes, hours or days with two digits.
fn duration(ns: f64) -> String {
    let seconds = ns / 1e9;
    let (value, unit) = match seconds {
        few if few < 100.0 => (few, "s"),
        some if some < 6_000.0 => (some / 60.0, "min"),
        more if more < 172_800.0 => (more / 3_600.0, "h"),
        most => (most / 86_400.0, "days"),
    };
    format!("{} {unit}", figures::quantity(value))
}

/// Returns a verdict on each timer in each environment; none without a requirement.
pub fn verdicts(report: &Report) -> Vec<Verdict> {
    let all = report.irq.require.into_iter();
    let of = |require| {
        let judged = report.interrupts.iter();
        judged.map(move |interrupts| Verdict::new(interrupts, require))
    };
    all.flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_fitting_unit() {
        for (seconds, text) in [
            (12.0, "12.0 s"),
            (600.0, "10.0 min"),
            (37_770.0, "10.5 h"),
            (864_000.0, "10.0 days"),
        ] {
            assert_eq!(duration(seconds * 1e9), text);
        }
    }
}
