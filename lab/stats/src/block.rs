//! Requests to a disk: latency and rate.
//!
//! The rate is over the time in which any request was in flight. At depth 1 the guest checks the data
//! between requests; that time does not count.

use crate::order::{median_interval, Interval};
use crate::paired::{paired_ratio, PairedRatio};
use crate::sorted::Sorted;
use crate::{boots_of, outcomes, Summary};
use trapline_abi::block::Transfer;
use trapline_abi::Op;
use trapline_model::{Clock, Config, Observation, Outcome, Sample};

/// Requests of one operation of workload `block` in one configuration. Times are in nanoseconds or
/// instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// The configuration.
    pub config: Config,
    /// The operation.
    pub op: Op,
    /// Clock of the figures.
    pub clock: Clock,
    /// Bytes of one request.
    pub bytes: u32,
    /// Number of requests in flight.
    pub depth: u32,
    /// Number of boots; on an exact clock, of boots that agreed.
    pub boots: usize,
    /// Number of requests of all boots.
    pub count: usize,
    /// Mean latency.
    pub mean: f64,
    /// Median latency.
    pub p50: f64,
    /// Interval of the median latency over boots, for two or more boots on the wall clock.
    pub p50_interval: Option<Interval>,
    /// 90th percentile; `None` for fewer requests than [`crate::least_count`].
    pub p90: Option<f64>,
    /// 99th percentile, likewise.
    pub p99: Option<f64>,
    /// 99.9th percentile, likewise.
    pub p999: Option<f64>,
    /// Largest latency.
    pub max: f64,
    /// Requests per second, or per thousand million instructions: the median over boots.
    pub rate: f64,
    /// Interval of the rate over boots, for two or more boots on the wall clock.
    pub rate_interval: Option<Interval>,
    /// Block and rate of each boot.
    pub rates: Vec<(u32, f64)>,
}

impl Requests {
    /// Returns the ratio of the rate to that of `base`: paired within blocks on the wall clock, exact on the other.
    pub fn rate_ratio(&self, base: &Self) -> Option<PairedRatio> {
        paired_ratio(&self.rates, &base.rates)
    }

    /// Returns megabytes per second, or per thousand million instructions.
    pub fn megabytes(&self) -> f64 {
        self.rate * f64::from(self.bytes) / 1e6
    }
}

/// Summarises the requests of each operation of `summary` that has a figure.
pub fn summarise(observations: &[Observation], summary: &Summary) -> Vec<Requests> {
    let cells = summary.cells.iter();
    let measured = cells.filter_map(|cell| {
        let op = cell.op.guest()?;
        let transfer = Transfer::from_op(op)?;
        let figure = cell.value.figure()?;
        let boots = boots(observations, &cell.config, op);
        of_boots(&boots, transfer, &cell.config, figure.boots)
    });
    let mut all: Vec<_> = measured.collect();
    all.sort_by(|a, b| (a.op, &a.config).cmp(&(b.op, &b.config)));
    all
}

/// The requests of one boot.
struct Boot<'a> {
    replicate: u32,
    unit_per_tick: f64,
    requests: &'a [Sample],
}

fn boots<'a>(observations: &'a [Observation], config: &'a Config, op: Op) -> Vec<Boot<'a>> {
    let all = outcomes(boots_of(observations, config), op);
    all.filter_map(|(boot, outcome)| match outcome {
        Outcome::Measured { samples, .. } => Some(Boot {
            replicate: boot.replicate,
            unit_per_tick: boot.unit_per_tick,
            requests: samples,
        }),
        _ => None,
    })
    .collect()
}

fn of_boots(
    boots: &[Boot<'_>],
    transfer: Transfer,
    config: &Config,
    agreed: usize,
) -> Option<Requests> {
    let clock = config.clock();
    // On an exact clock the other boots only confirm the first.
    let counted = if clock.is_exact() {
        boots.get(..1)?
    } else {
        boots
    };
    let latencies = counted.iter().flat_map(Boot::latencies).collect();
    let sorted = Sorted::new(latencies)?;
    let rates = counted
        .iter()
        .filter_map(|boot| Some((boot.replicate, boot.rate()?)));
    let rates: Vec<(u32, f64)> = rates.collect();
    let values: Vec<f64> = rates.iter().map(|(_, rate)| *rate).collect();
    let medians = counted
        .iter()
        .filter_map(|boot| Some(Sorted::new(boot.latencies().collect())?.median()));
    let interval = |values: &[f64]| {
        if clock.is_exact() {
            None
        } else {
            median_interval(values)
        }
    };
    let (p50_interval, rate_interval) = (interval(&medians.collect::<Vec<_>>()), interval(&values));
    Some(Requests {
        config: config.clone(),
        op: transfer.op,
        clock,
        bytes: transfer.bytes,
        depth: transfer.depth,
        boots: agreed,
        count: sorted.count(),
        mean: sorted.mean(),
        p50: sorted.nearest_rank(50_000),
        p50_interval,
        p90: sorted.percentile(90_000),
        p99: sorted.percentile(99_000),
        p999: sorted.percentile(99_900),
        max: sorted.max(),
        rate: Sorted::new(values)?.median(),
        rate_interval,
        rates,
    })
}

impl Boot<'_> {
    fn latencies(&self) -> impl Iterator<Item = f64> + '_ {
        let ticks = |request: &Sample| request.end.saturating_sub(request.start);
        let latency = move |request| ticks(request) as f64 * self.unit_per_tick;
        self.requests.iter().map(latency)
    }

    /// Returns the number of requests per thousand million units of its clock in which any was in flight.
    fn rate(&self) -> Option<f64> {
        let busy = busy(self.requests) as f64 * self.unit_per_tick;
        (busy > 0.0).then(|| self.requests.len() as f64 / busy * 1e9)
    }
}

/// Returns the ticks in which at least one of `requests` was in flight. Requests are in order of their start.
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
    use trapline_model::testing::measured;
    use trapline_model::EnvironmentId;

    fn request(start: u64, end: u64) -> Sample {
        Sample {
            start,
            end,
            count: 1,
            host_ns: None,
            excluded: 0,
        }
    }

    fn boot(replicate: u32, op: Op, requests: Vec<Sample>) -> Observation {
        let outcomes = [(op, measured(requests))];
        Observation {
            unit_per_tick: 0.5,
            ..trapline_model::testing::boot(EnvironmentId::HOST, replicate, outcomes)
        }
    }

    fn summarised(boots: &[Observation]) -> Vec<Requests> {
        let summary = crate::summarise(boots);
        summarise(boots, &summary)
    }

    #[test]
    fn time_with_requests_in_flight_is_counted_once() {
        assert_eq!(busy(&[request(0, 10), request(20, 30)]), 20);
        assert_eq!(busy(&[request(0, 10), request(5, 7), request(6, 15)]), 15);
        assert_eq!(busy(&[]), 0);
    }

    #[test]
    fn latency_is_over_all_requests_and_the_rate_is_a_median_of_boots() {
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
        assert_eq!(
            (one.p50, one.p90, one.p99),
            (500.0, Some(1000.0), Some(1000.0))
        );
        assert_eq!((one.p999, one.max), (None, 9000.0), "of fewer than 3,688");
        let p50 = one.p50_interval.unwrap();
        assert_eq!((p50.low, p50.high), (500.0, 1000.0));
        let ratio = one.rate_ratio(one).unwrap();
        assert_eq!((ratio.estimate, ratio.rounds), (1.0, 2));
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
