//! Studies that are written down: checked, run, killed and resumed.

use rusqlite::Connection;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use trapline_tests::run::{Ended, Place};
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
    std::fs::write(&path, text).expect("it can be written");
    path
}

fn words<'a>(store: &'a Path, plan: &'a Path) -> Vec<&'a str> {
    let text = |path: &'a Path| path.to_str().expect("the path is text");
    vec![
        "run",
        "--format",
        "json",
        "--store",
        text(store),
        text(plan),
    ]
}

/// The digits of exact figures, and how many boots and batches each cell is of.
fn table(ended: &Ended) -> Vec<(String, Option<f64>, u64, u64)> {
    let json = ended.json();
    let cells = json["cells"].as_array().expect("there are cells");
    let row = |cell: &Value| {
        let exact = (cell["clock"] == "insn").then(|| cell["estimate"].as_f64().expect("a figure"));
        (
            format!("{} {}", cell["environment"], cell["operation"]),
            exact,
            cell["boots"].as_u64().unwrap_or(0),
            cell["samples"].as_u64().unwrap_or(0),
        )
    };
    let mut rows: Vec<_> = cells.iter().map(row).collect();
    // How many batches a boot takes is the clock's doing on the wall clock.
    for row in rows.iter_mut().filter(|row| row.1.is_none()) {
        row.3 = row.3.min(1);
    }
    rows
}

/// All samples of the first `boots` boots of a store, as text.
fn samples(store: &Path, boots: u64) -> String {
    let connection = Connection::open(store).expect("the store is there");
    let sql = "SELECT boot, samples.operation, number, start_tick, end_tick, count
               FROM samples JOIN operations ON operations.id = samples.operation
               WHERE boot <= ?1 ORDER BY boot, samples.operation, number";
    let mut statement = connection.prepare(sql).expect("it has samples");
    let rows = statement.query_map([boots], |row| {
        let columns =
            [0, 2, 3, 4, 5].map(|column| row.get::<_, i64>(column).map(|it| it.to_string()));
        let columns: Result<Vec<String>, _> = columns.into_iter().collect();
        Ok(columns?.join(" "))
    });
    let rows: Result<Vec<String>, _> = rows.expect("they can be read").collect();
    rows.expect("they are numbers").join("\n")
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
    let place = Place::new();
    let plan = written(&place, STUDY);
    let whole = place.run(&words(&place.path().join("whole.db"), &plan));
    assert_eq!(whole.status, Some(0), "{}", whole.errors);
    let store = place.path().join("killed.db");
    let mut kept = 0;
    for target in [0, 1, 3, 5, 7, 10, 13, 15, 18, 20] {
        let mut run = place
            .trapline(&words(&store, &plan))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be started");
        while boots(&store) < target && run.try_wait().expect("it is ours").is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Within the next boot, at no regular distance.
        std::thread::sleep(Duration::from_millis(target * 37 % 90));
        run.kill().expect("it is ours");
        run.wait().expect("it is ours");
        assert!(boots(&store) >= kept, "boots were lost");
        kept = boots(&store);
    }
    assert!(kept >= 20, "{kept} boots");
    let before = samples(&store, kept);
    let resumed = place.run(&words(&store, &plan));
    assert_eq!(resumed.status, Some(0), "{}", resumed.errors);
    assert_eq!(table(&resumed), table(&whole));
    assert_eq!(
        samples(&store, kept),
        before,
        "what was measured is left alone"
    );
    assert_eq!(
        boots(&store),
        12 + 12 + 2,
        "host, host again, and sim with its proof"
    );
    let runs = Connection::open(&store).expect("the store is there");
    let runs: u64 = runs
        .query_row("SELECT count(*) FROM runs", [], |row| row.get(0))
        .expect("it has runs");
    assert_eq!(runs, 1, "it is all one run");
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
    assert_eq!(boots(&store), 4, "a finished run is not gone on with");
    let left = |sql: &str| {
        let connection = Connection::open(&store).expect("the store is there");
        // What hangs on a boot that is taken away means nothing.
        let sql = format!("PRAGMA foreign_keys = OFF; {sql}");
        connection.execute_batch(&sql).expect("it can be changed");
    };
    let unfinish = "DELETE FROM boots WHERE run = 2 AND replicate = 1;
                    UPDATE runs SET finished_at = NULL WHERE id = 2;";
    left(unfinish);
    let again = run();
    assert!(
        again.errors.contains("resuming run 2: 1 boots"),
        "{}",
        again.errors
    );
    assert_eq!(boots(&store), 4);
    left(unfinish);
    left("UPDATE runs SET facts = json_set(facts, '$.cpu', 'another') WHERE id = 2");
    let anew = run();
    assert!(
        anew.errors
            .contains("run 2 is unfinished, but 'cpu' has changed from another"),
        "{}",
        anew.errors
    );
    assert_eq!(
        boots(&store),
        5,
        "boots of another processor are not mixed in"
    );
}

#[test]
fn matrix_has_a_table_for_each_setting() {
    let place = Place::new();
    let text = "environments = ['host', 'qemu-tcg']\nworkloads = ['basic/getpid']\nboots = 1\n\
                [machine]\nmemory = ['128M', '160M']";
    let plan = written(&place, text);
    let ended = place.run(&words(&place.store(), &plan));
    if !has_qemu("machine settings of qemu-tcg") {
        return;
    }
    let told = ended.json();
    let variants = told["variants"].as_array().expect("there are two");
    let names: Vec<&str> = variants
        .iter()
        .filter_map(|one| one["variant"].as_str())
        .collect();
    assert_eq!(names, ["memory=128M", "memory=160M"]);
    for one in variants {
        let cells = one["cells"].as_array().expect("there are cells");
        let environments: Vec<&Value> = cells.iter().map(|cell| &cell["environment"]).collect();
        assert_eq!(
            environments,
            ["host", "qemu-tcg"],
            "the bare row stands in each"
        );
    }
    assert_eq!(
        boots(&place.store()),
        3,
        "the host has no such memory, and is booted once"
    );
}

#[test]
fn no_block_starts_after_the_budget() {
    let place = Place::new();
    let text = "environments = ['host']\nworkloads = ['basic/getpid']\nboots = 500\nbudget = '1s'";
    let plan = written(&place, text);
    let ended = place.run(&words(&place.store(), &plan));
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    assert!((1..500).contains(&boots(&place.store())));
}

#[test]
fn invalid_plan_is_reported_with_its_line() {
    let place = Place::new();
    let plan = written(&place, "environments = [\n  'host',\n  'qemu-kmv',\n]");
    let plan = plan.to_str().expect("text");
    for command in [&["run", plan][..], &["plan", "check", plan]] {
        let ended = place.run(command);
        assert_eq!((ended.status, ended.output.as_str()), (Some(2), ""));
        assert!(
            ended.errors.contains("study.toml, line 3: "),
            "{}",
            ended.errors
        );
        assert!(
            ended.errors.contains("did you mean 'qemu-kvm'?"),
            "{}",
            ended.errors
        );
        assert!(ended.errors.contains("\n  help: "), "{}", ended.errors);
    }
    let both = place.run(&["run", plan, "--env", "host"]);
    assert_eq!(both.status, Some(2));
    let none = place.run(&["run", "no.toml"]);
    assert!(
        none.errors.contains("cannot read the plan no.toml"),
        "{}",
        none.errors
    );
}

#[test]
fn plans_of_the_repository_are_valid() {
    let place = Place::new();
    let plans = std::fs::read_dir(root().join("plans")).expect("there are plans");
    let mut checked = 0;
    for plan in plans.flatten() {
        let path = plan.path();
        let ended = place.run(&[
            "plan",
            "check",
            "--format",
            "json",
            path.to_str().expect("text"),
        ]);
        assert_eq!(
            ended.status,
            Some(0),
            "{}: {}",
            path.display(),
            ended.errors
        );
        assert!(!ended.json()["about"].as_str().expect("text").is_empty());
        checked += 1;
    }
    assert!(checked > 0);
}
