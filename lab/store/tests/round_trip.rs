//! Stored values are loaded unchanged.

use crate::common;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;
use trapline_abi::{Counter, CpuState, Interrupt, Op, Stage};
use trapline_model::kernel_build::Size;
use trapline_model::observed::IdleWork;
use trapline_model::packets::{Direction, Distance, Latency, PacketOperation, Purpose, Trial};
use trapline_model::{
    Clock, Config, EnvironmentId, Launch, Observation, Operation, OperationResult, Outcome,
    RecordedRequest, Sample,
};
use trapline_store::{NewRun, Store};

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let number = any::<u64>;
    let sample = (number(), number(), number(), option::of(number())).prop_map(
        |(start, end, count, host_ns)| Sample {
            start,
            end,
            count,
            host_ns,
            excluded: 0,
        },
    );
    vec(sample, 0..6)
}

fn interrupts() -> impl Strategy<Value = Vec<Interrupt>> {
    let times = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>());
    let raised = (option::of(any::<u32>()), option::of(any::<u32>()));
    let interrupt = (any::<u64>(), times, raised, select(CpuState::ALL.to_vec())).prop_map(
        |(sequence, (due, doubt, entered, done), (woke, marked), found)| Interrupt {
            sequence,
            due,
            uncertainty: doubt.into(),
            woke: woke.map(|after| due.wrapping_add(after.into())),
            marked: marked.map(|after| due.wrapping_add(after.into())),
            entered,
            done,
            resumed: done.wrapping_add(entered),
            found,
        },
    );
    vec(interrupt, 0..120)
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let number = any::<u64>;
    let optional = || option::of(any::<u64>());
    let measured = (
        (number(), number(), number()),
        (samples(), interrupts()),
        (optional(), optional(), option::of((number(), number()))),
        option::of((number(), number())),
    )
        .prop_map(
            |(
                (clock_cost, loop_cost, check),
                (samples, interrupts),
                (exits, host_cpu_ns, idle),
                elapsed,
            )| {
                Outcome::Measured {
                    clock_cost,
                    loop_cost,
                    samples,
                    interrupts,
                    trials: Vec::new(),
                    check,
                    exits,
                    host_cpu_ns,
                    idle: idle.map(|(ticks, bytes)| IdleWork { ticks, bytes }),
                    elapsed,
                }
            },
        );
    prop_oneof![
        2 => measured,
        1 => any::<String>().prop_map(Outcome::Skipped),
        1 => any::<String>().prop_map(Outcome::Failed),
    ]
}

fn launches() -> impl Strategy<Value = Launch> {
    let stages = btree_map(select(Stage::ALL.to_vec()), any::<u64>(), 0..5);
    let counters = btree_map(select(Counter::ALL.to_vec()), any::<u64>(), 0..5);
    (stages, counters).prop_map(|(timeline, counters)| Launch { timeline, counters })
}

prop_compose! {
    fn observations()(
        environment in select(EnvironmentId::BUILT_IN.to_vec()),
        overrides in select(vec!["", "cpus=2,memory=1024M", "vmm=a b,control", "pages=4k,pin=free,idle=exits,kernel=k"]),
        clock in select(vec![Clock::Wall, Clock::Insn]),
        replicate in any::<u32>(),
        unit_per_tick in proptest::num::f64::NORMAL | proptest::num::f64::ZERO,
        operations in vec((select(Op::ALL.to_vec()), outcomes()), 0..4),
        launches in vec(launches(), 0..3),
        facts in btree_map(any::<String>(), any::<String>(), 0..3),
        log in any::<String>(),
        problems in vec(any::<String>(), 0..3),
        host in "[0-9a-f]{0,16}",
    ) -> Observation {
        Observation {
            config: Config {
                environment,
                overrides: overrides.parse().unwrap(),
            },
            clock,
            replicate,
            unit_per_tick,
            operations: operations
                .into_iter()
                .map(|(op, outcome)| OperationResult::new(op, outcome))
                .collect(),
            launches,
            facts,
            log,
            problems,
            host,
        }
    }
}

/// Returns operations that no guest repeats, with outcomes.
fn long_operations() -> impl Strategy<Value = OperationResult> {
    let build = (select(Size::ALL.to_vec()), any::<u64>(), any::<u64>());
    let build = build.prop_map(|(size, own_ns, took)| {
        let outcome = Outcome::of_build(own_ns, took, "0123456789abcdef0");
        OperationResult::new(Operation::Build(size), outcome)
    });
    let purposes = vec![Purpose::Maximum, Purpose::Given(7), Purpose::Search];
    let packets = (60u32..1500, select(purposes), vec(trials(), 1..4));
    let packets = packets.prop_map(|(size, purpose, trials)| {
        let operation = PacketOperation {
            direction: Direction::Both,
            size,
            purpose,
            distance: Some(Distance::Near),
        };
        let outcome = Outcome::of_trials(operation, trials);
        OperationResult::new(Operation::Packets(operation), outcome)
    });
    prop_oneof![build, packets]
}

prop_compose! {
    fn trials()(
        offered in option::of(1e3..1e9),
        counts in proptest::array::uniform8(any::<u64>()),
        forwarder_cpu_ns in option::of(any::<u64>()),
        latency in option::of((any::<u64>(), any::<u64>(), any::<u64>())),
        round_trip_ns in 0.0..1e6,
    ) -> Trial {
        let [duration_ns, sent, refused, received, ports_cpu_ns, kicks, calls, _] = counts;
        Trial {
            offered,
            duration_ns,
            sent,
            refused,
            received,
            damaged: 0,
            ports_cpu_ns,
            forwarder_cpu_ns,
            kicks,
            calls,
            latency: latency.map(|(p50, p99, max)| Latency { p50, p99, max }),
            round_trip_ns,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn observations_are_loaded_unchanged(
        seen in vec(observations(), 0..4),
        seed in any::<u64>(),
        configs in proptest::collection::btree_set(any::<String>(), 0..3),
        unparsed in option::of(any::<String>()),
        facts in btree_map(any::<String>(), any::<String>(), 0..3),
        reason in any::<String>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        let skipped: Config = "kvm:pin=shared".parse().unwrap();
        let request = RecordedRequest { configs, unparsed, ..RecordedRequest::default() };
        let new = NewRun { seed, request: request.clone(), version: "0.1.0", facts: facts.clone(), ..NewRun::default() };
        let run = {
            let mut store = Store::open(&path).unwrap();
            let run = store.begin_run(&new).unwrap();
            for observation in &seen {
                store.add_observation(run, observation).unwrap();
            }
            store.add_skip(run, &skipped, &reason).unwrap();
            run
        };
        let loaded = Store::open_existing(&path).unwrap().load(run).unwrap();
        prop_assert_eq!(loaded.observations, seen.clone());
        prop_assert_eq!(loaded.skips, vec![(skipped, reason)]);
        prop_assert_eq!(loaded.info.seed, seed);
        prop_assert_eq!(loaded.info.request, request);
        prop_assert_eq!(loaded.info.version, "0.1.0");
        prop_assert_eq!(loaded.info.facts, facts);
        prop_assert_eq!(loaded.info.boots, seen.len() as u64);
        prop_assert_eq!(loaded.info.finished_at, None);
    }

    #[test]
    fn builds_and_packets_are_loaded_unchanged(
        operations in vec(long_operations(), 0..5),
        config in select(vec!["host:jobs=2,place=disjoint", "net/switch", "net/mine:ring=packed,queues=4"]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
        store.begin_run(&NewRun::default()).unwrap();
        let run = store.begin_run(&NewRun::default()).unwrap();
        let mut boot = trapline_model::testing::boot(Config::from_recorded(config).unwrap(), 3, []);
        boot.operations = operations;
        store.add_observation(run, &boot).unwrap();
        prop_assert_eq!(store.load(run).unwrap().observations, vec![boot]);
    }
}

#[test]
fn runs_are_separate_and_the_latest_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/on/the/way/runs.db");
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.latest().unwrap(), None);
    let first = store.begin_run(&NewRun::default()).unwrap();
    let second = store.begin_run(&NewRun::default()).unwrap();
    store
        .add_observation(second, &common::full_boot(2))
        .unwrap();
    store.add_observation(first, &common::full_boot(1)).unwrap();
    store.finish_run(second).unwrap();
    let latest = store.latest().unwrap().unwrap();
    assert_eq!((latest.id, latest.boots), (second, 1));
    // Nothing was measured: neither in a run that was cancelled nor in one whose environments failed to start.
    let empty = store.begin_run(&NewRun::default()).unwrap();
    store.finish_run(empty).unwrap();
    store.begin_run(&NewRun::default()).unwrap();
    assert_eq!(store.latest().unwrap().unwrap().id, second);
    assert!(latest.finished_at >= Some(latest.started_at));
    assert_eq!(
        store.load(first).unwrap().observations,
        [common::full_boot(1)]
    );
    assert_eq!(store.runs().unwrap().len(), 4);
    assert_eq!(store.runs().unwrap()[0].facts, BTreeMap::new());
}
