//! The ledger that stands for an operation: of a batch whose figure is the median. Of
//! an even number of batches the median may lie between two; then it is of both.

use super::windows::Marked;
use trapline_ledger::{Batch, Ledger, Window};

/// The ledger whose total is the figure of an operation. `account` makes that of so
/// many batches. Of several batches with one figure it is one that adds up, if there
/// is such a one. `None` if there are no batches.
pub fn typical(
    marked: &Marked<'_>,
    account: impl Fn(&Batch, &Window, u64) -> Ledger,
) -> Option<Ledger> {
    let pairs = || marked.batches.iter().zip(marked.windows);
    let standing_for = |figure: f64| {
        let alike = || pairs().filter(move |(batch, _)| batch.figure() == figure);
        let mut in_order = alike();
        let balanced = in_order.find(|(batch, window)| account(batch, window, 1).residual == 0);
        balanced.or_else(|| alike().next())
    };
    let (lower, upper) = middle(&marked.batches)?;
    let (batch, window) = standing_for(lower)?;
    match standing_for(upper)? {
        // The mean of two figures is the figure of both only if they count alike.
        (other, also) if lower != upper && other.count == batch.count => {
            Some(account(&batch.and(other), &window.and(also), 2))
        }
        _ => Some(account(batch, window, 1)),
    }
}

/// The two figures in the middle; of an odd number of batches, twice the same.
fn middle(batches: &[Batch]) -> Option<(f64, f64)> {
    let mut figures: Vec<_> = batches.iter().map(Batch::figure).collect();
    figures.sort_by(f64::total_cmp);
    let last = figures.len().checked_sub(1)?;
    Some((figures[last / 2], figures[last - last / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use trapline_abi::Op;

    fn batch(ticks: u64) -> Batch {
        Batch {
            ticks,
            count: 2,
            clock_cost: 1,
            loop_cost: 0,
        }
    }

    fn ledger(total: f64, residual: i64) -> Ledger {
        Ledger {
            total,
            residual,
            operations: 1,
            ..Ledger::default()
        }
    }

    /// The ledger of batches with these ticks; the last residual is told first.
    fn of(ticks: &[u64], residuals: &[i64]) -> Option<Ledger> {
        let windows = vec![Window::default(); ticks.len()];
        let marked = Marked {
            op: Op::PortOut,
            batches: ticks.iter().copied().map(batch).collect(),
            windows: &windows,
        };
        let residuals = RefCell::new(residuals.to_vec());
        typical(&marked, |batch, _, _| {
            let residual = residuals.borrow_mut().pop();
            ledger(batch.figure(), residual.unwrap_or(0))
        })
    }

    #[test]
    fn the_middle_is_one_batch_or_two() {
        let middle_of = |ticks: &[u64]| {
            let batches: Vec<_> = ticks.iter().copied().map(batch).collect();
            middle(&batches)
        };
        assert_eq!(middle_of(&[9, 1, 5]), Some((2.0, 2.0)));
        assert_eq!(middle_of(&[9, 1, 5, 7]), Some((2.0, 3.0)));
        assert_eq!(middle_of(&[]), None);
    }

    #[test]
    fn the_ledger_adds_up_to_the_median() {
        assert_eq!(of(&[7, 5, 5, 1], &[]), Some(ledger(2.0, 0)));
        assert_eq!(of(&[9, 1, 5, 7], &[]), Some(ledger(2.5, 0)));
        assert_eq!(of(&[], &[]), None);
    }

    #[test]
    fn of_batches_with_one_figure_it_is_one_that_adds_up() {
        assert_eq!(of(&[5, 5, 5], &[0, 0, 0, 3]), Some(ledger(2.0, 0)));
        let never = [4; 9];
        assert_eq!(of(&[5, 5, 5], &never), Some(ledger(2.0, 4)));
    }
}
