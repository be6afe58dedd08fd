//! Whether an environment keeps the time that was demanded.

use super::tables::name;
use crate::{figures, Report};
use trapline_plan::Clock;
use trapline_stats::irq::Spread;

/// Whether one timer in one environment meets what is demanded.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The environment and the timer.
    pub name: String,
    /// By which clock.
    pub clock: Clock,
    /// Whether it does.
    pub met: bool,
    /// What it is judged by.
    spread: Spread,
}

impl Verdict {
    /// The verdict with what it rests on.
    pub fn words(&self) -> String {
        let Spread {
            expiries, above, ..
        } = self.spread;
        let (in_time, missed) = (self.spread.in_time(), self.spread.missed());
        let met = if self.met { "met" } else { "not met" };
        let count = figures::count;
        let mut words = format!(
            "{}: {met}, {} of {} in time ({})",
            self.name,
            count(in_time),
            count(expiries),
            figures::share(in_time, expiries)
        );
        if self.spread.too_late() > 0 {
            words.push_str(&format!(
                "; {} late, {} missed",
                count(above),
                count(missed)
            ));
        }
        words
    }
}

/// A verdict on each timer in each environment; none where nothing is demanded.
pub fn verdicts(report: &Report) -> Vec<Verdict> {
    let Some(require) = report.irq.require else {
        return Vec::new();
    };
    let all = report.interrupts.iter();
    all.map(|interrupts| Verdict {
        name: name(interrupts),
        clock: interrupts.clock,
        met: interrupts.meets(require),
        spread: interrupts.all.clone(),
    })
    .collect()
}
