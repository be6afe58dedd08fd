//! Stores of earlier formats.

use crate::common;

use expect_test::expect;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use trapline_abi::{Counter, CpuState, Interrupt, Op, Stage};
use trapline_model::{Config, Launch, Observation, Outcome, RecordedRequest, Sample};
use trapline_store::{Run, RunId, RunInfo, Store, VERSION};

/// Statements that turn format 5 into format 1.
const TO_FORMAT_1: &str =
    "DELETE FROM operations WHERE operation IN ('block/read-4k-1', 'irq/own-timer');
    DROP TABLE interrupts; DROP TABLE requests; DROP TABLE builds;
    ALTER TABLE boots DROP COLUMN variant; ALTER TABLE skips DROP COLUMN variant;
    ALTER TABLE runs DROP COLUMN keeper; ALTER TABLE runs DROP COLUMN plan;
    PRAGMA user_version = 1;";

fn store(further: &str) -> (TempDir, PathBuf) {
    store_of(include_str!("format_5.sql"), further)
}

fn store_of(sql: &str, further: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(sql).unwrap();
    connection.execute_batch(further).unwrap();
    (folder, path)
}

fn version(path: &Path) -> i64 {
    let connection = Connection::open(path).unwrap();
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    version.unwrap()
}

fn load(store: &mut Store) -> [Run; 2] {
    [1, 2].map(|run| store.load(RunId(run)).unwrap())
}

fn configs(run: &Run) -> Vec<String> {
    let configs = run.observations.iter().map(|boot| boot.config.clone());
    configs.map(|config: Config| config.to_string()).collect()
}

fn measured(samples: Vec<Sample>, interrupts: Vec<Interrupt>) -> Outcome {
    Outcome::Measured {
        clock_cost: 20,
        loop_cost: 1024,
        samples,
        interrupts,
        trials: Vec::new(),
        check: u64::MAX,
        exits: Some(3),
        host_cpu_ns: Some(4),
        idle: None,
        elapsed: Some((5, 6)),
    }
}

fn boot<const N: usize>(config: &str, replicate: u32, outcomes: [(Op, Outcome); N]) -> Observation {
    let config: Config = config.parse().unwrap();
    Observation {
        unit_per_tick: 0.5,
        launches: vec![Launch {
            timeline: BTreeMap::from([(Stage::Exec, 0), (Stage::GuestMain, 7)]),
            counters: BTreeMap::from([(Counter::OwnMemory, 8)]),
        }],
        facts: BTreeMap::from([("scheduler".to_owned(), "credit2".to_owned())]),
        log: "a log".to_owned(),
        problems: vec!["a damaged frame".to_owned()],
        ..trapline_model::testing::boot(config, replicate, outcomes)
    }
}

/// Returns the observations of the fixture's first run.
fn observations() -> [Observation; 4] {
    let sample = |number: u64, host_ns| Sample {
        start: 1000 * number,
        end: 1000 * number + 900,
        count: 1,
        host_ns,
        excluded: 0,
    };
    let interrupt = |sequence: u64| Interrupt {
        sequence,
        due: 1000 * sequence,
        entered: 1000 * sequence + 40,
        done: 1000 * sequence + 50,
        resumed: 1000 * sequence + 60,
        found: CpuState::Code,
        ..Interrupt::default()
    };
    let batches = (0..2).map(|number| sample(number, Some(number))).collect();
    let requests = (0..3).map(|number| sample(number, None)).collect();
    let interrupts = (0..3).map(interrupt).collect();
    let settings = "memory=1024M,pages=2m,pin=exclusive,idle=in-guest,image=/a b,vmm=target/vmm";
    let files = "cpus=2,memory=512M,agent=/agent,qemu=/q,kernel=/k,modules=/m";
    [
        boot(
            "kvm",
            0,
            [
                (Op::PortOut, measured(batches, vec![])),
                (Op::Read4k1, measured(requests, vec![])),
            ],
        ),
        boot(
            "kvm:control",
            0,
            [(Op::PortOut, Outcome::Skipped("no port".to_owned()))],
        ),
        boot(
            &format!("kvm:{settings}"),
            1,
            [(Op::OwnTimer, measured(vec![], interrupts))],
        ),
        boot(
            &format!("sim/kvm/linux:{files}"),
            0,
            [(Op::Fork, Outcome::Failed("lost".to_owned()))],
        ),
    ]
}

#[test]
fn a_store_of_format_5_is_read_without_changes_and_migrated_on_opening() {
    let (_folder, path) = store("");
    let before = load(&mut Store::open_existing(&path).unwrap());
    assert_eq!(version(&path), 5, "reading changes nothing");
    let [run, build] = &before;
    assert_eq!(run.observations, observations());
    let skips = run.skips.iter();
    let skips: Vec<_> = skips
        .map(|(config, reason)| format!("{config}: {reason}"))
        .collect();
    assert_eq!(
        skips,
        [
            "qemu-kvm/linux:cpus=4,pin=shared: no /dev/kvm",
            "host: no CPU"
        ]
    );
    let info = RunInfo {
        id: RunId(1),
        started_at: 1_795_467_916_890,
        finished_at: Some(1_795_467_916_994),
        seed: u64::MAX,
        request: RecordedRequest {
            configs: ["kvm".to_owned(), "sim/kvm".to_owned()].into(),
            operations: vec!["exits".to_owned()],
            ..RecordedRequest::default()
        },
        version: "0.1.0".to_owned(),
        facts: BTreeMap::from([("cpu".to_owned(), "a \"CPU\"".to_owned())]),
        boots: 4,
        owner: Some("1 2".to_owned()),
        plan: Some("[plan]".to_owned()),
        ..RunInfo::default()
    };
    assert_eq!(run.info, info);
    assert_eq!((build.info.finished_at, build.info.boots), (None, 1));
    assert_eq!(
        operations(build),
        ["host:jobs=2,place=same #1 kernel-build/mini measured"]
    );
    let migrated = load(&mut Store::open(&path).unwrap());
    assert_eq!(version(&path), VERSION);
    assert_eq!(migrated, before);
    assert_eq!(load(&mut Store::open_existing(&path).unwrap()), before);
}

#[test]
fn migrated_settings_have_typed_columns() {
    let (_folder, path) = store("");
    Store::open(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    let row: (Option<u32>, u32, String, String, bool) = connection
        .query_row(
            "SELECT cpus, memory_mib, pin, vmm, control FROM boots WHERE id = 3",
            [],
            |row| {
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    row.get(3)?,
                    row.get(4)?,
                ))
            },
        )
        .unwrap();
    let expected = (
        None,
        1024,
        "exclusive".to_owned(),
        "target/vmm".to_owned(),
        false,
    );
    assert_eq!(row, expected);
    let controls = connection.query_row("SELECT sum(control) FROM boots", [], |row| row.get(0));
    assert_eq!(controls, Ok(1));
}

#[test]
fn migrated_facts_have_the_names_of_today() {
    let facts = r#"{"governor":"unrest-ful","unrest-others":"40% of a CPU"}"#;
    let (_folder, path) = store(&format!("UPDATE boots SET facts = '{facts}' WHERE id = 4"));
    let [run, _] = load(&mut Store::open(&path).unwrap());
    let expected = [
        ("governor", "unrest-ful"),
        ("host-noise-others", "40% of a CPU"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(run.observations[3].facts, expected.into());
}

#[test]
fn settings_that_cannot_be_parsed_are_damage_and_nothing_is_migrated() {
    let (_folder, path) = store("UPDATE boots SET variant = 'cpus=many' WHERE id = 4");
    let error = Store::open(&path).err().unwrap().to_string();
    assert!(error.contains("cpus=many"), "{error}");
    assert_eq!(version(&path), 5);
}

#[test]
fn a_store_of_format_1_is_read_without_changes_and_written_after_migration() {
    let (_folder, path) = store(TO_FORMAT_1);
    let run = RunId(1);
    let before = Store::open_existing(&path).unwrap().load(run).unwrap();
    assert_eq!(version(&path), 1, "reading changes nothing");
    assert_eq!(configs(&before), ["kvm", "kvm", "kvm", "sim/kvm/linux"]);
    assert!(matches!(
        before.observations[0].operations[0].outcome,
        Outcome::Measured { .. }
    ));
    assert_eq!(before.info.boots, 4);
    let mut store = Store::open(&path).unwrap();
    let boot = common::boot_with_interrupts();
    store.add_observation(run, &boot).unwrap();
    let all = store.load(run).unwrap().observations;
    assert_eq!((all.len(), &all[4], version(&path)), (5, &boot, VERSION));
    assert_eq!(all[..4], before.observations);
}

/// Returns configuration, replicate, operation and outcome of all boots.
fn operations(run: &Run) -> Vec<String> {
    let all = run.observations.iter().flat_map(|boot| {
        boot.operations.iter().map(move |it| {
            let outcome = match &it.outcome {
                Outcome::Measured { trials, .. } if trials.len() > 1 => {
                    format!("{} trials", trials.len())
                }
                Outcome::Measured { .. } => "measured".to_owned(),
                Outcome::Skipped(reason) => format!("skipped: {reason}"),
                Outcome::Failed(reason) => format!("failed: {reason}"),
            };
            format!(
                "{} #{} {} {outcome}",
                boot.config,
                boot.replicate,
                it.op.path()
            )
        })
    });
    all.collect()
}

/// Returns the runs of a store as the commands of format 28 wrote it, with fewer samples and facts.
fn runs_of_format_28() -> (TempDir, PathBuf, Vec<Run>) {
    let (folder, path) = store_of(include_str!("format_28.sql"), "");
    let mut store = Store::open_existing(&path).unwrap();
    let runs = store.runs().unwrap().into_iter();
    let loaded = runs.map(|run| store.load(run.id).unwrap()).collect();
    assert_eq!(version(&path), 28, "reading changes nothing");
    (folder, path, loaded)
}

#[test]
fn requests_of_format_28_are_data() {
    let (_folder, _, runs) = runs_of_format_28();
    let requests = runs.iter().map(|run| run.info.request.to_string());
    expect![[r#"
        {"aim":"report","configs":["net/switch","net/veth"],"operations":["packets/rate:size=60,direction=one","packets/latency:size=60,direction=one","packets/rate:size=200,direction=one","packets/latency:size=200,direction=one"],"boots":2,"packets":{"milliseconds":20,"cpus":[1,0]}}
        {"aim":"report","configs":["net/bridge","net/bridge:ring=packed","net/switch","net/switch:ring=packed"],"operations":["packets/rate-at-load:size=60,direction=one,load=200000","packets/rate-at-load:size=60,direction=half,load=200000"],"boots":1,"packets":{"milliseconds":20,"cpus":[1,0]}}
        {"aim":"report","configs":["net/mine","net/switch"],"operations":["packets/rate:size=60,direction=one","packets/latency:size=60,direction=one","packets/search:size=60,direction=one"],"boots":1,"packets":{"milliseconds":10,"cpus":[1,0]},"forwarders":{"mine":"false {a} {b}"}}
        {"aim":"report","configs":["host"],"operations":["basic/getpid","exits/cpuid"],"preset":"quick","boots":2}
        {"aim":"report","configs":["host"],"operations":["irq"],"preset":"quick","irq":{"between":"halt","load":"none","period":"1ms","pin":"free","samples":"64","sched":"other","threshold":"30us"}}
        {"aim":"report","configs":["host"],"operations":["block/read-4k-1"],"preset":"quick","block":{"mib":16,"requests":32768}}
        {"aim":"report","configs":["host:jobs=1,place=disjoint","host:jobs=1,place=same","host:jobs=2,place=disjoint","host:jobs=2,place=same","sim/linux:jobs=1,place=same"],"operations":["kernel-build/mini"],"boots":2}"#]].assert_eq(&requests.collect::<Vec<_>>().join("\n"));
}

#[test]
fn builds_and_packets_of_format_28_are_operations_of_boots() {
    let (_folder, path, runs) = runs_of_format_28();
    let all: Vec<String> = runs.iter().flat_map(operations).collect();
    expect![[r#"
        net/switch #0 packets/rate:size=60,direction=one,distance=far measured
        net/switch #0 packets/latency:size=60,direction=one,distance=far measured
        net/switch #0 packets/rate:size=200,direction=one,distance=far measured
        net/switch #0 packets/latency:size=200,direction=one,distance=far measured
        net/veth #0 packets/rate:size=200,direction=one,distance=far measured
        net/veth #0 packets/latency:size=200,direction=one,distance=far measured
        net/veth #0 packets/rate:size=60,direction=one,distance=mid measured
        net/veth #0 packets/latency:size=60,direction=one,distance=far measured
        net/switch #1 packets/rate:size=200,direction=one,distance=far measured
        net/switch #1 packets/latency:size=200,direction=one,distance=far measured
        net/switch #1 packets/rate:size=60,direction=one,distance=far measured
        net/switch #1 packets/latency:size=60,direction=one,distance=far measured
        net/veth #1 packets/rate:size=60,direction=one,distance=far measured
        net/veth #1 packets/latency:size=60,direction=one,distance=mid measured
        net/veth #1 packets/rate:size=200,direction=one,distance=mid measured
        net/veth #1 packets/latency:size=200,direction=one,distance=far measured
        net/switch #0 packets/rate-at-load:size=60,direction=half,load=200000,distance=near measured
        net/switch #0 packets/rate-at-load:size=60,direction=one,load=200000,distance=near measured
        net/switch:ring=packed #0 packets/rate-at-load:size=60,direction=half,load=200000,distance=near measured
        net/switch:ring=packed #0 packets/rate-at-load:size=60,direction=one,load=200000,distance=near measured
        net/bridge #0 packets/rate-at-load:size=60,direction=half,load=200000,distance=near measured
        net/bridge #0 packets/rate-at-load:size=60,direction=one,load=200000,distance=near measured
        net/switch #0 packets/rate:size=60,direction=one,distance=near measured
        net/switch #0 packets/latency:size=60,direction=one,distance=near measured
        net/switch #0 packets/search:size=60,direction=one,distance=near 3 trials
        host #0 basic/getpid measured
        host #0 exits/cpuid measured
        host #0 block/read-4k-1 measured
        sim/linux:jobs=1,place=same #0 kernel-build/mini measured
        host:jobs=1,place=disjoint #0 kernel-build/mini measured
        host:jobs=2,place=same #0 kernel-build/mini measured
        host:jobs=1,place=same #0 kernel-build/mini measured
        host:jobs=1,place=disjoint #1 kernel-build/mini measured
        sim/linux:jobs=1,place=same #1 kernel-build/mini measured
        host:jobs=1,place=same #1 kernel-build/mini measured
        host:jobs=2,place=same #1 kernel-build/mini measured"#]]
    .assert_eq(&all.join("\n"));
    let skips = runs.iter().flat_map(|run| &run.skips);
    let skips = skips.map(|(config, reason)| format!("{config}: {reason}"));
    expect![[r#"
        net/mine: the forwarder opens no sockets: try it
        host:jobs=2,place=disjoint: 2(d) needs 3 CPUs, and this process may use 2"#]]
    .assert_eq(&skips.collect::<Vec<_>>().join("\n"));
    for run in &runs {
        assert_eq!(run.info.boots, run.observations.len() as u64);
    }
    let mut store = Store::open(&path).unwrap();
    let migrated = runs.iter().map(|run| store.load(run.info.id).unwrap());
    assert_eq!(migrated.collect::<Vec<_>>(), runs);
    assert_eq!(version(&path), VERSION);
}

#[test]
fn counts_of_format_28_are_kept() {
    let (_folder, _, runs) = runs_of_format_28();
    let Outcome::Measured { trials, .. } = &runs[0].observations[0].operations[0].outcome else {
        panic!("{:?}", runs[0].observations[0]);
    };
    let first = (
        trials[0].sent,
        trials[0].round_trip_ns,
        trials[0].forwarder_cpu_ns,
    );
    assert_eq!(first, (29_760, 857.199_75, Some(12_001_341)));
    let build = &runs[6].observations[0];
    assert_eq!(build.facts["build-objects"], "30");
    let Outcome::Measured {
        samples, elapsed, ..
    } = &build.operations[0].outcome
    else {
        panic!("{build:?}");
    };
    assert_eq!(samples[0].end, 28_587_576_017);
    assert_eq!(*elapsed, Some((28_588_005_150, 28_587_576_017)));
}

/// Trials without a number of queues have one pair.
#[test]
fn trials_of_format_24_have_one_pair_of_queues() {
    let format_24 = "ALTER TABLE trials DROP COLUMN queues; PRAGMA user_version = 24;";
    let (_folder, path) = store_of(include_str!("format_28.sql"), format_24);
    let (_other, with_queues) = store_of(include_str!("format_28.sql"), "");
    let of = |path: &Path| Store::open_existing(path).unwrap().load(RunId(1)).unwrap();
    assert_eq!(of(&path), of(&with_queues));
    assert_eq!(version(&path), 24, "reading changes nothing");
}
