//! Requests to a disk: the latency of all of them, and how many were served a second.
//!
//! A rate is over the time in which any request was under way. What the guest does
//! between requests one at a time - it looks at what it has read - is no part of that, and
//! with many at a time somebody always waits.

use crate::order::{median_interval, Interval};
use crate::spread::Sorted;
use crate::Summary;
use trapline_abi::block::Transfer;
use trapline_abi::Op;
use trapline_model::{Clock, EnvironmentId, Observation, Sample};

/// What one operation of workload `block` gave in one environment. Times are in
/// nanoseconds or instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// Where.
    pub environment: EnvironmentId,
    /// Which operation.
    pub op: Op,
    /// By which clock.
    pub clock: Clock,
    /// Bytes of one request.
    pub bytes: u32,
    /// How many were under way at a time.
    pub depth: u32,
    /// Boots that these are of; on an exact clock, boots that agreed.
    pub boots: usize,
    /// Requests of all boots.
    pub count: usize,
    /// Mean latency.
    pub mean: f64,
    /// Half of all requests took no longer.
    pub p50: f64,
    /// 90% of all.
    pub p90: f64,
    /// 99% of all.
    pub p99: f64,
    /// 99.9% of all.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// Requests in a second, or in a thousand million instructions: the median over
    /// boots.
    pub rate: f64,
    /// The interval of the rate over boots, for two boots or more on the wall clock.
    pub rate_interval: Option<Interval>,
}

impl Requests {
    /// Millions of bytes in a second, or in a thousand million instructions.
    pub fn megabytes(&self) -> f64 {
        self.rate * f64::from(self.bytes) / 1e6
    }
}

/// What the requests of `observations` say, for each operation of `summary` that has a
/// figure.
pub fn summarise(observations: &[Observation], summary: &Summary) -> Vec<Requests> {
    let cells = summary.cells.iter();
    let measured = cells.filter_map(|cell| {
        let transfer = Transfer::of(cell.op)?;
        let figure = cell.value.figure()?;
        let boots = boots(observations, cell.environment, cell.op);
        of_boots(&boots, transfer, cell.environment, figure.boots)
    });
    let mut all: Vec<_> = measured.collect();
    all.sort_by_key(|requests| (requests.op, requests.environment));
    all
}

/// The requests of one boot.
struct Boot<'a> {
    unit_per_tick: f64,
    requests: &'a [Sample],
}

fn boots(observations: &[Observation], environment: EnvironmentId, op: Op) -> Vec<Boot<'_>> {
    let here = observations
        .iter()
        .filter(|seen| seen.environment == environment);
    here.flat_map(|seen| {
        let of_op = seen.operations.iter().filter(move |told| told.op == op);
        of_op.filter_map(|told| match &told.outcome {
            trapline_model::Outcome::Measured { samples, .. } => Some(Boot {
                unit_per_tick: seen.unit_per_tick,
                requests: samples,
            }),
            _ => None,
        })
    })
    .collect()
}

fn of_boots(
    boots: &[Boot<'_>],
    transfer: Transfer,
    environment: EnvironmentId,
    agreed: usize,
) -> Option<Requests> {
    let clock = environment.clock();
    // On an exact clock the other boots are only proof of the first.
    let counted = match clock.is_exact() {
        true => boots.get(..1)?,
        false => boots,
    };
    let latencies = counted.iter().flat_map(Boot::latencies).collect();
    let sorted = Sorted::new(latencies)?;
    let rates: Vec<f64> = counted.iter().filter_map(Boot::rate).collect();
    let rate_interval = match clock.is_exact() {
        true => None,
        false => median_interval(&rates),
    };
    Some(Requests {
        environment,
        op: transfer.op,
        clock,
        bytes: transfer.bytes,
        depth: transfer.depth,
        boots: agreed,
        count: sorted.count(),
        mean: sorted.iter().sum::<f64>() / sorted.count() as f64,
        p50: sorted.percentile(0.5),
        p90: sorted.percentile(0.9),
        p99: sorted.percentile(0.99),
        p999: sorted.percentile(0.999),
        max: sorted.max(),
        rate: Sorted::new(rates)?.median(),
        rate_interval,
    })
}

impl Boot<'_> {
    fn latencies(&self) -> impl Iterator<Item = f64> + '_ {
        let ticks = |request: &Sample| request.end.saturating_sub(request.start);
        let latency = move |request| ticks(request) as f64 * self.unit_per_tick;
        self.requests.iter().map(latency)
    }

    /// Requests in a thousand million units of its clock in which any was under way.
    fn rate(&self) -> Option<f64> {
        let busy = busy(self.requests) as f64 * self.unit_per_tick;
        (busy > 0.0).then(|| self.requests.len() as f64 / busy * 1e9)
    }
}

/// Ticks in which at least one of `requests` was under way. They stand in the order in
/// which they were made.
fn busy(requests: &[Sample]) -> u64 {
    let mut busy = 0;
    let mut until = 0;
    for request in requests {
        busy += request.end.saturating_sub(request.start.max(until));
        until = until.max(request.end);
    }
    busy
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use trapline_model::{Operation, Outcome};

    fn request(start: u64, end: u64) -> Sample {
        Sample {
            start,
            end,
            count: 1,
            host_ns: None,
        }
    }

    fn boot(replicate: u32, op: Op, samples: Vec<Sample>) -> Observation {
        Observation {
            environment: EnvironmentId::Host,
            variant: Default::default(),
            clock: Clock::Wall,
            replicate,
            unit_per_tick: 0.5,
            operations: vec![Operation {
                op,
                outcome: Outcome::Measured {
                    clock_cost: 20,
                    loop_cost: 0,
                    samples,
                    interrupts: Vec::new(),
                    check: 1,
                    exits: None,
                    host_cpu_ns: None,
                    elapsed: None,
                },
            }],
            launches: Vec::new(),
            facts: BTreeMap::new(),
            log: String::new(),
            problems: Vec::new(),
        }
    }

    fn summarised(boots: &[Observation]) -> Vec<Requests> {
        let summary = crate::summarise(boots);
        summarise(boots, &summary)
    }

    #[test]
    fn time_in_which_nothing_is_under_way_is_not_counted_and_none_is_counted_twice() {
        assert_eq!(busy(&[request(0, 10), request(20, 30)]), 20);
        assert_eq!(busy(&[request(0, 10), request(5, 7), request(6, 15)]), 15);
        assert_eq!(busy(&[]), 0);
    }

    #[test]
    fn latency_is_of_all_requests_and_a_rate_is_the_median_of_boots() {
        // 1,000 requests of 1,000 ns each, one of 9,000; then a boot twice as fast.
        let slow: Vec<_> = (0..1000_u64)
            .map(|n| request(n * 5000, n * 5000 + if n == 7 { 18_000 } else { 2000 }))
            .collect();
        let fast: Vec<_> = (0..1000_u64)
            .map(|n| request(n * 5000, n * 5000 + 1000))
            .collect();
        let boots = [boot(0, Op::Read4k1, slow), boot(1, Op::Read4k1, fast)];
        let all = summarised(&boots);
        let [one] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!((one.count, one.boots, one.bytes), (2000, 2, 4096));
        assert_eq!((one.p50, one.p90, one.p99), (500.0, 1000.0, 1000.0));
        assert_eq!((one.p999, one.max), (1000.0, 9000.0));
        let interval = one.rate_interval.unwrap();
        assert!((interval.level - 0.5).abs() < 1e-9, "two boots");
        assert_eq!(interval.high, 2e6);
        assert!(interval.low < 1.01e6, "{interval:?}");
        assert!(one.rate > 1.4e6 && one.rate < 1.5e6, "{}", one.rate);
        assert!((one.megabytes() - one.rate * 4096.0 / 1e6).abs() < 1e-9);
    }

    #[test]
    fn other_workloads_have_no_requests() {
        let none = [boot(0, Op::Getpid, vec![request(0, 100)])];
        assert_eq!(summarised(&none), []);
    }
}
