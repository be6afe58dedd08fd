//! Builders of observations for the tests of all crates.

use crate::{Config, Observation, OperationResult, Outcome, Sample};
use std::collections::BTreeMap;
use trapline_abi::Op;

/// Checksum of every outcome of [`measured`].
pub const CHECKSUM: u64 = 7;

/// Returns a batch from tick 0.
pub fn batch(ticks: u64, count: u64) -> Sample {
    Sample {
        start: 0,
        end: ticks,
        count,
        host_ns: None,
        excluded: 0,
    }
}

/// Returns a batch of `count` repetitions for each number of ticks.
pub fn batches(ticks: &[u64], count: u64) -> Vec<Sample> {
    ticks.iter().map(|ticks| batch(*ticks, count)).collect()
}

/// Returns a measurement whose clock and loop cost nothing.
pub fn measured(samples: Vec<Sample>) -> Outcome {
    Outcome::Measured {
        clock_cost: 0,
        loop_cost: 0,
        samples,
        interrupts: Vec::new(),
        trials: Vec::new(),
        check: CHECKSUM,
        exits: None,
        host_cpu_ns: None,
        idle: None,
        elapsed: None,
    }
}

/// Returns a boot whose clock counts units.
pub fn boot(
    config: impl Into<Config>,
    replicate: u32,
    operations: impl IntoIterator<Item = (Op, Outcome)>,
) -> Observation {
    let (config, operations) = (config.into(), operations.into_iter());
    Observation {
        clock: config.clock(),
        config,
        replicate,
        unit_per_tick: 1.0,
        operations: operations
            .map(|(op, outcome)| OperationResult::new(op, outcome))
            .collect(),
        launches: Vec::new(),
        facts: BTreeMap::new(),
        log: String::new(),
        problems: Vec::new(),
        host: String::new(),
    }
}
