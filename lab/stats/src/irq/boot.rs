//! Interrupts of one boot.

use trapline_abi::interrupt::WINDOW;
use trapline_abi::{Interrupt, Op};
use trapline_model::irq::Timers;
use trapline_model::{Config, Observation, Outcome};

/// Interrupts of one operation in one boot.
pub(super) struct IrqBoot<'a> {
    pub number: u32,
    unit_per_tick: f64,
    /// The requested expiries, if they are known.
    pub asked: Option<Timers>,
    pub interrupts: &'a [Interrupt],
}

impl IrqBoot<'_> {
    /// Returns the number of expiries; if it is unknown, up to the last interrupt.
    pub fn expiries(&self) -> u64 {
        let seen = self.interrupts.last().map_or(0, |last| last.sequence + 1);
        self.asked
            .map_or(seen, |asked| asked.expiries.into())
            .max(seen)
    }

    /// Converts ticks to the unit of the figures.
    pub fn units(&self, ticks: i64) -> f64 {
        ticks as f64 * self.unit_per_tick
    }

    /// Returns the time from expiry to the entry of the handler; 0 for an early interrupt.
    pub fn lateness(&self, interrupt: &Interrupt) -> f64 {
        let ticks = interrupt.entered.wrapping_sub(interrupt.due) as i64;
        self.units(ticks.max(0))
    }

    /// Returns number, expiries and interrupts of each window.
    pub fn windows(&self) -> impl Iterator<Item = (u64, u64, &[Interrupt])> {
        let (window, expiries) = (u64::from(WINDOW), self.expiries());
        (0..expiries.div_ceil(window)).map(move |number| {
            let (from, to) = (number * window, expiries.min((number + 1) * window));
            let begin = self.interrupts.partition_point(|i| i.sequence < from);
            let end = self.interrupts.partition_point(|i| i.sequence < to);
            (number, to - from, &self.interrupts[begin..end])
        })
    }
}

/// Returns the boots that measured `op`, in order; on an exact clock the first, which the others repeat.
pub(super) fn boots<'a>(
    observations: &'a [Observation],
    config: &'a Config,
    op: Op,
) -> Vec<IrqBoot<'a>> {
    let all = crate::outcomes(crate::boots_of(observations, config), op);
    let mut boots: Vec<_> = all
        .filter_map(|(boot, outcome)| match outcome {
            Outcome::Measured { interrupts, .. } => Some(IrqBoot {
                number: boot.replicate,
                unit_per_tick: boot.unit_per_tick,
                asked: Timers::from_facts(&boot.facts),
                interrupts,
            }),
            _ => None,
        })
        .collect();
    boots.sort_by_key(|boot| boot.number);
    if config.clock().is_exact() {
        boots.truncate(1);
    }
    boots
}
