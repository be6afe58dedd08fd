//! From a request to the boots that answer it.
//!
//! Expansion is a pure function: the same request, seed included, gives the same
//! plan. On the wall clock the boots come in *blocks*: each block holds every
//! contender once, in an order shuffled by the seed, so that a machine that
//! warms up or gets busy harms all of them alike. On the instruction clock
//! nothing drifts; there each contender is booted twice, to prove that its
//! figures are exact.

use crate::block;
use crate::contender::Contender;
use crate::cpus;
use crate::identity::{Clock, EnvironmentId, MachineSpec};
use crate::irq;
use crate::left_out::{self, LeftOut};
use crate::load::Serial;
use crate::placement::Conditions;
use crate::populate;
use crate::preset::{Preset, Sizes};
use crate::scheduling::Scheduling;
use crate::variant::Variant;
use rand::seq::SliceRandom;
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;
use trapline_abi::{Job, Op, OpSet, Workload};

/// How often an environment on the instruction clock is booted: the figure, and
/// its proof.
pub const EXACT_BOOTS: u32 = 2;

/// Boots from which on a run is long enough to find out what chance does: one contender is
/// then booted twice in each block.
pub const LONG: u32 = 8;

/// The seed where nothing is said.
pub const SEED: u64 = 1;

/// What somebody wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who is to be measured. Order and repetition mean nothing.
    pub contenders: Vec<Contender>,
    /// Those that can run here and now; others than were asked for mean nothing.
    pub ready: Vec<Contender>,
    /// Set of [`Op::bit`]: the operations asked for.
    pub operations: OpSet,
    /// Those of them that were named one by one: they are measured even where they take
    /// long.
    pub named: OpSet,
    /// How thorough.
    pub preset: Preset,
    /// Boots of each environment on the wall clock, if not the preset's number.
    pub boots: Option<u32>,
    /// Virtual CPUs of every guest of which nothing else is said.
    pub cpus: u32,
    /// How they are scheduled.
    pub scheduling: Scheduling,
    /// Whether a long run on the wall clock has one contender twice, to tell what chance does.
    pub twin: bool,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How interrupts are made, where any are asked for.
    pub irq: irq::Settings,
    /// How much of a disk is measured, where any is.
    pub block: block::Settings,
}

/// Nobody and nothing, as it is where nobody says how.
impl Default for Request {
    fn default() -> Self {
        Self {
            contenders: Vec::new(),
            ready: Vec::new(),
            operations: 0,
            named: 0,
            preset: Preset::Quick,
            boots: None,
            cpus: 1,
            scheduling: Scheduling::USUAL,
            twin: false,
            seed: SEED,
            irq: irq::Settings::default(),
            block: block::Settings::default(),
        }
    }
}

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
    let cpus = cpus::misfit(environment, cpus_of(request, contender));
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
    let mut chance = ChaCha8Rng::seed_from_u64(request.seed);
    for block in 0..wall_boots(request) {
        let mut order: Vec<_> = contenders.iter().collect();
        order.shuffle(&mut chance);
        for contender in order {
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

    /// Every environment, and each a second time.
    fn all() -> Vec<Contender> {
        let usual = EnvironmentId::ALL.map(Contender::usual).into_iter();
        usual.flat_map(|one| [one.again(), one]).collect()
    }

    fn contenders() -> impl Strategy<Value = Vec<Contender>> {
        proptest::sample::subsequence(all(), 0..=all().len()).prop_shuffle()
    }

    prop_compose! {
        fn requests()(
            contenders in contenders(),
            ready in contenders(),
            operations in proptest::sample::subsequence(Op::ALL.to_vec(), 0..=Op::ALL.len()),
            full in any::<bool>(),
            boots in proptest::option::of(1u32..12),
            cpus in 1u32..3,
            seed in any::<u64>(),
        ) -> Request {
            Request {
                contenders,
                ready,
                operations: operations.iter().fold(0, |set, op| set | op.bit()),
                named: 0,
                preset: if full { Preset::Full } else { Preset::Quick },
                boots,
                cpus,
                scheduling: Scheduling::USUAL,
                twin: false,
                seed,
                irq: irq::Settings::default(),
                block: block::Settings::default(),
            }
        }
    }

    fn everything(seed: u64) -> Request {
        Request {
            contenders: EnvironmentId::ALL.map(Contender::usual).to_vec(),
            ready: EnvironmentId::ALL.map(Contender::usual).to_vec(),
            operations: known_operations(),
            boots: Some(8),
            seed,
            ..Request::default()
        }
    }

    fn has_work(request: &Request, contender: &Contender) -> bool {
        request.operations & !left_out::union(&left_out(request, contender)) != 0
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
            backwards.contenders.reverse();
            backwards.ready.reverse();
            prop_assert_eq!(expand(&backwards), expand(&request));
        }

        #[test]
        fn every_block_on_the_wall_clock_holds_every_contender_once(request in requests()) {
            let plan = expand(&request);
            let mut blocks: BTreeMap<u32, Vec<Contender>> = BTreeMap::new();
            for boot in plan.boots.iter().filter(|boot| boot.kind == Kind::Replicate) {
                prop_assert_eq!(boot.block, boot.replicate);
                blocks.entry(boot.block).or_default().push(boot.contender());
            }
            let mut wanted = request.contenders.clone();
            wanted.sort();
            wanted.retain(|contender| {
                let on_wall = contender.environment.clock() == Clock::Wall;
                on_wall && request.ready.contains(contender) && has_work(&request, contender)
            });
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
        fn every_contender_and_operation_is_planned_exactly_as_asked(request in requests()) {
            let plan = expand(&request);
            let mut boots: BTreeMap<Contender, Vec<&PlannedBoot>> = BTreeMap::new();
            for boot in &plan.boots {
                boots.entry(boot.contender()).or_default().push(boot);
                let once = boot.replicate > 0 && request.boots.is_none() && !boot.environment.clock().is_exact();
                let asked = if once { request.operations & !irq::operations() } else { request.operations };
                let expected = asked & !left_out::union(&boot.left_out);
                prop_assert_eq!(boot.job.run | boot.boot_job.run, expected);
                prop_assert_eq!(boot.job.run & boot.boot_job.run, 0);
                let boots = boot.boot_job.run != 0 && !boot.environment.starts_with_machine();
                prop_assert_eq!(boot.boot_launches > 0, boots);
            }
            for id in all() {
                let asked = request.contenders.contains(&id);
                let ready = request.ready.contains(&id);
                prop_assert_eq!(plan.left_out.contains(&id), asked && !ready);
                let idle = plan.idle.iter().any(|(idle, _)| idle == &id);
                prop_assert_eq!(idle, asked && ready && request.operations != 0 && !has_work(&request, &id));
                let planned = asked && ready && request.operations != 0 && !idle;
                let expected = match id.environment.clock() {
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
    fn a_long_run_has_its_first_contender_twice_in_each_block() {
        let again = |request: &Request| -> Vec<(u32, EnvironmentId)> {
            let boots = expand(request).boots.into_iter();
            let twins = boots.filter(|boot| boot.variant.again);
            twins.map(|boot| (boot.block, boot.environment)).collect()
        };
        let asked = Request {
            twin: true,
            ..everything(1)
        };
        let expected: Vec<_> = (0..8).map(|block| (block, EnvironmentId::Host)).collect();
        assert_eq!(again(&asked), expected);
        let short = Request {
            boots: Some(LONG - 1),
            ..asked.clone()
        };
        assert_eq!(again(&short), []);
        let own = Contender::usual(EnvironmentId::Kvm).again();
        let pair = Request {
            contenders: vec![EnvironmentId::Host.into(), own.clone()],
            ready: vec![EnvironmentId::Host.into(), own],
            ..asked
        };
        assert!(again(&pair).iter().all(|(_, id)| *id == EnvironmentId::Kvm));
        assert_eq!(again(&everything(1)), []);
    }

    #[test]
    fn a_variant_gets_the_machine_that_it_names() {
        let contender = |text: &str| text.parse::<Contender>().unwrap();
        let of = |text: &str| {
            let plan = expand(&Request {
                contenders: vec![contender(text)],
                ready: vec![contender(text)],
                ..everything(1)
            });
            (plan.boots.first().cloned(), plan.idle)
        };
        let boot = of("kvm:memory=1G,pages=2m,pin=exclusive,idle=in-guest")
            .0
            .unwrap();
        assert_eq!(boot.machine.memory_mib, 1024);
        assert_eq!(boot.machine.pages, crate::MemoryPages::Huge);
        assert_eq!(boot.conditions.pin, crate::Pin::Exclusive);
        assert_eq!(boot.machine.halt, crate::Halt::InGuest);
        assert_eq!(of("kvm/linux:cpus=2").0.unwrap().machine.cpus, 2);
        let (none, idle) = of("kvm:memory=64M");
        assert_eq!(none, None);
        assert!(idle[0].1.contains("at least memory=512M"), "{idle:?}");
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
