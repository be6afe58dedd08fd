//! Cells for the tests of this crate.

use trapline_model::{Config, Operation};
use trapline_stats::order::Interval;
use trapline_stats::{value, Cell, Figure, Ratio, Value};

/// Returns a reproduced figure of two boots whose batches are all equal.
pub fn figure(estimate: f64) -> Figure {
    Figure {
        estimate,
        interval: None,
        raw: None,
        layouts: None,
        min: estimate,
        max: estimate,
        p50: estimate,
        p90: None,
        p99: None,
        samples: 24,
        boots: 2,
        hosts: 1,
        medians: Vec::new(),
        ratio: None,
        exits: None,
        host_cpu_ns: None,
        idle: None,
        components: None,
        flags: Vec::new(),
    }
}

/// Returns a figure of five boots with an interval.
pub fn figure_between(low: f64, estimate: f64, high: f64) -> Figure {
    Figure {
        interval: Some(Interval {
            level: 0.9375,
            low,
            high,
        }),
        boots: 5,
        hosts: 1,
        medians: (0..)
            .zip([
                low,
                (low + estimate) / 2.0,
                estimate,
                (estimate + high) / 2.0,
                high,
            ])
            .collect(),
        ..figure(estimate)
    }
}

/// Returns a figure with a ratio to the bare row.
pub fn figure_with_ratio(estimate: f64, ratio: f64) -> Figure {
    Figure {
        ratio: Some(Ratio {
            estimate: ratio,
            interval: None,
        }),
        ..figure(estimate)
    }
}

/// Returns the cell of a value.
pub fn cell(config: impl Into<Config>, op: impl Into<Operation>, value: Value) -> Cell {
    let (config, op) = (config.into(), op.into());
    let clock = config.clock();
    Cell {
        config,
        op,
        clock,
        unit: value::unit(op, clock),
        value,
    }
}

/// Returns the cell of a figure.
pub fn measured(config: impl Into<Config>, op: impl Into<Operation>, figure: Figure) -> Cell {
    cell(config, op, Value::Measured(Box::new(figure)))
}
