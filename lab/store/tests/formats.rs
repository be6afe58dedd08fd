//! Stores of earlier formats.

use crate::common;

use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use trapline_abi::{Counter, CpuState, Interrupt, Op, Stage};
use trapline_model::packets::{
    Direction, Frames, PlannedTrial, Purpose, Ring, Trial, TrialOutcome,
};
use trapline_model::{Config, Launch, Observation, Outcome, Sample};
use trapline_store::{Run, RunId, RunInfo, Store, VERSION};

/// Statements that turn format 5 into format 1.
const TO_FORMAT_1: &str =
    "DELETE FROM operations WHERE operation IN ('block/read-4k-1', 'irq/own-timer');
    DROP TABLE interrupts; DROP TABLE requests; DROP TABLE builds;
    ALTER TABLE boots DROP COLUMN variant; ALTER TABLE skips DROP COLUMN variant;
    ALTER TABLE runs DROP COLUMN keeper; ALTER TABLE runs DROP COLUMN plan;
    PRAGMA user_version = 1;";

fn store(further: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(include_str!("format_5.sql"))
        .unwrap();
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
            "kvm:again",
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
        request: "--env kvm,sim/kvm --workload exits".to_owned(),
        version: "0.1.0".to_owned(),
        facts: BTreeMap::from([("cpu".to_owned(), "a \"CPU\"".to_owned())]),
        boots: 4,
        owner: Some("1 2".to_owned()),
        plan: Some("[plan]".to_owned()),
    };
    assert_eq!(run.info, info);
    assert_eq!(
        (build.info.finished_at, build.info.boots, build.builds.len()),
        (None, 1, 1)
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
            "SELECT cpus, memory_mib, pin, vmm, again FROM boots WHERE id = 3",
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
    let controls = connection.query_row("SELECT sum(again) FROM boots", [], |row| row.get(0));
    assert_eq!(controls, Ok(1));
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
    assert_eq!((before.info.boots, before.builds.len()), (4, 0));
    let mut store = Store::open(&path).unwrap();
    let boot = common::boot_with_interrupts();
    store.add_observation(run, &boot).unwrap();
    let all = store.load(run).unwrap().observations;
    assert_eq!((all.len(), &all[4], version(&path)), (5, &boot, VERSION));
    assert_eq!(all[..4], before.observations);
}

#[test]
fn trials_of_format_24_have_one_pair_of_queues() {
    let (_folder, path) = store("");
    let run = RunId(1);
    let trial = |queues| Trial {
        planned: PlannedTrial {
            round: 2,
            path: "switch".to_owned(),
            frames: Frames {
                size: 60,
                ring: Ring::Packed,
                queues,
                direction: Direction::Both,
            },
        },
        purpose: Purpose::Given,
        offered: Some(1e6),
        outcome: TrialOutcome::Skipped("no switch".to_owned()),
    };
    let mut current = Store::open(&path).unwrap();
    current.add_trial(run, &trial(4)).unwrap();
    assert_eq!(current.load(run).unwrap().trials, [trial(4)]);
    drop(current);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("ALTER TABLE trials DROP COLUMN queues; PRAGMA user_version = 24;")
        .unwrap();
    drop(connection);
    let before = Store::open_existing(&path).unwrap().load(run).unwrap();
    assert_eq!(version(&path), 24, "reading changes nothing");
    assert_eq!(before.trials, [trial(1)]);
    let migrated = Store::open(&path).unwrap().load(run).unwrap();
    assert_eq!((migrated.trials, version(&path)), (before.trials, VERSION));
}
