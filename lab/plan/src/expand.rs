//! From a request to the boots that answer it.
//!
//! Expansion is a pure function: the same request, seed included, gives the same
//! plan. On the wall clock the boots come in *blocks*: each block holds every
//! environment once, in an order shuffled by the seed, so that a machine that
//! warms up or gets busy harms all environments alike. On the instruction clock
//! nothing drifts; there each environment is booted twice, to prove that its
//! figures are exact.

use crate::block;
use crate::cpus;
use crate::identity::{Clock, EnvironmentId, MachineSpec};
use crate::irq;
use crate::left_out::{self, LeftOut};
use crate::load::Serial;
use crate::placement::Conditions;
use crate::populate;
use crate::preset::{Preset, Sizes};
use crate::scheduling::Scheduling;
use rand::seq::SliceRandom;
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;
use trapline_abi::{Job, Op, OpSet, Workload};

/// How often an environment on the instruction clock is booted: the figure, and
/// its proof.
pub const EXACT_BOOTS: u32 = 2;

/// What somebody wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The environments asked for. Order and repetition mean nothing.
    pub environments: Vec<EnvironmentId>,
    /// Those of all environments that can run here and now.
    pub ready: Vec<EnvironmentId>,
    /// Set of [`Op::bit`]: the operations asked for.
    pub operations: OpSet,
    /// Those of them that were named one by one: they are measured even where they take
    /// long.
    pub named: OpSet,
    /// How thorough.
    pub preset: Preset,
    /// Boots of each environment on the wall clock, if not the preset's number.
    pub boots: Option<u32>,
    /// Virtual CPUs of every guest.
    pub cpus: u32,
    /// How they are scheduled.
    pub scheduling: Scheduling,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How interrupts are made, where any are asked for.
    pub irq: irq::Settings,
    /// How much of a disk is measured, where any is.
    pub block: block::Settings,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed it was expanded from.
    pub seed: u64,
    /// The boots, those on the wall clock first.
    pub boots: Vec<PlannedBoot>,
    /// Environments that were asked for and are not ready, in table order.
    pub left_out: Vec<EnvironmentId>,
    /// Those that are ready and can measure nothing of what was asked for, with reasons.
    pub idle: Vec<(EnvironmentId, String)>,
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
    /// Which boot of this environment, from 0.
    pub replicate: u32,
    /// Boots of one block belong together: on the wall clock they are compared,
    /// on the instruction clock they are of one environment, must agree, and may
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
}

/// The plan that answers `request`.
pub fn expand(request: &Request) -> Plan {
    let (ready, left_out) = in_table_order(request);
    let (planned, idle) = with_work(request, ready);
    let (wall, insn): (Vec<_>, Vec<_>) = planned
        .into_iter()
        .partition(|environment| environment.clock() == Clock::Wall);
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

/// The environments asked for: the ready ones and the others.
fn in_table_order(request: &Request) -> (Vec<EnvironmentId>, Vec<EnvironmentId>) {
    EnvironmentId::ALL
        .into_iter()
        .filter(|environment| request.environments.contains(environment))
        .partition(|environment| request.ready.contains(environment))
}

/// The environments that can measure anything of what was asked for, and the others.
fn with_work(
    request: &Request,
    ready: Vec<EnvironmentId>,
) -> (Vec<EnvironmentId>, Vec<(EnvironmentId, String)>) {
    let mut idle = Vec::new();
    let mut planned = ready;
    planned.retain(|id| {
        let left_out = left_out(request, *id);
        let nothing_left = left_out::union(&left_out) == request.operations;
        let is_idle = nothing_left && request.operations != 0;
        if is_idle {
            let reasons: Vec<_> = left_out
                .into_iter()
                .map(|left_out| left_out.reason)
                .collect();
            idle.push((*id, reasons.join("; ")));
        }
        !is_idle
    });
    (planned, idle)
}

/// What of the request an environment does not measure.
fn left_out(request: &Request, environment: EnvironmentId) -> Vec<LeftOut> {
    let Request {
        operations, named, ..
    } = *request;
    match cpus::misfit(environment, request.cpus) {
        // Who asks for nothing misses nothing.
        Some(_) if operations == 0 => Vec::new(),
        Some(reason) => vec![LeftOut { operations, reason }],
        None => left_out::of(environment, request.preset, operations, named),
    }
}

fn wall_blocks(request: &Request, environments: &[EnvironmentId], boots: &mut Vec<PlannedBoot>) {
    let mut chance = ChaCha8Rng::seed_from_u64(request.seed);
    for block in 0..wall_boots(request) {
        let mut order = environments.to_vec();
        order.shuffle(&mut chance);
        for environment in order {
            boots.push(boot(request, environment, block, block, Kind::Replicate));
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

fn insn_blocks(request: &Request, environments: &[EnvironmentId], boots: &mut Vec<PlannedBoot>) {
    let first_block = boots.last().map_or(0, |boot| boot.block + 1);
    for (block, environment) in (first_block..).zip(environments) {
        for replicate in 0..EXACT_BOOTS {
            let kind = if replicate == 0 {
                Kind::Exact
            } else {
                Kind::Proof
            };
            boots.push(boot(request, *environment, replicate, block, kind));
        }
    }
}

fn boot(
    request: &Request,
    environment: EnvironmentId,
    replicate: u32,
    block: u32,
    kind: Kind,
) -> PlannedBoot {
    let sizes = Sizes::of(environment, request.preset);
    let of_boot = Workload::Boot
        .operations()
        .fold(0, |set, op| set | op.bit());
    let left_out = left_out(request, environment);
    let not_here = left_out::union(&left_out);
    let operations = operations(request, replicate, kind) & !not_here;
    let boot_operations = operations & of_boot;
    let conditions = match operations & irq::operations() {
        0 => Conditions::default(),
        _ => request.irq.conditions.clone(),
    };
    PlannedBoot {
        environment,
        replicate,
        block,
        kind,
        job: Job {
            expiries: request.irq.expiries(environment, request.preset),
            period: request.irq.period.0,
            between: request.irq.between,
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
            cpus: request.cpus,
            scheduling: request.scheduling,
            window_mib: populate::window_mib(operations),
            ..sizes.machine
        },
        conditions,
        left_out,
    }
}

/// What is measured where nobody says what: all but interrupts, which take as long as
/// everything else together, giving memory, of which there is as much as a machine
/// has, and disks, which are the user's to name; all of them have a command of their own.
pub fn usual_operations() -> OpSet {
    let apart = irq::operations() | populate::operations() | trapline_abi::block::operations();
    known_operations() & !apart
}

/// The set of all operations there are.
pub fn known_operations() -> OpSet {
    Op::ALL.into_iter().fold(0, |set, op| set | op.bit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn environments() -> impl Strategy<Value = Vec<EnvironmentId>> {
        proptest::sample::subsequence(EnvironmentId::ALL.to_vec(), 0..=EnvironmentId::ALL.len())
            .prop_shuffle()
    }

    prop_compose! {
        fn requests()(
            environments in environments(),
            ready in environments(),
            operations in proptest::sample::subsequence(Op::ALL.to_vec(), 0..=Op::ALL.len()),
            full in any::<bool>(),
            boots in proptest::option::of(1u32..12),
            cpus in 1u32..3,
            seed in any::<u64>(),
        ) -> Request {
            Request {
                environments,
                ready,
                operations: operations.iter().fold(0, |set, op| set | op.bit()),
                named: 0,
                preset: if full { Preset::Full } else { Preset::Quick },
                boots,
                cpus,
                scheduling: Scheduling::USUAL,
                seed,
                irq: irq::Settings::default(),
                block: block::Settings::default(),
            }
        }
    }

    fn everything(seed: u64) -> Request {
        Request {
            environments: EnvironmentId::ALL.to_vec(),
            ready: EnvironmentId::ALL.to_vec(),
            operations: known_operations(),
            named: 0,
            preset: Preset::Quick,
            boots: Some(8),
            cpus: 1,
            scheduling: Scheduling::USUAL,
            seed,
            irq: irq::Settings::default(),
            block: block::Settings::default(),
        }
    }

    fn has_work(request: &Request, id: EnvironmentId) -> bool {
        request.operations & !left_out::union(&left_out(request, id)) != 0
    }

    fn boots_wanted(request: &Request) -> u32 {
        let only_irq = request.operations & !irq::operations() == 0;
        let usual = if only_irq { 1 } else { request.preset.boots() };
        request.boots.unwrap_or(usual)
    }

    proptest! {
        #[test]
        fn the_same_request_gives_the_same_plan(request in requests()) {
            prop_assert_eq!(expand(&request), expand(&request));
            let mut backwards = request.clone();
            backwards.environments.reverse();
            backwards.ready.reverse();
            prop_assert_eq!(expand(&backwards), expand(&request));
        }

        #[test]
        fn every_block_on_the_wall_clock_holds_every_environment_once(request in requests()) {
            let plan = expand(&request);
            let mut blocks: BTreeMap<u32, Vec<EnvironmentId>> = BTreeMap::new();
            for boot in plan.boots.iter().filter(|boot| boot.kind == Kind::Replicate) {
                prop_assert_eq!(boot.block, boot.replicate);
                blocks.entry(boot.block).or_default().push(boot.environment);
            }
            let wanted: Vec<_> = EnvironmentId::ALL
                .into_iter()
                .filter(|id| id.clock() == Clock::Wall)
                .filter(|id| request.environments.contains(id) && request.ready.contains(id))
                .filter(|id| has_work(&request, *id))
                .collect();
            for block in blocks.values_mut() {
                block.sort();
                prop_assert_eq!(&*block, &wanted);
            }
            if !wanted.is_empty() && request.operations != 0 {
                let blocks_wanted = boots_wanted(&request);
                prop_assert_eq!(blocks.len(), blocks_wanted as usize);
            }
        }

        #[test]
        fn every_environment_and_operation_is_planned_exactly_as_asked(request in requests()) {
            let plan = expand(&request);
            let mut boots: BTreeMap<EnvironmentId, Vec<&PlannedBoot>> = BTreeMap::new();
            for boot in &plan.boots {
                boots.entry(boot.environment).or_default().push(boot);
                let once = boot.replicate > 0 && request.boots.is_none() && !boot.environment.clock().is_exact();
                let asked = if once { request.operations & !irq::operations() } else { request.operations };
                let expected = asked & !left_out::union(&boot.left_out);
                prop_assert_eq!(boot.job.run | boot.boot_job.run, expected);
                prop_assert_eq!(boot.job.run & boot.boot_job.run, 0);
                let boots = boot.boot_job.run != 0 && !boot.environment.starts_with_machine();
                prop_assert_eq!(boot.boot_launches > 0, boots);
            }
            for id in EnvironmentId::ALL {
                let asked = request.environments.contains(&id);
                let ready = request.ready.contains(&id);
                prop_assert_eq!(plan.left_out.contains(&id), asked && !ready);
                let idle = plan.idle.iter().any(|(idle, _)| *idle == id);
                prop_assert_eq!(idle, asked && ready && request.operations != 0 && !has_work(&request, id));
                let planned = asked && ready && request.operations != 0 && !idle;
                let expected = match id.clock() {
                    _ if !planned => 0,
                    Clock::Wall => boots_wanted(&request),
                    Clock::Insn | Clock::InsnVmx => EXACT_BOOTS,
                };
                let found = boots.remove(&id).unwrap_or_default();
                let replicates: Vec<_> = found.iter().map(|boot| boot.replicate).collect();
                prop_assert_eq!(replicates, (0..expected).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn seeds_change_the_order_on_the_wall_clock_and_nothing_else() {
        let order = |seed, clock: Clock| -> Vec<EnvironmentId> {
            let boots = expand(&everything(seed)).boots;
            let ids = boots.iter().map(|boot| boot.environment);
            ids.filter(|id| id.clock() == clock).collect()
        };
        let orders: BTreeSet<_> = (0..8).map(|seed| order(seed, Clock::Wall)).collect();
        assert!(orders.len() > 1, "no seed changes the order");
        assert_eq!(order(1, Clock::Insn), order(2, Clock::Insn));
    }

    #[test]
    fn an_exact_environment_is_booted_twice_in_a_row_in_one_block() {
        let boots = expand(&everything(3)).boots;
        let exact: Vec<_> = boots
            .iter()
            .filter(|boot| boot.environment.clock().is_exact())
            .collect();
        let first_block = boots.len() as u32 - exact.len() as u32;
        let wall = EnvironmentId::ALL
            .into_iter()
            .filter(|id| id.clock() == Clock::Wall);
        assert_eq!(first_block, 8 * wall.count() as u32, "they come last");
        for pair in exact.chunks(2) {
            assert_eq!(pair[0].environment, pair[1].environment);
            assert_eq!(pair[0].block, pair[1].block);
            assert_eq!((pair[0].kind, pair[1].kind), (Kind::Exact, Kind::Proof));
            assert_eq!(pair[0].job, pair[1].job);
        }
    }

    #[test]
    fn interrupts_are_measured_in_the_first_boot_unless_somebody_says_how_often() {
        let asked = Request {
            boots: None,
            operations: known_operations(),
            ..everything(1)
        };
        let of = |request: &Request, id| -> Vec<bool> {
            let boots = expand(request).boots.into_iter();
            let of_id = boots.filter(|boot| boot.environment == id);
            of_id.map(|boot| boot.job.wants(Op::OwnTimer)).collect()
        };
        use EnvironmentId::{Kvm, SimKvm};
        assert_eq!(of(&asked, Kvm), [true, false, false, false, false]);
        assert_eq!(of(&asked, SimKvm), [true, true]);
        let thrice = Request {
            boots: Some(3),
            ..asked.clone()
        };
        assert_eq!(of(&thrice, Kvm), [true; 3]);
        let alone = Request {
            operations: irq::operations(),
            ..asked
        };
        assert_eq!(of(&alone, Kvm), [true]);
        assert_eq!(usual_operations() & irq::operations(), 0);
    }
}
