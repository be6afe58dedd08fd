//! Latency and throughput of a network.
//!
//! A peer answers pings and receives and sends streams and datagrams over one link, see [`trapline_abi::net`]. Each sample is
//! one exchange, whose content both sides check within the measured time. Numbered frames go to another guest on a switch, see
//! [`trapline_abi::packet`].

use crate::measure::Bench;
use crate::system::{Reason, System};
use trapline_abi::net::{Exchange, BYTES};
use trapline_abi::packet::Frames;
use trapline_abi::{packet, Op};

/// Exchanges before the first sample, which grow windows and warm up code and caches.
const WARM_UP: u32 = 8;

/// Bursts of packets or datagrams between the alignment to an interrupt and the first sample. The sender spins for that alignment, so that on
/// one CPU the kernel's scheduler prefers receiver and switch until all have run for as long.
const SETTLING: u32 = 16;

/// Pings per batch of the job: a ping is short, and its percentiles need many.
const PINGS: u32 = 16;

#[inline(never)]
pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for (exchange, op) in Exchange::ALL {
        if !bench.job.selects(op) {
            continue;
        }
        let batches = bench.job.batches;
        let size = match exchange {
            Exchange::Ping(_) | Exchange::UdpPing => (0, batches.saturating_mul(PINGS), 1),
            Exchange::Send(_) | Exchange::Receive(_) | Exchange::SendFile => {
                (0, batches, BYTES as u64)
            }
            Exchange::Datagrams(_) => (SETTLING, batches, packet::BURST),
        };
        match bench.system.open_network(bench.job, exchange) {
            Ok(()) => measure(bench, op, size, |system| system.exchange(exchange)),
            Err(reason) => bench.skip(op, reason),
        }
    }
    for (op, frames) in packet::OPERATIONS {
        if !bench.job.selects(op) {
            continue;
        }
        let batches = bench.job.batches;
        let size = match frames {
            Frames::Burst(_) => (SETTLING, batches, packet::BURST),
            Frames::Ping => (SETTLING, batches.saturating_mul(PINGS), 1),
        };
        match bench.system.open_link() {
            Ok(()) => measure(bench, op, size, |system| system.send_packets(frames)),
            Err(reason) => bench.skip(op, reason),
        }
    }
}

/// Measures `exchange`: exchanges after the begin that are no samples, samples, and units of `op` in each.
fn measure<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    (settling, samples, count): (u32, u32, u64),
    exchange: impl Fn(&mut S) -> Result<(), Reason>,
) {
    let mut exchanged = (0..WARM_UP).try_for_each(|_| exchange(bench.system));
    bench.begin(op, 0);
    exchanged = exchanged.and_then(|()| (0..settling).try_for_each(|_| exchange(bench.system)));
    for _ in 0..samples {
        if exchanged.is_err() {
            break;
        }
        exchanged = bench.timed(op, |system| counted(count, exchange(system)));
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
