//! Failures of a store that need its connection.

use super::*;
use trapline_model::EnvironmentId;

/// SQLite reports a full disk and a file at its greatest size alike.
#[test]
fn a_full_disk_keeps_finished_boots() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
    store
        .connection
        .pragma_update(None, "max_page_count", 80)
        .unwrap();
    let run = store.begin_run(&NewRun::default()).unwrap();
    let boot = |replicate: usize| Observation {
        log: "x".repeat(10_000),
        ..trapline_model::testing::boot(EnvironmentId::HOST, replicate as u32, [])
    };
    let mut stored = 0;
    let error = loop {
        match store.add_observation(run, &boot(stored)) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error.problem, Problem::Full), "{error:?}");
    assert!(stored > 5);
    assert_eq!(store.load(run).unwrap().observations.len(), stored);
}

#[test]
fn stores_with_definitions_of_others_or_without_a_format_are_refused() {
    let code = [
        "CREATE VIEW extra AS SELECT 1",
        "DROP TABLE skips; CREATE VIEW skips AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
         SELECT x AS id, 1 AS run, 'sim' AS environment, '' AS reason, '' AS variant FROM n",
        "CREATE TRIGGER extra AFTER INSERT ON samples BEGIN UPDATE samples SET end_tick = 0; END",
        "CREATE TRIGGER extra BEFORE DELETE ON runs BEGIN SELECT 1; END",
        "CREATE VIEW pairs AS SELECT 1 AS id; CREATE TRIGGER extra INSTEAD OF INSERT ON pairs BEGIN SELECT 1; END",
        "ALTER TABLE samples ADD COLUMN extra INTEGER GENERATED ALWAYS AS (end_tick * 2)",
        "CREATE TABLE extra (a, b AS (a * 2) STORED)",
        "CREATE TABLE extra (a)",
        "CREATE INDEX extra ON boots (abs(id))",
        "CREATE UNIQUE INDEX extra ON samples (operation)",
        "ALTER TABLE runs ADD COLUMN extra INTEGER",
        "DROP INDEX boots_of_run; CREATE INDEX boots_of_run ON boots (run) WHERE run > 1",
        "DROP TABLE samples; CREATE TABLE samples (operation INTEGER NOT NULL REFERENCES operations,
         number INTEGER NOT NULL, start_tick INTEGER NOT NULL, end_tick INTEGER NOT NULL, count INTEGER NOT NULL,
         host_ns INTEGER, PRIMARY KEY (operation, number), UNIQUE (operation) ON CONFLICT REPLACE) WITHOUT ROWID",
        "DROP TABLE skips; CREATE TABLE skips (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs,
         environment TEXT NOT NULL, reason TEXT NOT NULL, variant TEXT NOT NULL DEFAULT '/*',
         extra INTEGER UNIQUE ON CONFLICT REPLACE, more DEFAULT '*/')",
        "PRAGMA user_version = -1",
        "PRAGMA user_version = -2147483648",
        "PRAGMA user_version = 0",
    ];
    for sql in code {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        let mut store = Store::open(&path).unwrap();
        store.begin_run(&NewRun::default()).unwrap();
        drop(store);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let before = std::fs::read(&path).unwrap();
        let errors = [Store::open(&path).err(), Store::open_existing(&path).err()];
        for error in errors {
            let problem = error.unwrap_or_else(|| panic!("{sql}: accepted")).problem;
            let is_refused = matches!(problem, Problem::Unknown(_) | Problem::Corrupt(_));
            assert!(is_refused, "{sql}: {problem:?}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "{sql}: changed");
    }
}

#[test]
fn a_store_that_vanishes_is_an_error_of_every_later_call() {
    let vanish: [fn(&Path); 4] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::rename(path, path.with_extension("old")).unwrap(),
        |path| {
            std::fs::copy(path, path.with_extension("copy")).unwrap();
            std::fs::rename(path.with_extension("copy"), path).unwrap();
        },
        |path| std::fs::remove_dir_all(path.parent().unwrap()).unwrap(),
    ];
    let boot = trapline_model::testing::boot(EnvironmentId::HOST, 0, []);
    for vanish in vanish {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/runs.db");
        let mut store = Store::open(&path).unwrap();
        let run = store.begin_run(&NewRun::default()).unwrap();
        store.add_observation(run, &boot).unwrap();
        vanish(&path);
        let config = Config::new(EnvironmentId::HOST);
        let owner: Owner = "boot 1 1 1 host".parse().unwrap();
        let results = [
            store.begin_run(&NewRun::default()).map(drop),
            store.add_observation(run, &boot),
            store.add_skip(run, &config, "reason"),
            store.finish_run(run),
            store
                .take_over(run, None, (&owner, &Host::default()))
                .map(drop),
            store.load(run).map(drop),
            store.runs().map(drop),
            store.booted(run).map(drop),
        ];
        for result in results {
            let problem = result.unwrap_err().problem;
            assert!(matches!(problem, Problem::Vanished), "{problem:?}");
        }
    }
}

/// The order of boots is random, that of columns is not.
#[test]
fn vmms_that_are_not_defined_are_in_the_order_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
    let run = store.begin_run(&NewRun::default()).unwrap();
    for (replicate, name) in [(0, "sim/filtered"), (1, "sim/early")] {
        let boot = trapline_model::testing::boot(EnvironmentId::HOST, replicate, []);
        store.add_observation(run, &boot).unwrap();
        let sql = "UPDATE boots SET environment = ?1 WHERE replicate = ?2";
        let changed = store.connection.execute(sql, (name, replicate));
        assert_eq!(changed, Ok(1));
    }
    let observations = store.load(run).unwrap().observations;
    let [first, second] = [0, 1].map(|boot| observations[boot].config.environment);
    assert_eq!([first.name(), second.name()], ["sim/filtered", "sim/early"]);
    assert!(second < first, "columns are in the order of boots");
}
