//! Time limits of boots: many times what they usually take.

use std::time::Duration;
use trapline_abi::job::WaitMode;
use trapline_abi::net::Exchange;
use trapline_abi::packet::{Frames, BURST, OPERATIONS};
use trapline_abi::{block, Job, Op};
use trapline_model::kernel_build::Size;
use trapline_model::{irq, populate, Operation, PlannedBoot};

/// Limit for one run of a simulated machine.
pub const EXACT: Duration = Duration::from_secs(600);

/// Limit for a boot on the wall clock.
const WALL: Duration = Duration::from_secs(180);

/// Returns the default limit for `boot`.
pub fn default_timeout(boot: &PlannedBoot) -> Duration {
    let base = if boot.config.environment.clock().is_exact() {
        EXACT
    } else {
        WALL
    };
    let builds = boot.long.iter().filter_map(|operation| match operation {
        Operation::Build(size) => Some(build(*size)),
        Operation::Guest(_) | Operation::Packets(_) => None,
    });
    if let Some(longest) = builds.max() {
        return longest;
    }
    base + interrupts(boot) + memory(boot) + disk(boot) + large_file(boot) + streams(boot)
}

/// Returns the limit for a kernel build: many times what it takes on hardware, for environments that translate every
/// instruction.
fn build(size: Size) -> Duration {
    Duration::from_secs(match size {
        Size::Mini => 1_200,
        Size::Tiny => 2 * 3_600,
        Size::Def => 24 * 3_600,
    })
}

/// Limit for a disk: each operation fills it and reads it back at 10 MB/s, and its requests take 10 s.
fn disk(boot: &PlannedBoot) -> Duration {
    let operations = (boot.job.run & block::operations()).len() as u32;
    let all = Duration::from_secs(u64::from(boot.job.disk_mib) / 10 + 10);
    all * operations
}

/// Limit for a large file: each operation reads or writes it some ten times, at 100 MB/s, as do those who prepare it.
fn large_file(boot: &PlannedBoot) -> Duration {
    let operations = boot.job.run & (Op::ReadLarge | Op::WriteLarge);
    Duration::from_secs(u64::from(boot.job.file_mib) / 10) * operations.len() as u32
}

/// Limit for populating large regions.
fn memory(boot: &PlannedBoot) -> Duration {
    let large = (boot.job.run & populate::large()).len() as u32 * boot.job.large_regions;
    if boot.config.environment.clock().is_exact() {
        EXACT * large.min(8)
    } else {
        Duration::from_secs(20) * large
    }
}

/// Lower bound of the speed of a simulated machine, in instructions per second.
const INSN_PER_SECOND: u64 = 20_000_000;

/// Limit for streams of frames and datagrams on an exact clock.
fn streams(boot: &PlannedBoot) -> Duration {
    if boot.config.environment.clock().is_exact() {
        Duration::from_secs(frames(&boot.job) * INSN_PER_FRAME / INSN_PER_SECOND)
    } else {
        Duration::ZERO
    }
}

/// Upper bound of the instructions of a frame, between two Linux guests without a peer that polls.
const INSN_PER_FRAME: u64 = 100_000;

/// Bursts of a stream before its samples: warm-up and settling.
const UNMEASURED_BURSTS: u64 = 24;

/// Returns the number of frames and datagrams in a job's streams.
fn frames(job: &Job) -> u64 {
    let frames = OPERATIONS
        .into_iter()
        .filter_map(|(op, frames)| matches!(frames, Frames::Burst(_)).then_some(op));
    let datagrams = Exchange::ALL
        .into_iter()
        .filter_map(|(exchange, op)| matches!(exchange, Exchange::Datagrams(_)).then_some(op));
    let operations = frames.chain(datagrams);
    let selected = operations.filter(|op| job.selects(*op)).count() as u64;
    selected * BURST * (UNMEASURED_BURSTS + u64::from(job.batches))
}

/// Limit for interrupts. On the wall clock twice the time of their timers; on an exact clock a halted
/// guest takes no time, but a guest that is awake executes all of it.
fn interrupts(boot: &PlannedBoot) -> Duration {
    let job = &boot.job;
    let timers = (job.run & irq::operations()).len() as u64;
    let expiries = timers * u64::from(job.expiries);
    let all = expiries.saturating_mul(job.period);
    let idle = job.wait_mode == WaitMode::Halt && boot.conditions.loads.is_none();
    match (boot.config.environment.clock().is_exact(), idle) {
        (false, _) => Duration::from_nanos(all.saturating_mul(2)),
        (true, true) => Duration::from_millis(expiries.saturating_mul(5)),
        (true, _) => Duration::from_secs(all / INSN_PER_SECOND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::OpSet;

    #[test]
    fn streams_are_counted_in_frames() {
        let job = |ops: &[Op]| Job {
            run: OpSet::of(ops),
            batches: 12,
            ..Job::EMPTY
        };
        assert_eq!(frames(&job(&[Op::PacketPing, Op::UdpPing])), 0);
        let streams = [Op::Udp64, Op::Udp1472, Op::Packet64, Op::Packet1500];
        assert_eq!(frames(&job(&streams[..1])), 36 * 1024);
        assert_eq!(frames(&job(&streams)), 4 * 36 * 1024);
    }
}
