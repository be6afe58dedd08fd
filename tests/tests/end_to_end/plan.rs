//! Plans: checked, run, killed and resumed.

use rusqlite::Connection;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::{has_qemu, root};

/// A small study on both clocks.
const STUDY: &str = r#"
environments = ["host", "sim"]
workloads = ["basic/getpid", "exits/cpuid"]
boots = 12
seed = 3
"#;

fn written(place: &Place, text: &str) -> PathBuf {
    let path = place.path().join("study.toml");
    std::fs::write(&path, text).expect("write succeeds");
    path
}

fn words<'a>(store: &'a Path, plan: &'a Path) -> Vec<&'a str> {
    let text = |path: &'a Path| path.to_str().expect("path is UTF-8");
    vec![
        "run",
        "--format",
        "json",
        "--store",
        text(store),
        text(plan),
    ]
}

/// Returns exact figures, boots and batches of each cell.
fn table(result: &CommandOutput) -> Vec<(String, Option<f64>, u64, u64)> {
    let json = result.json();
    let cells = json["cells"].as_array().expect("run has cells");
    let row = |cell: &Value| {
        let exact = (cell["clock"] == "insn").then(|| cell["estimate"].as_f64().expect("figure"));
        (
            format!("{} {}", cell["environment"], cell["operation"]),
            exact,
            cell["boots"].as_u64().unwrap_or(0),
            cell["samples"].as_u64().unwrap_or(0),
        )
    };
    let mut rows: Vec<_> = cells.iter().map(row).collect();
    // On the wall clock the number of batches varies.
    for row in rows.iter_mut().filter(|row| row.1.is_none()) {
        row.3 = row.3.min(1);
    }
    rows
}

/// Returns all samples of the first `boots` boots of a store.
fn samples(store: &Path, boots: u64) -> String {
    let connection = Connection::open(store).expect("store exists");
    let sql = "SELECT boot, samples.operation, number, start_tick, end_tick, count
               FROM samples JOIN operations ON operations.id = samples.operation
               WHERE boot <= ?1 ORDER BY boot, samples.operation, number";
    let mut statement = connection.prepare(sql).expect("table of samples");
    let rows = statement.query_map([boots], |row| {
        let columns =
            [0, 2, 3, 4, 5].map(|column| row.get::<_, i64>(column).map(|it| it.to_string()));
        let columns: Result<Vec<String>, _> = columns.into_iter().collect();
        Ok(columns?.join(" "))
    });
    let rows: Result<Vec<String>, _> = rows.expect("rows").collect();
    rows.expect("integers").join("\n")
}

fn boots(store: &Path) -> u64 {
    let Ok(connection) = Connection::open(store) else {
        return 0;
    };
    connection
        .query_row("SELECT count(*) FROM boots", [], |row| row.get(0))
        .unwrap_or(0)
}

#[test]
fn run_killed_ten_times_resumes_to_the_same_table() {
    if !has_qemu("resuming a run of sim") {
        return;
    }
    let place = Place::reproducing();
    let plan = written(&place, STUDY);
    let whole = place.run(&words(&place.path().join("whole.db"), &plan));
    assert_eq!(whole.status, Some(0), "{}", whole.stderr);
    let store = place.path().join("killed.db");
    let mut kept = 0;
    for target in [0, 1, 3, 5, 7, 9, 11, 13, 14, 16] {
        let mut run = place
            .trapline(&words(&store, &plan))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("program starts");
        while boots(&store) < target && run.try_wait().expect("file is owned by the test").is_none()
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Some time within the next boot.
        std::thread::sleep(Duration::from_millis(target * 37 % 90));
        run.kill().expect("file is owned by the test");
        run.wait().expect("file is owned by the test");
        assert!(boots(&store) >= kept, "boots were lost");
        kept = boots(&store);
    }
    assert!(kept >= 16, "{kept} boots");
    let before = samples(&store, kept);
    let resumed = place.run(&words(&store, &plan));
    assert_eq!(resumed.status, Some(0), "{}", resumed.stderr);
    assert_eq!(table(&resumed), table(&whole));
    assert_eq!(
        samples(&store, kept),
        before,
        "stored samples are unchanged"
    );
    assert_eq!(
        boots(&store),
        12 + 12 + 2,
        "host, host again, and sim with its proof"
    );
    let runs = Connection::open(&store).expect("store exists");
    let runs: u64 = runs
        .query_row("SELECT count(*) FROM runs", [], |row| row.get(0))
        .expect("table of runs");
    assert_eq!(runs, 1, "the store has one run");
}

#[test]
fn resumed_run_measures_only_the_rest() {
    let place = Place::new();
    let plan = written(
        &place,
        "environments = ['host']\nworkloads = ['basic/getpid']\nboots = 2",
    );
    let store = place.store();
    let run = || place.run(&words(&store, &plan));
    assert_eq!(run().status, Some(0));
    assert_eq!(run().status, Some(0));
    assert_eq!(boots(&store), 4, "a finished run is not resumed");
    let left = |sql: &str| {
        let connection = Connection::open(&store).expect("store exists");
        // Rows of the removed boot stay.
        let sql = format!("PRAGMA foreign_keys = OFF; {sql}");
        connection.execute_batch(&sql).expect("statement is valid");
    };
    let unfinish = "DELETE FROM boots WHERE run = 2 AND replicate = 1;
                    UPDATE runs SET finished_at = NULL WHERE id = 2;";
    left(unfinish);
    let again = run();
    assert!(
        again.stderr.contains("resuming run 2: 1 boots"),
        "{}",
        again.stderr
    );
    assert_eq!(boots(&store), 4);
    left(unfinish);
    left("UPDATE runs SET facts = json_set(facts, '$.cpu', 'another') WHERE id = 2");
    let anew = run();
    assert!(
        anew.stderr
            .contains("run 2 is unfinished, but 'cpu' has changed from another"),
        "{}",
        anew.stderr
    );
    assert_eq!(
        boots(&store),
        5,
        "boots of another processor are not mixed in"
    );
}

#[test]
fn matrix_has_a_cell_for_each_setting() {
    let place = Place::new();
    let text = "environments = ['host', 'qemu-tcg']\nworkloads = ['basic/getpid']\nboots = 1\n\
                [machine]\nmemory = ['128M', '160M']";
    let plan = written(&place, text);
    let result = place.run(&words(&place.store(), &plan));
    if !has_qemu("machine settings of qemu-tcg") {
        return;
    }
    let json = result.json();
    let cells = json["cells"].as_array().expect("run has cells");
    let configs = cells.iter().map(|cell| {
        let settings = cell.get("settings").and_then(Value::as_str);
        (cell["environment"].as_str(), settings)
    });
    let expected = [
        (Some("host"), None),
        (Some("qemu-tcg"), Some("memory=128M")),
        (Some("qemu-tcg"), Some("memory=160M")),
    ];
    assert_eq!(configs.collect::<Vec<_>>(), expected);
    for cell in cells {
        assert!(
            cell["ratio"].is_number(),
            "the bare row is each one's: {cell}"
        );
    }
    assert_eq!(
        boots(&place.store()),
        3,
        "the host has no memory setting and is booted once"
    );
}

#[test]
fn no_block_starts_after_the_budget() {
    let place = Place::new();
    let text = "environments = ['host']\nworkloads = ['basic/getpid']\nboots = 500\nbudget = '1s'";
    let plan = written(&place, text);
    let result = place.run(&words(&place.store(), &plan));
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    assert!((1..500).contains(&boots(&place.store())));
}

#[test]
fn invalid_plan_is_reported_with_its_line() {
    let place = Place::new();
    let plan = written(&place, "environments = [\n  'host',\n  'qemu-kmv',\n]");
    let plan = plan.to_str().expect("text");
    for command in [&["run", plan][..], &["plan", "check", plan]] {
        let result = place.run(command);
        assert_eq!((result.status, result.stdout.as_str()), (Some(2), ""));
        assert!(
            result.stderr.contains("study.toml, line 3: "),
            "{}",
            result.stderr
        );
        assert!(
            result.stderr.contains("did you mean 'qemu-kvm'?"),
            "{}",
            result.stderr
        );
        assert!(result.stderr.contains("\n  help: "), "{}", result.stderr);
    }
    let both = place.run(&["run", plan, "--env", "host"]);
    assert_eq!(both.status, Some(2));
    let none = place.run(&["run", "no.toml"]);
    assert!(
        none.stderr.contains("cannot read the plan no.toml"),
        "{}",
        none.stderr
    );
}

#[test]
fn plans_of_the_repository_are_valid() {
    let place = Place::new();
    let plans = std::fs::read_dir(root().join("plans")).expect("directory of plans");
    let mut checked = 0;
    for plan in plans.flatten() {
        let path = plan.path();
        let result = place.run(&[
            "plan",
            "check",
            "--format",
            "json",
            path.to_str().expect("text"),
        ]);
        assert_eq!(
            result.status,
            Some(0),
            "{}: {}",
            path.display(),
            result.stderr
        );
        assert!(!result.json()["about"].as_str().expect("text").is_empty());
        checked += 1;
    }
    assert!(checked > 0);
}
