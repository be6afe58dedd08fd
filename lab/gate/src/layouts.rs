//! Changes of figures whose baseline has several layouts of the machine's memory.
//!
//! A figure may depend on where things lie in memory, and every change of code moves something. What a change costs by itself
//! it costs in every layout; what it costs in some is a matter of places.

use crate::baseline::{fastest, Baseline, EnvironmentBaseline};
use trapline_model::Config;
use trapline_stats::layouts::Layouts;
use trapline_stats::{Cell, Figure, Summary};

/// Old figures of an operation in several layouts, compared with new ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayoutChange {
    old: Layouts,
    /// All figures, or the fastest batches of all, moved by the same amount.
    is_common: bool,
}

impl LayoutChange {
    /// Returns `None` if there are not at least two layouts with an old and a new figure.
    pub fn of(
        baseline: &Baseline,
        summary: &Summary,
        config: &Config,
        operation: &str,
    ) -> Option<Self> {
        let compared = each(
            baseline,
            summary,
            config,
            operation,
            |kept, cell, figure| {
                let (old, _) = kept.figure(operation)?;
                let shift_of_fastest = fastest(cell.op, figure) - kept.fastest(operation)?;
                Some((old, figure.estimate - old, shift_of_fastest))
            },
        );
        Self::of_shifts(&compared)
    }

    /// Returns the same of figures with what is excluded.
    pub fn of_raw(
        baseline: &Baseline,
        summary: &Summary,
        config: &Config,
        operation: &str,
    ) -> Option<Self> {
        let compared = each(baseline, summary, config, operation, |kept, _, figure| {
            let old = *kept.raw.get(operation)?;
            let shift = figure.raw? - old;
            Some((old, shift, shift))
        });
        Self::of_shifts(&compared)
    }

    /// Takes old figures, their shifts, and those of the fastest batches.
    fn of_shifts(compared: &[(f64, f64, f64)]) -> Option<Self> {
        let old: Vec<f64> = compared.iter().map(|(old, ..)| *old).collect();
        let shifts: Vec<f64> = compared.iter().map(|(_, shift, _)| *shift).collect();
        let of_fastest: Vec<f64> = compared.iter().map(|(.., shift)| *shift).collect();
        Some(Self {
            old: Layouts::of(&old)?,
            is_common: is_same_shift(&shifts) || is_same_shift(&of_fastest),
        })
    }

    /// Returns whether a new figure is one that the code of the baseline may have in another layout: not farther from the
    /// old figures than these are from each other, unless all layouts changed alike.
    pub fn allows(self, new: f64) -> bool {
        let Layouts { min, max, .. } = self.old;
        let spread = max - min;
        !self.is_common && (min - spread..=max + spread).contains(&new)
    }
}

/// Returns what `compare` returns for each layout of a configuration with an old and a new figure of an operation.
fn each<T>(
    baseline: &Baseline,
    summary: &Summary,
    config: &Config,
    operation: &str,
    compare: impl Fn(&EnvironmentBaseline, &Cell, &Figure) -> Option<T>,
) -> Vec<T> {
    let (default, _) = config.without_layout();
    let is_it =
        |cell: &&Cell| cell.config.without_layout().0 == default && cell.op.path() == operation;
    let cells = summary.cells.iter().filter(is_it);
    let compared = cells.filter_map(|cell| {
        let kept = baseline.environments.get(&cell.config.to_string())?;
        compare(kept, cell, cell.value.figure()?)
    });
    compared.collect()
}

/// Largest difference of equal shifts of means, in the unit of the figures.
const ROUNDING: f64 = 1e-6;

fn is_same_shift(shifts: &[f64]) -> bool {
    let Some(first) = shifts.first().filter(|first| first.abs() > ROUNDING) else {
        return false;
    };
    shifts.iter().all(|shift| (shift - first).abs() <= ROUNDING)
}
