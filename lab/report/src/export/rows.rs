//! A row for each sample of a run, by configuration, host, replicate and time.

use std::borrow::Cow;
use trapline_model::observed::IdleWork;
use trapline_model::{Observation, Operation, OperationResult, Outcome, Sample};
use trapline_stats::value::Calibration;

/// An operation of a boot, with the properties common to its samples.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The number of the run.
    pub run: u64,
    /// The boot.
    pub seen: &'a Observation,
    /// Its settings, as on the command line.
    pub settings: String,
    /// The operation.
    pub op: Operation,
    /// Its name within its workload.
    pub name: String,
    /// Converts its samples to figures.
    pub calibration: Calibration,
    /// Ticks of an empty batch.
    pub clock_cost: u64,
    /// Checksum of the work, in hexadecimal.
    pub checksum: String,
    /// Exits during all of its samples, where something counts them.
    pub exits: Option<u64>,
    /// CPU time that the host spent on all of them, in nanoseconds, where it is known.
    pub host_cpu_ns: Option<u64>,
    /// Work of the guest between the batches of the operation.
    pub idle: Option<IdleWork>,
    batches: Cow<'a, [Sample]>,
}

/// A sample with its properties.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The operation and boot of the sample.
    pub part: &'a Part<'a>,
    /// Index among the samples of the operation.
    pub number: u64,
    /// The sample.
    pub sample: Sample,
}

/// Returns the measured operations of all boots of a run, by configuration, host and replicate: boots in simulated machines
/// run side by side, and are stored in the order in which they end.
pub fn parts(run: u64, observations: &[Observation]) -> Vec<Part<'_>> {
    let mut boots: Vec<&Observation> = observations.iter().collect();
    boots.sort_by_key(|seen| (&seen.config, &seen.host, seen.replicate));
    let all = boots
        .into_iter()
        .flat_map(|seen| seen.operations.iter().map(move |one| (seen, one)));
    all.filter_map(|(seen, operation)| part(run, seen, operation))
        .collect()
}

fn part<'a>(run: u64, seen: &'a Observation, operation: &'a OperationResult) -> Option<Part<'a>> {
    let OperationResult { op, outcome } = operation;
    let Outcome::Measured {
        clock_cost,
        check,
        exits,
        host_cpu_ns,
        idle,
        ..
    } = outcome
    else {
        return None;
    };
    Some(Part {
        run,
        seen,
        settings: seen.config.overrides.to_string(),
        op: *op,
        name: op.name(),
        calibration: Calibration::of(*op, outcome, seen.unit_per_tick)?,
        clock_cost: *clock_cost,
        checksum: format!("{check:#x}"),
        exits: *exits,
        host_cpu_ns: *host_cpu_ns,
        idle: *idle,
        batches: outcome.batches(),
    })
}

impl Part<'_> {
    /// Returns a row for each sample.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let numbered = (0..).zip(self.batches.iter());
        numbered.map(|(number, sample)| Row {
            part: self,
            number,
            sample: *sample,
        })
    }
}
