//! Time limits of boots: many times what they usually take.

use std::time::Duration;
use trapline_abi::job::WaitMode;
use trapline_abi::{block, Op};
use trapline_model::{irq, populate, Clock, PlannedBoot};

/// Limit for one run of a simulated machine.
pub const EXACT: Duration = Duration::from_secs(600);

/// Limit for a boot on the wall clock.
const WALL: Duration = Duration::from_secs(180);

/// Returns the default limit for `boot`.
pub fn default_timeout(boot: &PlannedBoot) -> Duration {
    let base = match boot.environment.clock() {
        Clock::Wall => WALL,
        Clock::Insn | Clock::InsnVmx => EXACT,
    };
    base + interrupts(boot) + memory(boot) + disk(boot) + large_file(boot)
}

/// Limit for a disk: each operation fills it and reads it back at 10 MB/s, and its requests take 10 s.
fn disk(boot: &PlannedBoot) -> Duration {
    let operations = (boot.job.run & block::operations()).count_ones();
    let all = Duration::from_secs(u64::from(boot.job.disk_mib) / 10 + 10);
    all * operations
}

/// Limit for a large file: each operation reads or writes it some ten times, at 100 MB/s, as do those who prepare it.
fn large_file(boot: &PlannedBoot) -> Duration {
    let operations = boot.job.run & (Op::ReadLarge.bit() | Op::WriteLarge.bit());
    Duration::from_secs(u64::from(boot.job.file_mib) / 10) * operations.count_ones()
}

/// Limit for populating large regions.
fn memory(boot: &PlannedBoot) -> Duration {
    let large = (boot.job.run & populate::large()).count_ones() * boot.job.large_regions;
    match boot.environment.clock().is_exact() {
        true => EXACT * large.min(8),
        false => Duration::from_secs(20) * large,
    }
}

/// Lower bound of the speed of a simulated machine, in instructions per second.
const INSN_PER_SECOND: u64 = 20_000_000;

/// Limit for interrupts. On the wall clock twice the time of their timers; on an exact clock a halted
/// guest takes no time, but a guest that is awake executes all of it.
fn interrupts(boot: &PlannedBoot) -> Duration {
    let job = &boot.job;
    let timers = u64::from((job.run & irq::operations()).count_ones());
    let expiries = timers * u64::from(job.expiries);
    let all = expiries.saturating_mul(job.period);
    let idle = job.wait_mode == WaitMode::Halt && boot.conditions.loads.is_none();
    match (boot.environment.clock().is_exact(), idle) {
        (false, _) => Duration::from_nanos(all.saturating_mul(2)),
        (true, true) => Duration::from_millis(expiries.saturating_mul(5)),
        (true, _) => Duration::from_secs(all / INSN_PER_SECOND),
    }
}
