//! From observations to the boots that are compared.

use super::BootValues;
use crate::value::Calibration;
use trapline_abi::Op;
use trapline_plan::{Observation, Outcome};

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
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use trapline_plan::{EnvironmentId, Operation, Sample};

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
        assert_eq!(none.median(), None);
        let summary = crate::summarise(&seen[..2], 1);
        let figure = summary.cells[0].value.figure();
        assert_eq!(figure.map(|figure| figure.estimate), first.median());
    }
}
