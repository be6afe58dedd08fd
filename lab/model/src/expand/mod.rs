//! Expansion of requests to plans.
//!
//! Expansion is a pure function: the same request, seed included, gives the same
//! plan. On the wall clock the boots come in *blocks*: each block holds every
//! config once, in a balanced order ([`Order`]) that the seed decides, so that
//! neither drift nor position nor predecessor favours one. On the instruction clock
//! nothing drifts; there a config is booted twice by default, to prove that its
//! figures are exact.

mod left_out;
mod order;

pub use left_out::LeftOut;
pub use order::Order;

use crate::clock::Clock;
use crate::conditions::Conditions;
use crate::config::Config;
use crate::environment::EnvironmentId;
use crate::features::Feature;
use crate::guest_config::{GuestConfig, MemoryPages, Serial};
use crate::irq;
use crate::kernel_build::Column;
use crate::operation::Operation;
use crate::packets;
use crate::populate;
use crate::preset::Sizes;
use crate::request::{self, Request};
use crate::scheduling::Scheduling;
use left_out::left_out;
use trapline_abi::{files, Job, OpSet, Workload};

/// Number of boots from which a run on the wall clock has an A/A control.
pub const LONG: u32 = 8;

/// Size in MiB of the large file of workload `files` where instructions are counted.
const COUNTED_FILE_MIB: u32 = 8;

/// Boots in the order of their execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed it was expanded from.
    pub seed: u64,
    /// The boots, those on exact clocks first.
    pub boots: Vec<PlannedBoot>,
    /// Configurations that cannot be measured on this host, in table order.
    pub left_out: Vec<Config>,
    /// Configurations that support none of the operations, with reasons.
    pub without_work: Vec<(Config, String)>,
}

/// Purpose of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// One of several replicates (wall clock).
    Replicate,
    /// Gives the figure (instruction clock).
    Exact,
    /// Must reproduce the figure (instruction clock).
    Proof,
}

/// One fresh start of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBoot {
    /// Configuration.
    pub config: Config,
    /// Index among the boots of this configuration, from 0.
    pub replicate: u32,
    /// Boots of one block belong together: on the wall clock they are compared,
    /// on the instruction clock they are of one config, must agree, and may
    /// run at the same time.
    pub block: u32,
    /// Purpose.
    pub purpose: Purpose,
    /// Job of the first launch: every requested operation except those of [`Workload::Boot`]. Operations of
    /// [`Workload::Irq`] take long; further boots on the wall clock measure them only if the request has a number
    /// of boots. The environment sets console, ports and ring. The period is in nanoseconds, since the rate of the
    /// guest's clock is not known yet.
    pub job: Job,
    /// Job of each further launch: the requested operations of [`Workload::Boot`].
    pub boot_job: Job,
    /// Number of further launches; 0 without boot operations, and on the bare simulated machine, which starts no
    /// VMM.
    pub boot_launches: u32,
    /// Configuration of the guest of every launch.
    pub guest: GuestConfig,
    /// Conditions of the first launch; defaults unless interrupts are measured.
    pub conditions: Conditions,
    /// Operations that are not measured, with reasons.
    pub left_out: Vec<LeftOut>,
    /// The operations whose outcomes are kept. A start measures whole groups, so that a figure does not
    /// depend on the operations that were asked for.
    pub kept: OpSet,
    /// Further starts of the environment, which belong to the same boot and measure other groups.
    pub further: Vec<PlannedBoot>,
    /// Operations that no guest repeats, in a boot that has nothing else.
    pub long: Vec<Operation>,
    /// Settings of trials of packets.
    pub packets: packets::Settings,
}

impl PlannedBoot {
    /// Returns its starts in order, of which it is the first itself.
    pub fn starts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.further)
    }

    /// Returns the operations whose outcomes are kept.
    pub fn operations(&self) -> impl Iterator<Item = Operation> + '_ {
        let of_guest = self.kept.iter().map(Operation::from);
        of_guest.chain(self.long.iter().copied())
    }

    /// Returns whether the first launch measures anything.
    pub fn measures(&self) -> bool {
        !self.job.run.is_empty()
    }

    /// Returns why the environment supports neither conditions nor scheduling of the boot, with the remedy.
    pub fn unsupported_reason(&self) -> Option<String> {
        let scheduling = self
            .guest
            .scheduling
            .unsupported_reason(self.config.environment);
        scheduling.or_else(|| self.conditions.unsupported_reason(self.config.environment))
    }
}

/// Expands a request.
pub fn expand(request: &Request) -> Plan {
    let all = in_table_order(request);
    let is_ready = |config: &Config| request.ready.contains(config);
    let (ready, left_out): (Vec<_>, Vec<_>) = all.iter().cloned().partition(is_ready);
    // Slices are the same on all hosts.
    let cut = if request.slice.is_some() { all } else { ready };
    let (planned, mut without_work) = with_work(request, cut);
    without_work.retain(|(config, _)| is_ready(config));
    let (mut wall, insn): (Vec<_>, Vec<_>) = planned
        .into_iter()
        .partition(|config| config.environment.clock() == Clock::Wall);
    let controlled = controlled(request, &wall).cloned();
    let control = controlled.as_ref().map(Config::control);
    wall.extend(control.clone());
    let mut boots = Vec::new();
    insn_blocks(request, &insn, &mut boots);
    wall_blocks(request, &wall, &mut boots);
    boots.retain(|boot| {
        let is_control = control.as_ref() == Some(&boot.config);
        let of = controlled.as_ref().filter(|_| is_control);
        is_ready(of.unwrap_or(&boot.config))
    });
    Plan {
        seed: request.seed,
        boots,
        left_out,
        without_work,
    }
}

/// Returns the configuration that has an A/A control, a second boot in each block of a long run: the first in table
/// order. There is none if the request has one.
fn controlled<'a>(request: &Request, wall: &'a [Config]) -> Option<&'a Config> {
    let is_there = wall.iter().any(|config| config.overrides.is_control);
    let is_long = wall_boots(request) >= LONG;
    let of_guests = wall.iter().filter(|config| request.is_of_guest(config));
    let first = of_guests.min();
    first.filter(|_| request.with_control && is_long && !is_there)
}

/// Returns the requested configurations, each once.
fn in_table_order(request: &Request) -> Vec<Config> {
    let mut configs = request.configs.clone();
    configs.sort();
    configs.dedup();
    configs
}

/// Returns the configurations that support an operation, and the others with reasons.
fn with_work(request: &Request, ready: Vec<Config>) -> (Vec<Config>, Vec<(Config, String)>) {
    let mut idle = Vec::new();
    let mut planned = ready;
    planned.retain(|config| match reason_for_nothing(request, config) {
        Some(reason) => {
            idle.push((config.clone(), reason));
            false
        }
        None => request.is_of_guest(config) || !request.long_in(config).is_empty(),
    });
    (planned, idle)
}

/// Returns why a configuration measures nothing of what was asked for.
fn reason_for_nothing(request: &Request, config: &Config) -> Option<String> {
    if !request.is_of_guest(config) {
        let column = Column::of(config);
        return column.and_then(|column| column.unsupported_reason(config.environment));
    }
    let left_out = left_out(request, config, request.operations);
    let nothing_left = LeftOut::union(&left_out) == request.operations;
    let reasons = left_out.into_iter().map(|left_out| left_out.reason);
    nothing_left.then(|| reasons.collect::<Vec<_>>().join("; "))
}

fn wall_blocks(request: &Request, configs: &[Config], boots: &mut Vec<PlannedBoot>) {
    let orders = Order::new(configs.len(), request.seed);
    let is_in_slice = |block: &u32| request.slice.is_none_or(|slice| slice.has_block(*block));
    let blocks = (0..wall_boots(request)).zip(orders);
    for (block, order) in blocks.filter(|(block, _)| is_in_slice(block)) {
        for place in order {
            let config = &configs[place];
            boots.push(boot(request, config, block, block, Purpose::Replicate));
        }
    }
}

fn wall_boots(request: &Request) -> u32 {
    let usual = if request.operations.is_subset(irq::operations()) && request.long.is_empty() {
        1
    } else {
        request.preset.boots()
    };
    request.boots.unwrap_or(usual)
}

/// Returns the operations of a boot.
fn operations(request: &Request, replicate: u32, purpose: Purpose) -> OpSet {
    let is_again = purpose == Purpose::Replicate && replicate > 0 && request.boots.is_none();
    if is_again {
        request.operations - irq::operations()
    } else {
        request.operations
    }
}

/// Adds the boots of exact clocks, whose blocks have the numbers after those of the wall clock.
fn insn_blocks(request: &Request, configs: &[Config], boots: &mut Vec<PlannedBoot>) {
    for (place, config) in configs.iter().enumerate() {
        let block = wall_boots(request) + place as u32;
        let is_in_slice = |replicate: &u32| {
            let slice = request.slice;
            slice.is_none_or(|slice| slice.has_exact(place, configs.len(), *replicate))
        };
        for replicate in (0..request.exact_boots).filter(is_in_slice) {
            let purpose = if replicate == 0 {
                Purpose::Exact
            } else {
                Purpose::Proof
            };
            boots.push(boot(request, config, replicate, block, purpose));
        }
    }
}

/// Returns the default size in MiB of the large file of workload `files`: larger than the page cache of the image.
fn file_mib(environment: EnvironmentId) -> u32 {
    if environment.clock().is_exact() {
        COUNTED_FILE_MIB
    } else {
        Job::EMPTY.file_mib
    }
}

/// Returns the guest with the devices that `operations` need. Workload `block` uses `disk_mib` of a disk.
fn with_devices(guest: GuestConfig, operations: OpSet, disk_mib: u32) -> GuestConfig {
    let needs = |set| operations.intersects(set);
    let (disk_mib, file_mib) = match needs(files::operations()) {
        true => (files::disk_mib(guest.file_mib), guest.file_mib),
        false if needs(trapline_abi::block::operations()) => (disk_mib, 0),
        false => (0, 0),
    };
    GuestConfig {
        window_mib: populate::window_mib(operations),
        small_pages: guest.thp.is_none()
            && guest.pages != MemoryPages::Huge
            && !needs(populate::operations()),
        disk_mib,
        file_mib,
        ..guest.with_cards(operations)
    }
}

fn boot(
    request: &Request,
    config: &Config,
    replicate: u32,
    block: u32,
    purpose: Purpose,
) -> PlannedBoot {
    if !request.is_of_guest(config) {
        return PlannedBoot {
            replicate,
            block,
            purpose,
            long: request.long_in(config),
            ..start(request, config, OpSet::EMPTY)
        };
    }
    let all_left_out = left_out(request, config, request.operations);
    let kept = operations(request, replicate, purpose) - LeftOut::union(&all_left_out);
    let of = |run: OpSet| PlannedBoot {
        replicate,
        block,
        purpose,
        kept: kept & run,
        ..start(request, config, run)
    };
    let runs = starts(request, config, kept);
    let (first, further) = runs.split_first().unwrap_or((&OpSet::EMPTY, &[]));
    PlannedBoot {
        left_out: all_left_out,
        further: further.iter().copied().map(of).collect(),
        ..of(*first)
    }
}

/// Returns the operations of each start of a boot that measures `wanted`.
fn starts(request: &Request, config: &Config, wanted: OpSet) -> Vec<OpSet> {
    let environment = config.environment;
    if !measures_groups(environment) {
        return vec![wanted];
    }
    let groups = groups(environment);
    let others = wanted - groups.iter().copied().collect::<OpSet>();
    let others = if environment.has(Feature::ShortStart) {
        Workload::ALL
            .map(|workload| others & workload.set())
            .to_vec()
    } else {
        vec![others]
    };
    let is_wanted = |group: &OpSet| group.intersects(wanted);
    let whole = groups.into_iter().filter(is_wanted).map(|group| {
        let left_out = LeftOut::union(&left_out(request, config, group));
        // Starts of guests are measured behind all others, which they do not change.
        let unwanted = if wanted.intersects(Workload::Boot.set()) {
            OpSet::EMPTY
        } else {
            Workload::Boot.set()
        };
        group - left_out - unwanted
    });
    let others = others.into_iter().filter(|others| !others.is_empty());
    // Those with starts of guests are last.
    others.chain(whole).collect()
}

/// Returns whether a boot measures whole groups. On the machine of Bochs, and with a guest in a guest, each operation of
/// an explanation takes minutes.
fn measures_groups(environment: EnvironmentId) -> bool {
    environment.stack().machine.is_qemu() && !environment.stack().is_nested()
}

/// Returns the groups of operations that an environment of QEMU's instruction clock measures whole, each from the same
/// state of the machine. What a kernel has done before decides which way it takes: a context switch of `sim/process` is
/// 3,000 or 5,400 instructions.
fn groups(environment: EnvironmentId) -> Vec<OpSet> {
    let usual = request::usual_operations();
    let separate = Workload::Basic.set() | Workload::System.set();
    if environment.has(Feature::ShortStart) {
        vec![
            usual & Workload::Basic.set(),
            usual & Workload::System.set(),
            usual - separate,
        ]
    } else {
        vec![usual - Workload::Boot.set(), usual & Workload::Boot.set()]
    }
}

/// Returns a boot of one start that measures `operations`, which the environment supports, and no others.
pub fn start(request: &Request, config: &Config, operations: OpSet) -> PlannedBoot {
    let environment = config.environment;
    let sizes = Sizes::of(environment, request.preset);
    let of_boot = Workload::Boot.set();
    let boot_operations = operations & of_boot;
    let (conditions, scheduling) = if operations.intersects(irq::operations()) {
        (request.irq.conditions.clone(), request.irq.scheduling)
    } else {
        (Conditions::default(), Scheduling::DEFAULT)
    };
    let guest = GuestConfig {
        scheduling,
        serial: conditions.loads.console().unwrap_or(Serial::Lines),
        file_mib: file_mib(environment),
        ..sizes.guest
    };
    let guest = request.configured(guest, config);
    let (disk_mib, file_mib) = (request.block.mib(environment), guest.file_mib);
    let guest = with_devices(guest, operations, disk_mib);
    PlannedBoot {
        config: config.clone(),
        replicate: 0,
        block: 0,
        purpose: Purpose::Replicate,
        job: Job {
            expiries: request.irq.expiries(environment, request.preset),
            period: request.irq.period.0,
            wait_mode: request.irq.between,
            wake: guest.wake.policy(),
            zeroing: guest.zeroing,
            isolation: guest.isolation,
            disk_mib,
            file_mib,
            requests: request.block.requests(environment),
            ..sizes.job(operations - of_boot)
        },
        boot_job: sizes.job(boot_operations),
        boot_launches: match guest.guests {
            _ if boot_operations.is_empty() => 0,
            1 => sizes.boot_launches,
            // Each has a start of every guest.
            _ => 1,
        },
        guest,
        conditions,
        left_out: Vec::new(),
        kept: operations,
        further: Vec::new(),
        long: Vec::new(),
        packets: request.packets,
    }
}

#[cfg(test)]
mod tests;
