//! Observations -> values of boots.

use super::BootValues;
use crate::outcomes;
use crate::sorted::Sorted;
use crate::value::Calibration;
use trapline_abi::Unit;
use trapline_model::{Observation, Operation, Outcome, Sample};

/// Returns the values of the boots that measured `op`, in the order given. Boots with an invalid batch
/// are left out; the cell of a summary states the reason.
pub fn boot_values<'a>(
    observations: impl IntoIterator<Item = &'a Observation>,
    op: impl Into<Operation>,
) -> Vec<BootValues> {
    let op = op.into();
    outcomes(observations, op)
        .filter_map(|(boot, outcome)| values(boot, op, outcome))
        .collect()
}

fn values(boot: &Observation, op: Operation, outcome: &Outcome) -> Option<BootValues> {
    let calibration = Calibration::of(op, outcome, boot.unit_per_tick)?;
    let samples = outcome.batches();
    let values = samples
        .iter()
        .map(|batch| calibration.value(op.unit(), batch));
    Some(BootValues {
        block: boot.replicate,
        batches: values.collect::<Option<Vec<f64>>>()?,
        mean: calibration.mean(op.unit(), &samples),
    })
}

/// Returns the difference that one tick of the clock makes to the value of a batch: the median over the
/// batches of `op`, 0 without a batch. For [`crate::modes::modes`].
pub fn clock_step<'a>(
    observations: impl IntoIterator<Item = &'a Observation>,
    op: impl Into<Operation>,
) -> f64 {
    let op = op.into();
    let mut steps = Vec::new();
    for (boot, outcome) in outcomes(observations, op) {
        let of_batch = |batch: &Sample| step(op.unit(), batch, boot.unit_per_tick);
        steps.extend(outcome.batches().iter().map(of_batch));
    }
    Sorted::new(steps).map_or(0.0, |sorted| sorted.median())
}

fn step(unit: Unit, batch: &Sample, unit_per_tick: f64) -> f64 {
    let count = batch.count.max(1) as f64;
    match unit {
        Unit::Time => unit_per_tick / count,
        // The derivative of the rate by the number of ticks.
        Unit::Rate => {
            let ticks = batch.ticks().max(1) as f64;
            count / (ticks * ticks * unit_per_tick) * 1000.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;
    use trapline_model::testing::{batches, measured};
    use trapline_model::EnvironmentId;

    /// Returns a boot with batches of 100 operations, a clock that costs 40 ticks, and two ticks to a
    /// nanosecond.
    fn boot(environment: EnvironmentId, replicate: u32, op: Op, ticks: &[u64]) -> Observation {
        let mut outcome = measured(batches(ticks, 100));
        if let Outcome::Measured { clock_cost, .. } = &mut outcome {
            *clock_cost = 40;
        }
        let boot = trapline_model::testing::boot(environment, replicate, [(op, outcome)]);
        Observation {
            unit_per_tick: 0.5,
            ..boot
        }
    }

    #[test]
    fn values_are_those_of_the_cell_in_order_of_time() {
        let host = |replicate, op, ticks: &[u64]| boot(EnvironmentId::HOST, replicate, op, ticks);
        let observations = [
            host(0, Op::Cpuid, &[20_040, 10_040, 30_040]),
            host(1, Op::Cpuid, &[20_040]),
            host(2, Op::PortOut, &[20_040]),
            host(3, Op::Cpuid, &[]),
        ];
        let boots = boot_values(&observations, Op::Cpuid);
        let [first, second, none] = &boots[..] else {
            panic!("{boots:?}");
        };
        assert_eq!(first.batches, [100.0, 50.0, 150.0]);
        assert_eq!((second.block, second.median()), (1, Some(100.0)));
        assert_eq!((none.median(), none.mean), (None, None));
        let summary = crate::summarise(&observations[..2]);
        let figure = summary.cells[0].value.figure();
        assert_eq!(figure.map(|figure| figure.estimate), first.median());
        let step = clock_step(&observations, Op::Cpuid);
        assert_eq!(step, 0.005, "half a nanosecond in 100 operations");
        assert_eq!(clock_step(&observations, Op::Getpid), 0.0);
    }

    #[test]
    fn a_boots_figure_is_that_of_the_cell_on_either_clock() {
        for (environment, expected) in
            [(EnvironmentId::HOST, 50.0), (EnvironmentId::SIM_KVM, 100.0)]
        {
            let boot = boot(environment, 0, Op::Cpuid, &[10_040, 10_040, 40_040]);
            let figure = boot_values([&boot], Op::Cpuid)[0].figure(environment.clock());
            let summary = crate::summarise(&[boot]);
            let estimate = summary.cells[0].value.figure().map(|it| it.estimate);
            assert_eq!((figure, estimate), (Some(expected), figure));
        }
    }

    /// 100 bytes in 1,000 ticks of half a nanosecond, or in 1,001.
    #[test]
    fn the_step_of_a_rate_is_its_loss_by_one_tick() {
        let boots = [boot(EnvironmentId::HOST, 0, Op::Copy, &[1_000])];
        let rate = |ticks: f64| 100.0 / (ticks * 0.5) * 1000.0;
        let expected = rate(1000.0) - rate(1001.0);
        assert!((clock_step(&boots, Op::Copy) / expected - 1.0).abs() < 0.01);
    }
}
