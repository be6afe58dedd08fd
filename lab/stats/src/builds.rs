//! Kernel builds: ratios to the same environment with one CPU of its own.

use crate::paired::{paired_ratio, PairedRatio};
use crate::verdict::boot_values;
use crate::{boots_of, Summary};
use std::collections::BTreeMap;
use trapline_model::kernel_build::Column;
use trapline_model::{Config, Observation, Operation};

/// Ratio of each configuration that builds kernels to [`Column::BASE`] of its environment, over the rounds that built both.
pub type OverBase = BTreeMap<(Config, Operation), PairedRatio>;

/// Relates the builds of `summary` that have a figure.
pub fn over_base(observations: &[Observation], summary: &Summary) -> OverBase {
    let rounds = |config: &Config, op| -> Vec<(u32, f64)> {
        let is_it = |cell: &&crate::Cell| (&cell.config, cell.op) == (config, op);
        let has_figure = summary
            .cells
            .iter()
            .find(is_it)
            .map(|cell| cell.value.figure());
        let Some(Some(_)) = has_figure else {
            return Vec::new();
        };
        let boots = boot_values(boots_of(observations, config), op);
        let figures = boots
            .iter()
            .filter_map(|boot| Some((boot.block, boot.figure(config.clock())?)));
        figures.collect()
    };
    let builds = summary.cells.iter();
    let builds = builds.filter(|cell| matches!(cell.op, Operation::Build(_)));
    let ratios = builds.filter_map(|cell| {
        let base = Column::BASE.config(cell.config.environment);
        let is_other = base != cell.config;
        let ratio =
            is_other.then(|| paired_ratio(&rounds(&cell.config, cell.op), &rounds(&base, cell.op)));
        Some(((cell.config.clone(), cell.op), ratio??))
    });
    ratios.collect()
}
