//! From a request to the boots that answer it.
//!
//! Expansion is a pure function: the same request, seed included, gives the same
//! plan. On the wall clock the boots come in *blocks*: each block holds every
//! contender once, in a balanced order ([`Order`]) that the seed decides, so that
//! neither drift nor position nor predecessor favours one. On the instruction clock
//! nothing drifts; there each contender is booted twice, to prove that its
//! figures are exact.

mod order;

pub use order::Order;

use crate::clock::Clock;
use crate::contender::Contender;
use crate::cpus;
use crate::environment::EnvironmentId;
use crate::guest_config::MachineSpec;
use crate::irq;
use crate::left_out::{self, LeftOut};
use crate::load::Serial;
use crate::placement::Conditions;
use crate::populate;
use crate::preset::Sizes;
use crate::request::{known_operations, Request};
use crate::variant::Variant;
use trapline_abi::{Job, OpSet, Workload};

/// How often an environment on the instruction clock is booted: the figure, and
/// its proof.
pub const EXACT_BOOTS: u32 = 2;

/// Boots from which on a run is long enough to find out what chance does: one contender is
/// then booted twice in each block.
pub const LONG: u32 = 8;

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed it was expanded from.
    pub seed: u64,
    /// The boots, those on the wall clock first.
    pub boots: Vec<PlannedBoot>,
    /// Who was asked for and is not ready, in table order.
    pub left_out: Vec<Contender>,
    /// Those that are ready and can measure nothing of what was asked for, with reasons.
    pub idle: Vec<(Contender, String)>,
}

/// Why an environment is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One of several that statistics are made of (wall clock).
    Replicate,
    /// The one that gives the figure (instruction clock).
    Exact,
    /// The one that must give the same digits again (instruction clock).
    Proof,
}

/// One fresh start of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBoot {
    /// Which environment.
    pub environment: EnvironmentId,
    /// What sets it apart from other boots of that environment.
    pub variant: Variant,
    /// Which boot of this contender, from 0.
    pub replicate: u32,
    /// Boots of one block belong together: on the wall clock they are compared,
    /// on the instruction clock they are of one contender, must agree, and may
    /// run at the same time.
    pub block: u32,
    /// Why.
    pub kind: Kind,
    /// What the guest measures: every operation asked for except those of
    /// [`Workload::Boot`]. Those of [`Workload::Irq`] are left out of further boots on
    /// the wall clock, unless somebody says how many there are to be: one of them is
    /// long. Console, ports and ring are the environment's to set, and the period is in
    /// nanoseconds, for nobody knows the guest's clock yet.
    pub job: Job,
    /// What the guest of each further launch is asked: the operations of
    /// [`Workload::Boot`] that were asked for, nothing else.
    pub boot_job: Job,
    /// How many further launches there are; 0 where no boot operation is wanted,
    /// and on the bare simulated machine, which starts no VMM.
    pub boot_launches: u32,
    /// The machine that every launch gets.
    pub machine: MachineSpec,
    /// Under which conditions; plain ones unless interrupts are measured.
    pub conditions: Conditions,
    /// What of the operations asked for is not measured, and why.
    pub left_out: Vec<LeftOut>,
}

impl PlannedBoot {
    /// Whether the guest of the first launch has anything to do.
    pub fn measures(&self) -> bool {
        self.job.run != 0
    }

    /// Who is booted.
    pub fn contender(&self) -> Contender {
        Contender {
            environment: self.environment,
            variant: self.variant.clone(),
        }
    }
}

/// The plan that answers `request`.
pub fn expand(request: &Request) -> Plan {
    let (ready, left_out) = in_table_order(request);
    let (planned, idle) = with_work(request, ready);
    let (mut wall, insn): (Vec<_>, Vec<_>) = planned
        .into_iter()
        .partition(|contender| contender.environment.clock() == Clock::Wall);
    if request.twin {
        wall.extend(twin(request, &wall));
    }
    let mut boots = Vec::new();
    if request.operations != 0 {
        wall_blocks(request, &wall, &mut boots);
        insn_blocks(request, &insn, &mut boots);
    }
    Plan {
        seed: request.seed,
        boots,
        left_out,
        idle,
    }
}

/// The one that is booted again in each block of a long run: the first in table order, the
/// bare row if that is measured, unless somebody asked for such a pair himself.
fn twin(request: &Request, wall: &[Contender]) -> Option<Contender> {
    let is_there = wall.iter().any(|contender| contender.variant.again);
    let first = wall.iter().min().filter(|_| !is_there);
    first
        .filter(|_| wall_boots(request) >= LONG)
        .map(Contender::again)
}

/// Who is asked for: the ready ones and the others.
fn in_table_order(request: &Request) -> (Vec<Contender>, Vec<Contender>) {
    let mut contenders = request.contenders.clone();
    contenders.sort();
    contenders.dedup();
    contenders
        .into_iter()
        .partition(|contender| request.ready.contains(contender))
}

/// Those that can measure anything of what was asked for, and the others.
fn with_work(
    request: &Request,
    ready: Vec<Contender>,
) -> (Vec<Contender>, Vec<(Contender, String)>) {
    let mut idle = Vec::new();
    let mut planned = ready;
    planned.retain(|contender| {
        let left_out = left_out(request, contender);
        let nothing_left = left_out::union(&left_out) == request.operations;
        let is_idle = nothing_left && request.operations != 0;
        if is_idle {
            let reasons: Vec<_> = left_out
                .into_iter()
                .map(|left_out| left_out.reason)
                .collect();
            idle.push((contender.clone(), reasons.join("; ")));
        }
        !is_idle
    });
    (planned, idle)
}

/// Virtual CPUs of a contender's guest.
fn cpus_of(request: &Request, contender: &Contender) -> u32 {
    contender.variant.cpus.unwrap_or(request.cpus)
}

/// What of the request a contender does not measure.
fn left_out(request: &Request, contender: &Contender) -> Vec<LeftOut> {
    let Request {
        operations, named, ..
    } = *request;
    let environment = contender.environment;
    let cpus = cpus::unsupported_reason(environment, cpus_of(request, contender));
    match cpus.or_else(|| too_small(request, contender)) {
        // Who asks for nothing misses nothing.
        Some(_) if operations == 0 => Vec::new(),
        Some(reason) => vec![LeftOut { operations, reason }],
        None => left_out::of(environment, request.preset, operations, named),
    }
}

/// Why a guest's memory is too little for the work.
fn too_small(request: &Request, contender: &Contender) -> Option<String> {
    let wanted = contender.variant.memory_mib?;
    let needed = Sizes::of(contender.environment, request.preset)
        .machine
        .memory_mib;
    (wanted < needed).then(|| {
        format!(
            "the work there needs {needed} MiB: give at least memory={needed}M, or leave it out"
        )
    })
}

fn wall_blocks(request: &Request, contenders: &[Contender], boots: &mut Vec<PlannedBoot>) {
    let orders = Order::new(contenders.len(), request.seed);
    for (block, order) in (0..wall_boots(request)).zip(orders) {
        for place in order {
            let contender = &contenders[place];
            boots.push(boot(request, contender, block, block, Kind::Replicate));
        }
    }
}

fn wall_boots(request: &Request) -> u32 {
    let usual = match request.operations & !irq::operations() {
        0 => 1,
        _ => request.preset.boots(),
    };
    request.boots.unwrap_or(usual)
}

/// What is measured in a boot of `kind`.
fn operations(request: &Request, replicate: u32, kind: Kind) -> OpSet {
    let again = kind == Kind::Replicate && replicate > 0 && request.boots.is_none();
    let left_out = if again { irq::operations() } else { 0 };
    request.operations & known_operations() & !left_out
}

fn insn_blocks(request: &Request, contenders: &[Contender], boots: &mut Vec<PlannedBoot>) {
    let first_block = boots.last().map_or(0, |boot| boot.block + 1);
    for (block, contender) in (first_block..).zip(contenders) {
        for replicate in 0..EXACT_BOOTS {
            let kind = if replicate == 0 {
                Kind::Exact
            } else {
                Kind::Proof
            };
            boots.push(boot(request, contender, replicate, block, kind));
        }
    }
}

fn boot(
    request: &Request,
    contender: &Contender,
    replicate: u32,
    block: u32,
    kind: Kind,
) -> PlannedBoot {
    let Contender {
        environment,
        variant,
    } = contender.clone();
    let sizes = Sizes::of(environment, request.preset);
    let of_boot = Workload::Boot
        .operations()
        .fold(0, |set, op| set | op.bit());
    let left_out = left_out(request, contender);
    let not_here = left_out::union(&left_out);
    let operations = operations(request, replicate, kind) & !not_here;
    let boot_operations = operations & of_boot;
    let asked = match operations & irq::operations() {
        0 => Conditions::default(),
        _ => request.irq.conditions.clone(),
    };
    let conditions = Conditions {
        pin: variant.pin.unwrap_or(asked.pin),
        halt: variant.idle.unwrap_or(asked.halt),
        ..asked
    };
    PlannedBoot {
        environment,
        replicate,
        block,
        kind,
        job: Job {
            expiries: request.irq.expiries(environment, request.preset),
            period: request.irq.period.0,
            wait_mode: request.irq.between,
            disk_mib: request.block.mib,
            requests: request.block.requests,
            ..sizes.job(operations & !of_boot)
        },
        boot_job: sizes.job(boot_operations),
        boot_launches: if boot_operations == 0 {
            0
        } else {
            sizes.boot_launches
        },
        machine: MachineSpec {
            serial: conditions.loads.flood().unwrap_or(Serial::Lines),
            halt: conditions.halt,
            pages: variant.pages.unwrap_or_default(),
            cpus: cpus_of(request, contender),
            memory_mib: variant.memory_mib.unwrap_or(sizes.machine.memory_mib),
            scheduling: request.scheduling,
            window_mib: populate::window_mib(operations),
        },
        variant,
        conditions,
        left_out,
    }
}

#[cfg(test)]
mod tests;
