//! From observations to the boots that are compared.

use super::BootValues;
use crate::spread::Sorted;
use crate::value::Calibration;
use trapline_abi::{Op, Unit};
use trapline_model::{Observation, Outcome, Sample};

/// The boots of one contender that measured `op`, in the order given. A boot that did not, or
/// of which a batch is no measurement, is left out; the cell of a summary says why.
pub fn boots_of<'a>(
    observations: impl IntoIterator<Item = &'a Observation>,
    op: Op,
) -> Vec<BootValues> {
    let seen = observations.into_iter();
    seen.flat_map(|seen| {
        let of_op = seen.operations.iter().filter(move |told| told.op == op);
        of_op.filter_map(move |told| boot(seen, op, &told.outcome))
    })
    .collect()
}

fn boot(seen: &Observation, op: Op, outcome: &Outcome) -> Option<BootValues> {
    let calibration = Calibration::of(op, outcome, seen.unit_per_tick)?;
    let samples = outcome.batches();
    let values = samples
        .iter()
        .map(|batch| calibration.value(op.unit(), batch));
    Some(BootValues {
        block: seen.replicate,
        batches: values.collect::<Option<Vec<f64>>>()?,
        mean: calibration.mean(op.unit(), &samples),
    })
}

/// By how much the value of a batch changes with one tick of the clock: the median over the
/// batches of `op`, 0 where there is none. For [`crate::modes::modes`].
pub fn clock_step<'a>(observations: impl IntoIterator<Item = &'a Observation>, op: Op) -> f64 {
    let mut steps = Vec::new();
    for seen in observations {
        for told in seen.operations.iter().filter(|told| told.op == op) {
            let batches = told.outcome.batches();
            let of_batch = |batch: &Sample| step(op.unit(), batch, seen.unit_per_tick);
            steps.extend(batches.iter().map(of_batch));
        }
    }
    Sorted::new(steps).map_or(0.0, |sorted| sorted.median())
}

fn step(unit: Unit, batch: &Sample, unit_per_tick: f64) -> f64 {
    let count = batch.count.max(1) as f64;
    match unit {
        Unit::Time => unit_per_tick / count,
        // A rate is so much less if as much takes one tick longer.
        Unit::Rate => {
            let ticks = batch.end.saturating_sub(batch.start).max(1) as f64;
            count / (ticks * ticks * unit_per_tick) * 1000.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use trapline_model::{EnvironmentId, Operation};

    fn boot(replicate: u32, op: Op, lengths: &[u64]) -> Observation {
        let sample = |length: &u64| Sample {
            start: 100,
            end: 100 + length,
            count: 100,
            host_ns: None,
        };
        let outcome = Outcome::Measured {
            clock_cost: 40,
            loop_cost: 0,
            samples: lengths.iter().map(sample).collect(),
            interrupts: Vec::new(),
            check: 1,
            exits: None,
            host_cpu_ns: None,
            elapsed: None,
        };
        Observation {
            environment: EnvironmentId::Host,
            variant: Default::default(),
            clock: EnvironmentId::Host.clock(),
            replicate,
            unit_per_tick: 0.5,
            operations: vec![Operation { op, outcome }],
            launches: vec![],
            facts: BTreeMap::new(),
            log: String::new(),
            problems: vec![],
        }
    }

    #[test]
    fn values_are_those_of_the_cell_in_order_of_time() {
        let seen = [
            boot(0, Op::Cpuid, &[20_040, 10_040, 30_040]),
            boot(1, Op::Cpuid, &[20_040]),
            boot(2, Op::PortOut, &[20_040]),
            boot(3, Op::Cpuid, &[]),
        ];
        let boots = boots_of(&seen, Op::Cpuid);
        let [first, second, none] = &boots[..] else {
            panic!("{boots:?}");
        };
        assert_eq!(first.batches, [100.0, 50.0, 150.0]);
        assert_eq!((second.block, second.median()), (1, Some(100.0)));
        assert_eq!((none.median(), none.mean), (None, None));
        let summary = crate::summarise(&seen[..2]);
        let figure = summary.cells[0].value.figure();
        assert_eq!(figure.map(|figure| figure.estimate), first.median());
        assert_eq!(
            clock_step(&seen, Op::Cpuid),
            0.005,
            "half a nanosecond of 100"
        );
        assert_eq!(clock_step(&seen, Op::Getpid), 0.0);
    }

    #[test]
    fn the_figure_of_a_boot_is_that_of_the_cell_on_either_clock() {
        for environment in [EnvironmentId::Host, EnvironmentId::SimKvm] {
            let mut seen = boot(0, Op::Cpuid, &[10_040, 10_040, 40_040]);
            seen.environment = environment;
            let clock = environment.clock();
            let figure = boots_of([&seen], Op::Cpuid)[0].figure(clock);
            let summary = crate::summarise(&[seen]);
            let estimate = summary.cells[0].value.figure().map(|it| it.estimate);
            assert_eq!(figure, estimate, "{environment}");
            let expected = if clock.is_exact() { 100.0 } else { 50.0 };
            assert_eq!(estimate, Some(expected), "{environment}");
        }
    }

    /// 100 bytes in 1,000 ticks of half a nanosecond, or in 1,001.
    #[test]
    fn the_step_of_a_rate_is_what_one_tick_more_takes_off() {
        let seen = [boot(0, Op::Copy, &[1_000])];
        let rate = |ticks: f64| 100.0 / (ticks * 0.5) * 1000.0;
        let expected = rate(1000.0) - rate(1001.0);
        assert!((clock_step(&seen, Op::Copy) / expected - 1.0).abs() < 0.01);
    }
}
