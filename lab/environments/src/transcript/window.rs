//! Interrupts while they are being told: what cannot be true of one, and how late
//! those of a whole window were, for whoever waits.

use trapline_abi::interrupt::WINDOW;
use trapline_abi::{Interrupt, Op};

/// A window of interrupts that was told to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Of which operation.
    pub op: Op,
    /// Which, from 0.
    pub number: u32,
    /// Of how many.
    pub of: u32,
    /// How late its interrupts were; `None` where that is not known yet, or none came.
    pub lateness: Option<Lateness>,
}

/// How late interrupts were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// The mean of the window.
    pub mean: u64,
    /// What 99 in 100 of the window were not later than.
    pub p99: u64,
    /// The latest of all windows so far.
    pub max: u64,
}

impl Window {
    /// The window that ends with the last of `interrupts`, if its last expiry is one
    /// that ends a window.
    pub fn complete(
        op: Op,
        interrupts: &[Interrupt],
        expiries: u32,
        offset: Option<u64>,
    ) -> Option<Self> {
        let last = u32::try_from(interrupts.last()?.sequence).ok()?;
        let number = last / WINDOW;
        let ends = last % WINDOW == WINDOW - 1 || last + 1 == expiries;
        let first = u64::from(number) * u64::from(WINDOW);
        let begin = interrupts.partition_point(|before| before.sequence < first);
        ends.then(|| Self {
            op,
            number,
            of: expiries.div_ceil(WINDOW),
            lateness: offset.and_then(|offset| Lateness::of(interrupts, begin, offset)),
        })
    }

    /// The same with all times as `unit` tells them.
    pub fn map(self, unit: impl Fn(u64) -> u64) -> Self {
        let lateness = self.lateness.map(|lateness| Lateness {
            mean: unit(lateness.mean),
            p99: unit(lateness.p99),
            max: unit(lateness.max),
        });
        Self { lateness, ..self }
    }
}

impl Lateness {
    /// Of a window that begins with interrupt `begin` of all that were told.
    fn of(interrupts: &[Interrupt], begin: usize, offset: u64) -> Option<Self> {
        let late = |interrupt: &Interrupt| {
            let due = interrupt.due.wrapping_add(offset);
            let late = interrupt.entered.wrapping_sub(due) as i64;
            late.max(0) as u64
        };
        let mut window: Vec<u64> = interrupts[begin..].iter().map(late).collect();
        window.sort_unstable();
        let count = window.len();
        let sum: u128 = window.iter().map(|late| u128::from(*late)).sum();
        Some(Self {
            mean: (sum / count.max(1) as u128) as u64,
            p99: *window.get((count * 99).div_ceil(100).max(1) - 1)?,
            max: interrupts.iter().map(late).max()?,
        })
    }
}

/// What cannot be true of an interrupt after one with number `before`, of a timer that
/// expires so many times.
pub fn nonsense(interrupt: &Interrupt, before: Option<u64>, expiries: u32) -> Option<&'static str> {
    let raised = [Some(interrupt.due), interrupt.woke, interrupt.marked];
    let raised: Vec<u64> = raised.into_iter().flatten().collect();
    let handled = [interrupt.entered, interrupt.done, interrupt.resumed];
    if before.is_some_and(|before| interrupt.sequence <= before) {
        Some("an interrupt was told out of order, or twice")
    } else if interrupt.sequence >= u64::from(expiries) {
        Some("an interrupt of an expiry was told that was not asked for")
    } else if !raised.is_sorted() || !handled.is_sorted() {
        Some("an interrupt is said to have come to a later stage before an earlier one")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupt(sequence: u64, late: u64) -> Interrupt {
        let due = 1_000 * sequence;
        let entered = due + late;
        Interrupt {
            sequence,
            due,
            entered,
            done: entered + 1,
            resumed: entered + 2,
            ..Interrupt::default()
        }
    }

    #[test]
    fn a_window_is_complete_with_its_last_expiry() {
        let at = |expiries| {
            let told: Vec<_> = (0..1_100).map(|number| interrupt(number, number)).collect();
            move |count: usize| Window::complete(Op::OwnTimer, &told[..count], expiries, Some(0))
        };
        let complete = at(1_100);
        assert_eq!(complete(1_023), None);
        let first = complete(1_024).unwrap();
        assert_eq!((first.number, first.of), (0, 2));
        // 0 to 1,023: the mean is cut off, and 1,014 of them are not above the 1,014th.
        let expected = Lateness {
            mean: 511,
            p99: 1_013,
            max: 1_023,
        };
        assert_eq!(first.lateness, Some(expected));
        assert_eq!(complete(1_030), None);
        let second = complete(1_100).unwrap();
        assert_eq!((second.number, second.lateness.unwrap().mean), (1, 1_061));
        assert_eq!(second.map(|ticks| 2 * ticks).lateness.unwrap().max, 2_198);
    }

    #[test]
    fn lateness_waits_for_the_offset_of_the_clocks() {
        let told = [interrupt(0, 50)];
        let of = |offset| Window::complete(Op::HostTimer, &told, 1, offset).unwrap();
        assert_eq!(of(None).lateness, None);
        assert_eq!(of(Some(20)).lateness.unwrap().max, 30);
        assert_eq!(of(Some(20u64.wrapping_neg())).lateness.unwrap().max, 70);
    }

    #[test]
    fn what_cannot_be_true_is_named() {
        let good = interrupt(5, 10);
        assert_eq!(nonsense(&good, Some(4), 6), None);
        assert!(nonsense(&good, Some(5), 6).unwrap().contains("twice"));
        assert!(nonsense(&good, None, 5).unwrap().contains("not asked for"));
        let backwards = Interrupt {
            done: good.entered - 1,
            ..good
        };
        let unwoken = Interrupt {
            woke: Some(good.due + 2),
            marked: Some(good.due + 1),
            ..good
        };
        for odd in [backwards, unwoken] {
            assert!(nonsense(&odd, None, 6).unwrap().contains("later stage"));
        }
    }
}
