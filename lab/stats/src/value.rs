//! Raw batches -> values in the unit of their operation.

use std::fmt;
use trapline_abi::{Measure, Op, Unit, Workload};
use trapline_model::{Clock, Operation, Outcome, Sample};

/// Iterations of the empty loop in `loop_cost` ([`trapline_abi::Record::Begin`]).
const LOOP_TURNS: f64 = 1024.0;

/// Calibration of a boot's operation.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// Nanoseconds or instructions per tick.
    pub unit_per_tick: f64,
    /// Ticks of an empty batch; 0 for a lateness ([`Op::is_lateness`]), from which nothing is subtracted.
    pub clock_cost: u64,
    /// Ticks of 1,024 iterations of the empty loop.
    pub loop_cost: u64,
    /// Least count of a valid batch: a rate of packets may be 0.
    pub least_count: u64,
}

impl Calibration {
    /// Returns the calibration of a measured outcome of `op`.
    pub fn of(op: impl Into<Operation>, outcome: &Outcome, unit_per_tick: f64) -> Option<Self> {
        let Outcome::Measured {
            clock_cost,
            loop_cost,
            ..
        } = outcome
        else {
            return None;
        };
        let op = op.into();
        Some(Self {
            unit_per_tick,
            clock_cost: if op.is_lateness() { 0 } else { *clock_cost },
            loop_cost: *loop_cost,
            least_count: match op {
                Operation::Packets(_) => 0,
                Operation::Guest(_) | Operation::Build(_) => 1,
            },
        })
    }

    /// Returns the value of one batch: nanoseconds or instructions per operation, for a rate megabytes per
    /// second or per thousand million instructions. `None` for an invalid batch: too small a count, or a rate
    /// without time.
    pub fn value(&self, unit: Unit, sample: &Sample) -> Option<f64> {
        self.mean(unit, std::slice::from_ref(sample))
    }

    /// Returns the mean over batches, weighted by their counts: their time less the calibration, divided by
    /// their operations; for a rate their bytes divided by their time. In the unit of [`Self::value`];
    /// `None` without batches or if one is invalid.
    pub fn mean(&self, unit: Unit, samples: &[Sample]) -> Option<f64> {
        let is_invalid = |batch: &Sample| batch.count < self.least_count || batch.end < batch.start;
        if samples.iter().any(is_invalid) {
            return None;
        }
        // Sums of integers below 2^53 are exact.
        let sum =
            |of: fn(&Sample) -> u64| samples.iter().map(|batch| of(batch) as f64).sum::<f64>();
        let count = sum(|batch| batch.count);
        let ticks = sum(Sample::ticks);
        let ticks = ticks - self.clock_cost as f64 * samples.len() as f64;
        match unit {
            Unit::Time => {
                let each = ticks / count - self.loop_cost as f64 / LOOP_TURNS;
                Some(each * self.unit_per_tick)
            }
            // Bytes per nanosecond are thousands of megabytes per second.
            Unit::Rate => (ticks > 0.0).then(|| count / (ticks * self.unit_per_tick) * 1000.0),
        }
        .filter(|value| value.is_finite())
    }

    /// Returns the resolution of a batch: the share of the loop or of the clock read in one operation,
    /// whichever is larger. The CPU overlaps loop and operation, so subtracting the loop has an error of up
    /// to its own size.
    pub fn resolution(&self, sample: &Sample) -> f64 {
        let of_loop = self.loop_cost as f64 / LOOP_TURNS;
        let of_clock = self.clock_cost as f64 / (sample.count.max(1)) as f64;
        of_loop.max(of_clock) * self.unit_per_tick
    }
}

/// Returns the unit of an operation's figures: `ns` or `insn` per operation, megabytes (a million bytes)
/// per second or per thousand million instructions, or a million packets per second.
pub fn unit(op: impl Into<Operation>, clock: Clock) -> &'static str {
    let op = op.into();
    match (op.unit(), clock) {
        (Unit::Rate, _) if matches!(op, Operation::Packets(_)) => "Mpps",
        (Unit::Time, Clock::Wall) => "ns",
        (Unit::Time, _) => "insn",
        (Unit::Rate, Clock::Wall) => "MB/s",
        (Unit::Rate, _) => "MB/Ginsn",
    }
}

/// Returns the number of operations (for a rate: megabytes) by which a boot's exits and CPU time are divided.
pub fn operations(op: impl Into<Operation>, samples: &[Sample]) -> f64 {
    let count: f64 = samples.iter().map(|sample| sample.count as f64).sum();
    match op.into().unit() {
        Unit::Time => count,
        Unit::Rate => count / 1e6,
    }
}

/// Returns the share of the time from the first batch to the last that the batches took; the rest went into
/// sending records. 1 if samples are not whole batches: those of a timer are only the lateness, and
/// requests to a disk overlap.
pub fn share_of_batches(op: impl Into<Operation>, samples: &[Sample]) -> f64 {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return 1.0;
    };
    let length = |from: u64, to: u64| to.saturating_sub(from) as f64;
    let inside: f64 = samples
        .iter()
        .map(|batch| length(batch.start, batch.end))
        .sum();
    let all = length(first.start, last.end);
    let is_whole = !op.into().is_lateness() && all > 0.0;
    if is_whole {
        (inside / all).min(1.0)
    } else {
        1.0
    }
}

/// Amount of work of an operation if it depends on the size of the machine. Checksums are comparable only
/// for equal work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// Work that does not depend on the size.
    Unsized,
    /// Pages touched in a batch.
    Pages(u64),
    /// Blocks of 1 MiB allocated in a batch.
    Blocks(u64),
    /// Doubles in each array.
    Doubles(u64),
}

impl Work {
    /// Returns the work of an operation with this outcome.
    pub fn of(op: impl Into<Operation>, outcome: &Outcome) -> Self {
        let (op, batches) = (op.into(), outcome.batches());
        let batch = batches.first().map_or(0, |sample| sample.count);
        match op {
            Operation::Build(_) | Operation::Packets(_) => Self::Unsized,
            Operation::Guest(Op::FirstTouch4k) => Self::Pages(batch),
            Operation::Guest(Op::Malloc1m) => Self::Blocks(batch),
            op if op.is_of(Workload::Net) => Self::Unsized,
            op => match op.measure() {
                Measure::Bytes(each) => Self::Doubles(batch / each),
                Measure::Batch | Measure::Lateness => Self::Unsized,
            },
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsized => f.write_str("the same work"),
            Self::Pages(count) => write!(f, "{count} pages"),
            Self::Blocks(count) => write!(f, "{count} blocks"),
            Self::Doubles(count) => write!(f, "{count} doubles"),
        }
    }
}

/// Returns true if `op` has a checksum of its work. A boot has none, and the program that sends packets checks each of them.
pub fn is_checked(op: Operation) -> bool {
    !op.is_of(Workload::Boot) && !matches!(op, Operation::Packets(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::testing::{batch, measured};

    const SAMPLE: Sample = Sample {
        start: 1_000,
        end: 13_040,
        count: 100,
        host_ns: None,
        excluded: 0,
    };

    #[test]
    fn time_between_batches_does_not_count() {
        let batch = |start, end| Sample {
            start,
            end,
            ..SAMPLE
        };
        let batches = [batch(100, 200), batch(400, 500)];
        assert_eq!(share_of_batches(Op::PortOut, &batches), 0.5);
        assert_eq!(share_of_batches(Op::PortOut, &batches[..1]), 1.0);
        assert_eq!(share_of_batches(Op::TimerWake, &batches), 1.0);
        assert_eq!(share_of_batches(Op::OwnTimer, &batches), 1.0);
        assert_eq!(share_of_batches(Op::PortOut, &[]), 1.0);
    }

    #[test]
    fn clock_and_loop_are_subtracted_from_a_time() {
        let calibration = Calibration {
            unit_per_tick: 0.5,
            clock_cost: 40,
            loop_cost: 20_480,
            least_count: 1,
        };
        // (12,040 - 40) / 100 - 20 = 100 ticks of half a nanosecond.
        assert_eq!(calibration.value(Unit::Time, &SAMPLE), Some(50.0));
        assert_eq!(calibration.resolution(&SAMPLE), 10.0);
    }

    #[test]
    fn the_clock_is_not_subtracted_from_a_lateness() {
        let mut measured = measured(Vec::new());
        if let Outcome::Measured { clock_cost, .. } = &mut measured {
            *clock_cost = 40;
        }
        let subtracted = |op| Calibration::of(op, &measured, 1.0).map(|c| c.clock_cost);
        assert_eq!(subtracted(Op::TimerWake), Some(0));
        assert_eq!(subtracted(Op::BootSample), Some(0));
        assert_eq!(subtracted(Op::PortOut), Some(40));
    }

    #[test]
    fn a_rate_is_in_megabytes() {
        let calibration = Calibration {
            unit_per_tick: 0.5,
            clock_cost: 40,
            loop_cost: 20_480,
            least_count: 1,
        };
        let sample = Sample {
            count: 60_000,
            ..SAMPLE
        };
        // 60,000 bytes in 6,000 ns: 10 bytes a nanosecond, 10,000 MB/s.
        assert_eq!(calibration.value(Unit::Rate, &sample), Some(10_000.0));
    }

    #[test]
    fn a_mean_is_weighted_by_operations_and_a_rate_by_time() {
        let calibration = Calibration {
            unit_per_tick: 1.0,
            clock_cost: 10,
            loop_cost: 2048,
            least_count: 1,
        };
        let batches = [batch(110, 10), batch(610, 30)];
        // (100 + 600) / 40 - 2, not the mean of 8 and 18.
        assert_eq!(calibration.mean(Unit::Time, &batches), Some(15.5));
        // 40 bytes in 700 ticks.
        let rate = calibration.mean(Unit::Rate, &batches).unwrap();
        assert_eq!(rate, 40.0 / 700.0 * 1000.0);
        assert_eq!(calibration.mean(Unit::Time, &[]), None);
        let broken = [batch(110, 10), batch(110, 0)];
        assert_eq!(calibration.mean(Unit::Time, &broken), None);
    }

    #[test]
    fn invalid_batches_have_no_value() {
        let calibration = Calibration {
            unit_per_tick: 1.0,
            clock_cost: 12_040,
            loop_cost: 0,
            least_count: 1,
        };
        let empty = Sample { count: 0, ..SAMPLE };
        let backwards = Sample { end: 0, ..SAMPLE };
        assert_eq!(calibration.value(Unit::Time, &empty), None);
        assert_eq!(calibration.value(Unit::Time, &backwards), None);
        assert_eq!(calibration.value(Unit::Rate, &SAMPLE), None);
        let rate = Calibration {
            clock_cost: 0,
            ..calibration
        };
        assert_eq!(rate.value(Unit::Rate, &empty), None);
        let of_packets = Calibration {
            least_count: 0,
            ..rate
        };
        assert_eq!(of_packets.value(Unit::Rate, &empty), Some(0.0));
        assert_eq!(calibration.value(Unit::Time, &SAMPLE), Some(0.0));
    }

    #[test]
    fn work_is_counted_by_the_samples() {
        let samples = measured(vec![SAMPLE, SAMPLE]);
        assert_eq!(Work::of(Op::FirstTouch4k, &samples), Work::Pages(100));
        assert_eq!(Work::of(Op::Malloc1m, &samples), Work::Blocks(100));
        assert_eq!(Work::of(Op::Add, &samples), Work::Doubles(4));
        assert_eq!(Work::of(Op::Cpuid, &samples), Work::Unsized);
    }
}
