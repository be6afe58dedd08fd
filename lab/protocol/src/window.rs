//! Plausibility of interrupts as they arrive, and the lateness of complete windows for progress output.

use trapline_abi::interrupt::WINDOW;
use trapline_abi::{Interrupt, Op};

/// A complete window of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The operation.
    pub op: Op,
    /// Index of the window, from 0.
    pub number: u32,
    /// Number of windows.
    pub of: u32,
    /// Lateness of its interrupts; `None` if the clock offset is unknown or no interrupt arrived.
    pub lateness: Option<Lateness>,
}

/// Lateness of interrupts, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// Mean of the window.
    pub mean: u64,
    /// 99th percentile of the window.
    pub p99: u64,
    /// Maximum of all windows so far.
    pub max: u64,
}

impl Window {
    /// Returns the window that ends with the last of `interrupts`, if that expiry ends one.
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

    /// Converts all times by `unit`.
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
    /// Returns the lateness of the window that begins at index `begin`.
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

/// Returns why an interrupt after sequence number `before`, of a timer with `expiries` expiries,
/// cannot be true, if so.
pub fn implausible(
    interrupt: &Interrupt,
    before: Option<u64>,
    expiries: u32,
) -> Option<&'static str> {
    let raised = [Some(interrupt.due), interrupt.woke, interrupt.marked];
    let raised: Vec<u64> = raised.into_iter().flatten().collect();
    let handled = [interrupt.entered, interrupt.done, interrupt.resumed];
    if before.is_some_and(|before| interrupt.sequence <= before) {
        Some("interrupts are out of order or duplicated")
    } else if interrupt.sequence >= u64::from(expiries) {
        Some("an interrupt has an expiry that was not requested")
    } else if !raised.is_sorted() || !handled.is_sorted() {
        Some("an interrupt has a later stage before an earlier one")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

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
    fn window_is_complete_with_its_last_expiry() {
        let at = |expiries| {
            let sent: Vec<_> = (0..1_100).map(|number| interrupt(number, number)).collect();
            move |count: usize| Window::complete(Op::OwnTimer, &sent[..count], expiries, Some(0))
        };
        let complete = at(1_100);
        assert_eq!(complete(1_023), None);
        let first = complete(1_024).unwrap();
        assert_eq!((first.number, first.of), (0, 2));
        // 0 to 1,023: the mean is truncated; the 99th percentile is the 1,014th value.
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
    fn lateness_needs_the_clock_offset() {
        let sent = [interrupt(0, 50)];
        let of = |offset| Window::complete(Op::HostTimer, &sent, 1, offset).unwrap();
        assert_eq!(of(None).lateness, None);
        assert_eq!(of(Some(20)).lateness.unwrap().max, 30);
        assert_eq!(of(Some(20u64.wrapping_neg())).lateness.unwrap().max, 70);
    }

    #[test]
    fn implausible_interrupts_are_rejected() {
        let good = interrupt(5, 10);
        assert_eq!(implausible(&good, Some(4), 6), None);
        let backwards = Interrupt {
            done: good.entered - 1,
            ..good
        };
        let unwoken = Interrupt {
            woke: Some(good.due + 2),
            marked: Some(good.due + 1),
            ..good
        };
        let reasons = [
            implausible(&good, Some(5), 6),
            implausible(&good, None, 5),
            implausible(&backwards, None, 6),
            implausible(&unwoken, None, 6),
        ];
        expect![[r#"
            interrupts are out of order or duplicated
            an interrupt has an expiry that was not requested
            an interrupt has a later stage before an earlier one
            an interrupt has a later stage before an earlier one"#]]
        .assert_eq(&reasons.map(Option::unwrap).join("\n"));
    }
}
