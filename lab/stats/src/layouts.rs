//! Figures over layouts of a simulated machine's memory.
//!
//! Equal digits of two boots show that the machine is deterministic, not that a figure belongs to the code: its last digits
//! may depend on where things lie in memory. Figures of the same configuration in several layouts show which digits do.

use crate::{Summary, Value};
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::{Config, Operation};

/// Figures of several layouts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layouts {
    /// Number of layouts with a figure, at least two.
    pub count: usize,
    /// The least of them.
    pub min: f64,
    /// The largest of them.
    pub max: f64,
}

impl Layouts {
    /// Returns those of figures; `None` for a single one.
    pub fn of(figures: &[f64]) -> Option<Self> {
        (figures.len() > 1).then(|| Self {
            count: figures.len(),
            min: figures.iter().copied().fold(f64::INFINITY, f64::min),
            max: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// Returns the summary in which a configuration in its default layout stands for all layouts in which it has figures. What
/// failed in a further layout stays beside it.
#[must_use]
pub fn folded(mut summary: Summary) -> Summary {
    let mut figures: BTreeMap<(Config, Operation), Vec<f64>> = BTreeMap::new();
    let mut defaults = BTreeSet::new();
    for cell in &summary.cells {
        if let Some(figure) = cell.value.figure() {
            let (config, layout) = cell.config.without_layout();
            let key = (config, cell.op);
            if layout == 0 {
                defaults.insert(key.clone());
            }
            figures.entry(key).or_default().push(figure.estimate);
        }
    }
    summary.cells.retain_mut(|cell| {
        let (config, layout) = cell.config.without_layout();
        if layout == 0 {
            if let Value::Measured(figure) = &mut cell.value {
                let all = figures.get(&(config, cell.op));
                figure.layouts = all.and_then(|all| Layouts::of(all));
            }
            return true;
        }
        let stands_for = match cell.value {
            Value::Measured(_) => defaults.contains(&(config, cell.op)),
            Value::Skip(_) => true,
            Value::Failed(_) => false,
        };
        !stands_for
    });
    let left: BTreeSet<&Config> = summary.cells.iter().map(|cell| &cell.config).collect();
    let stays = |config: &Config| left.contains(config) || config.without_layout().1 == 0;
    summary.facts.retain(|config, _| stays(config));
    summary.timelines.retain(|one| stays(&one.config));
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{summarise, FailureKind};
    use trapline_abi::Op;
    use trapline_model::testing::{batch, boot, measured};
    use trapline_model::{EnvironmentId, Observation, Outcome};

    /// Returns a boot in a layout with the ticks of a hundred operations.
    fn in_layout(layout: u32, ticks: u64) -> Observation {
        let outcome = measured(vec![batch(ticks, 100)]);
        let mut boot = boot(EnvironmentId::SIM_KVM, 0, vec![(Op::PortOut, outcome)]);
        boot.config = config(layout);
        boot
    }

    fn config(layout: u32) -> Config {
        format!("sim/kvm:layout={layout}").parse().unwrap()
    }

    #[test]
    fn the_default_layout_stands_for_all() {
        let boots = [
            in_layout(0, 326_400),
            in_layout(1, 326_500),
            in_layout(2, 326_300),
        ];
        let summary = folded(summarise(&boots));
        assert_eq!(summary.cells.len(), 1);
        let figure = summary.cells[0].value.figure().unwrap();
        let expected = Layouts {
            count: 3,
            min: 3263.0,
            max: 3265.0,
        };
        assert_eq!((figure.estimate, figure.layouts), (3264.0, Some(expected)));
        assert_eq!(summary.facts.len(), 1);
        let alone = folded(summarise(&boots[..1]));
        assert_eq!(alone.cells[0].value.figure().unwrap().layouts, None);
    }

    #[test]
    fn what_failed_in_a_layout_stays() {
        let mut broken = in_layout(1, 1);
        broken.operations[0].outcome = Outcome::Failed("it broke".to_owned());
        let summary = folded(summarise(&[in_layout(0, 326_400), broken]));
        let kinds: Vec<_> = summary.cells.iter().map(|cell| &cell.value).collect();
        assert!(matches!(kinds[0], Value::Measured(_)), "{kinds:?}");
        assert!(summary.has_failure(FailureKind::Broken));
        let alone = folded(summarise(&[in_layout(1, 326_400), in_layout(2, 326_400)]));
        assert_eq!(alone.cells.len(), 2);
    }
}
