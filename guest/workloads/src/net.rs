//! Latency and throughput of a network.
//!
//! A peer answers pings and receives and sends streams over one link, see [`trapline_abi::net`]. Each sample is
//! one exchange, whose content both sides check within the measured time.

use crate::measure::Bench;
use crate::system::{Reason, System};
use trapline_abi::net::{Exchange, BYTES};
use trapline_abi::Op;

/// Exchanges before the first sample, which grow windows and warm up code and caches.
const WARM_UP: u32 = 8;

/// Pings per batch of the job: a ping is short, and its percentiles need many.
const PINGS: u32 = 16;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for (exchange, op) in Exchange::ALL {
        if !bench.job.selects(op) {
            continue;
        }
        match bench.system.open_network(bench.job) {
            Ok(()) => measure(bench, exchange, op),
            Err(reason) => bench.skip(op, reason),
        }
    }
}

fn measure<S: System>(bench: &mut Bench<'_, S>, exchange: Exchange, op: Op) {
    let (samples, count) = match exchange.is_ping() {
        true => (bench.job.batches.saturating_mul(PINGS), 1),
        false => (bench.job.batches, BYTES as u64),
    };
    let mut exchanged = (0..WARM_UP).try_for_each(|_| bench.system.exchange(exchange));
    bench.begin(op, 0);
    for _ in 0..samples {
        if exchanged.is_err() {
            break;
        }
        exchanged = bench.timed(op, |system| counted(count, system.exchange(exchange)));
    }
    match exchanged {
        Ok(()) => bench.end(op, samples, u64::from(op.number())),
        Err(reason) => bench.fail(op, reason),
    }
}

/// Returns a failed exchange as one without a sample.
fn counted(count: u64, exchanged: Result<(), Reason>) -> (u64, Result<(), Reason>) {
    (if exchanged.is_ok() { count } else { 0 }, exchanged)
}
