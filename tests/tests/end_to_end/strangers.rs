//! Files and directories of strangers: caches, stores, plans, baselines and configurations that others made. No program in
//! them is executed, no escape sequence reaches a terminal, and nothing panics or hangs.

use rusqlite::types::Value;
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use trapline_abi::Op;
use trapline_model::{testing, Config, EnvironmentId, Outcome, Sample};
use trapline_store::{NewRun, Store};
use trapline_tests::processes::{naming, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::{has_kvm, has_qemu, on_path, write_program};

/// Sets the title of a terminal, moves its cursor, and chooses a colour that Trapline does not use.
const ESCAPES: &str = "\x1b]0;owned\x07\x1b[2J\x1b[35;1mred\u{9b}31m";

/// Runs a command that must not panic or hang, with output as for a terminal.
#[track_caller]
fn run_in_time(mut command: Command, about: &str) -> CommandOutput {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("program starts");
    let number = child.id() as i32;
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(60)).is_err() {
            // SAFETY: a signal to a child that is not reaped yet.
            unsafe { libc::kill(number, libc::SIGKILL) };
        }
    });
    let result = CommandOutput::from(child.wait_with_output().expect("child is reaped"));
    // The watch may have ended.
    let _ = done.send(());
    watch.join().expect("watch ends");
    assert!(
        result.status.is_some_and(|status| status < 100),
        "{about}: {result:?}"
    );
    result
}

#[track_caller]
fn assert_clean(result: &CommandOutput, about: &str) {
    for text in [&result.stdout, &result.stderr] {
        let is_foreign = |c: char| c.is_control() && !"\n\t\x1b".contains(c);
        assert!(!text.contains(is_foreign), "{about}: {text:?}");
        for piece in text.split('\x1b').skip(1) {
            let colour = piece.strip_prefix('[').unwrap_or_default();
            let end = colour.find(|c: char| !c.is_ascii_digit() && c != ';');
            let is_colour = end.is_some_and(|end| colour[end..].starts_with('m'));
            assert!(
                is_colour && !piece.starts_with("[35;1m"),
                "{about}: {text:?}"
            );
        }
    }
}

fn measured(replicate: u32) -> Outcome {
    let sample = |number: u64| Sample {
        start: number * 1_000_000,
        end: number * 1_000_000 + 40_000 + number + u64::from(replicate),
        count: 100,
        host_ns: Some(number * 2_000_000),
        excluded: 0,
    };
    Outcome::Measured {
        clock_cost: 40,
        loop_cost: 1_024,
        samples: (0..20).map(sample).collect(),
        interrupts: vec![],
        trials: Vec::new(),
        check: 1,
        exits: Some(5),
        host_cpu_ns: None,
        idle: None,
        elapsed: Some((20_000_000, 20_000_000)),
    }
}

/// Creates a store with two runs that have rows in most tables.
fn store(place: &Place) -> PathBuf {
    let path = place.store();
    let mut store = Store::open(&path).expect("store can be created");
    let owner = "boot 1 1 1 host".parse().expect("an owner");
    for _ in 0..2 {
        let new = NewRun {
            version: "0.1.0",
            facts: [("cpu".to_owned(), "a processor".to_owned())].into(),
            plan: Some("[[contenders]]\nenv = \"kvm\"\n"),
            owner: Some(&owner),
            ..NewRun::default()
        };
        let run = store.begin_run(&new).expect("write succeeds");
        for replicate in 0..3 {
            let outcomes = [
                (Op::Getpid, Outcome::Skipped("no device".to_owned())),
                (Op::Yield, Outcome::Failed("no answer".to_owned())),
                (Op::PortOut, measured(replicate)),
            ];
            let mut boot = testing::boot(EnvironmentId::KVM, replicate, outcomes);
            boot.facts.insert("vmm".to_owned(), "a program".to_owned());
            boot.log = "output".to_owned();
            boot.problems = vec!["a problem".to_owned()];
            store.add_observation(run, &boot).expect("write succeeds");
        }
        let skipped = Config::new(EnvironmentId::SIM);
        let added = store.add_skip(run, &skipped, "no QEMU");
        added.expect("write succeeds");
        store.finish_run(run).expect("write succeeds");
    }
    path
}

/// Commands that read a store.
const READERS: [&str; 9] = [
    "show --list",
    "show --run 1",
    "show --run 1 --all",
    "show --run 1 --format csv",
    "show --run 1 --format junit",
    "show --run 1 --format json",
    "report --run 1 --output -",
    "history --env kvm",
    "compare 1/kvm 2/kvm",
];

fn read(place: &Place, store: &Path, words: &str, about: &str) -> CommandOutput {
    let all: Vec<&str> = words.split(' ').collect();
    let mut command = place.trapline(&all);
    command
        .arg("--store")
        .arg(store)
        .args(["--color", "always"]);
    run_in_time(command, &format!("{words} with {about}"))
}

/// Returns the columns of all tables whose declared type is `kind`.
fn columns(store: &Path, kind: &str) -> Vec<(String, String)> {
    let connection = Connection::open(store).expect("store exists");
    let sql = "SELECT entry.name, column.name FROM sqlite_master AS entry
               JOIN pragma_table_info(entry.name) AS column
               WHERE entry.type = 'table' AND column.type = ?1 AND column.name NOT IN ('id', 'run', 'boot')";
    let mut statement = connection.prepare(sql).expect("valid query");
    let rows = statement.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.expect("query succeeds")
        .map(|row| row.expect("text"))
        .collect()
}

/// Reads copies of a store, each with one column changed to `value`.
fn read_changed(kind: &str, values: &[Value], check: fn(&CommandOutput, &str)) {
    let place = Place::new();
    let whole = store(&place);
    let changed = place.path().join("changed.db");
    let columns = columns(&whole, kind);
    assert!(columns.len() > 1, "{columns:?}");
    for (table, column) in columns {
        for value in values {
            fs::copy(&whole, &changed).expect("store exists");
            let connection = Connection::open(&changed).expect("copy exists");
            let sql = format!("UPDATE {table} SET {column} = ?1");
            // A column of a key may have equal values only once.
            if connection.execute(&sql, [value]).is_err() {
                continue;
            }
            drop(connection);
            let about = format!("{table}.{column} = {value:?}");
            for words in READERS {
                check(&read(&place, &changed, words, &about), &about);
            }
        }
    }
}

#[test]
fn no_text_of_a_store_controls_a_terminal() {
    let facts = serde_json::json!({ "cpu": ESCAPES, ESCAPES: ESCAPES, "vmm": ESCAPES });
    let values = [ESCAPES.to_owned(), facts.to_string()].map(Value::Text);
    read_changed("TEXT", &values, assert_clean);
}

#[test]
fn no_number_of_a_store_causes_a_panic() {
    let values = [i64::MIN, -5, i64::MAX, 400_000_000_000_000].map(Value::Integer);
    read_changed("INTEGER", &values, |_, _| {});
}

#[test]
fn stores_with_views_and_triggers_are_refused() {
    let place = Place::new();
    let whole = store(&place);
    let changed = place.path().join("changed.db");
    for sql in [
        "CREATE TRIGGER extra AFTER INSERT ON samples BEGIN UPDATE samples SET end_tick = 0; END",
        "DROP TABLE skips; CREATE VIEW skips AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
         SELECT x AS id, 1 AS run, 'sim' AS environment, '' AS reason, '' AS variant FROM n",
        "PRAGMA user_version = -1",
    ] {
        fs::copy(&whole, &changed).expect("store exists");
        let connection = Connection::open(&changed).expect("copy exists");
        connection.execute_batch(sql).expect("valid statement");
        drop(connection);
        let writer = "run --env host --workload basic/getpid --boots 1";
        for words in READERS.into_iter().chain([writer]) {
            let result = read(&place, &changed, words, sql);
            assert_eq!((result.status, result.stdout.as_str()), (Some(1), ""), "{words}");
            let name = changed.display().to_string();
            assert!(result.stderr.contains(&name), "{result:?}");
            assert!(result.stderr.contains("help"), "{result:?}");
        }
    }
}

#[test]
fn no_text_of_a_plan_or_baseline_controls_a_terminal() {
    let place = Place::new();
    let escapes = ESCAPES
        .replace('\x1b', "\\u001b")
        .replace('\x07', "\\u0007");
    let escapes = escapes.replace('\u{9b}', "\\u009b");
    let contender = |key: &str| format!("[[contenders]]\nenv = \"host\"\n{key} = \"{escapes}\"\n");
    let plans = [
        format!("about = \"{escapes}\"\nenvironments = [\"sim\"]\nworkloads = [\"basic/getpid\"]\n"),
        format!("preset = \"{escapes}\"\n"),
        format!("workloads = [\"{escapes}\"]\n"),
        format!("budget = \"{escapes}\"\n"),
        format!("environments = [\"{escapes}\"]\n"),
        format!("[[tables]]\ntitle = \"{escapes}\"\noperations = [\"{escapes}\"]\n"),
        format!("\"{escapes}\" = 1\n"),
        format!("[vmm.\"{escapes}\"]\ncommand = \"x\"\n"),
        format!("[vmm.x]\ncommand = \"x {escapes} {{image}} {{cmdline}}\"\n[[contenders]]\nenv = \"x\"\n"),
        contender("env"),
        contender("memory"),
        contender("kernel"),
        contender("vmm"),
        contender(&format!("\"{escapes}\"")),
    ];
    let file = place.path().join("plan.toml");
    for plan in plans {
        fs::write(&file, &plan).expect("write succeeds");
        let name = file.to_str().expect("path is UTF-8");
        for words in [&["plan", "check", name][..], &["run", "--plan", name]] {
            let mut command = place.trapline(words);
            command.args(["--color", "always"]);
            assert_clean(&run_in_time(command, &plan), &plan);
        }
    }
    let good = r#"{"trapline-baseline": 4, "trapline": "T", "workload": "exits/port-out", "environments":
        {"sim": {"facts": {"qemu": "F"}, "figures": {"insn": {"exits/port-out": 1.0}}}}}"#;
    let file = place.path().join("baseline.json");
    for word in [
        "T",
        "exits/port-out",
        "sim",
        "F",
        "qemu",
        "insn",
        "facts",
        "workload",
    ] {
        let baseline = good.replace(&format!("\"{word}\""), &format!("\"{escapes}\""));
        fs::write(&file, &baseline).expect("write succeeds");
        let name = file.to_str().expect("path is UTF-8");
        let mut command = place.trapline(&["check", "--baseline", name, "--color", "always"]);
        // Nothing is booted.
        command.env("PATH", place.path());
        assert_clean(&run_in_time(command, &baseline), &baseline);
    }
}

#[test]
fn an_invalid_configuration_hinders_only_what_uses_it() {
    let place = Place::new();
    let vmms = place.path().join("trapline/vmms");
    fs::create_dir_all(&vmms).expect("path is unused");
    fs::write(
        vmms.join("good.toml"),
        "[vmm.good]\ncommand = 'x {image} {cmdline}'\n",
    )
    .expect("write succeeds");
    let invalid: [&[u8]; 4] = [
        b"[vmm.kvm]\ncommand = 'x {image} {cmdline}'\n",
        b"\xff\xfe",
        b"not TOML",
        b"[vmm.bad]\nunknown = 1\n",
    ];
    let store = store(&place);
    for text in invalid {
        fs::write(vmms.join("bad.toml"), text).expect("write succeeds");
        for words in ["show --list", "show", "history --env kvm"] {
            let result = read(&place, &store, words, "an invalid configuration");
            assert_eq!(result.status, Some(0), "{words}: {result:?}");
            assert!(result.stderr.contains("bad.toml"), "{result:?}");
        }
        let used = place.run(&["run", "--env", "bad", "--workload", "basic/getpid"]);
        assert_eq!(used.status, Some(2), "{used:?}");
        assert!(used.stderr.contains("bad.toml"), "{used:?}");
        let other = place.run(&["run", "--env", "good", "--workload", "nothing"]);
        assert!(!other.stderr.contains("'good'"), "it is defined: {other:?}");
    }
}

/// Commands that use the cache.
const USERS: [&[&str]; 5] = [
    &["list"],
    &[
        "run",
        "--env",
        "host",
        "--workload",
        "basic/getpid",
        "--boots",
        "1",
    ],
    &["cache", "list"],
    &["cache", "prune", "--all"],
    &["explain", "sim", "basic/getpid"],
];

/// A program in a cache that others can write is not started.
#[test]
fn a_cache_that_others_can_change_is_refused() {
    let place = Place::new();
    let caches = place.path().join("caches");
    let cache = caches.join("trapline");
    let planted = cache.join("uml/user-mode-linux_9/usr/bin/linux.uml");
    fs::create_dir_all(planted.parent().expect("path is nested")).expect("path is unused");
    let proof = place.path().join("executed");
    write_program(&planted, format!("#!/bin/sh\ntouch {}\n", proof.display()));
    for mode in [0o777, 0o1777, 0o770, 0o702] {
        fs::set_permissions(&cache, fs::Permissions::from_mode(mode)).expect("it is ours");
        for words in USERS {
            let mut command = place.trapline(words);
            command.env("XDG_CACHE_HOME", &caches);
            let result = run_in_time(command, "a cache of others");
            assert_eq!(
                (result.status, result.stdout.as_str()),
                (Some(1), ""),
                "{words:?}"
            );
            let remedy = format!("\n  help: chmod go-w {}\n", cache.display());
            assert!(result.stderr.contains(&remedy), "{result:?}");
        }
    }
    assert!(planted.exists() && !proof.exists());
}

#[test]
fn without_a_home_there_is_no_cache_and_no_store() {
    let place = Place::new();
    for words in USERS {
        let mut command = place.trapline(words);
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
        let result = run_in_time(command, "no home");
        assert_eq!(
            (result.status, result.stdout.as_str()),
            (Some(1), ""),
            "{words:?}"
        );
        assert!(
            result.stderr.contains("\n  help: set XDG_CACHE_HOME "),
            "{result:?}"
        );
    }
    let mut command = place.trapline(&["show"]);
    command.env_remove("HOME").env_remove("XDG_DATA_HOME");
    let result = run_in_time(command, "no home");
    assert_eq!(result.status, Some(1), "{result:?}");
    assert!(result.stderr.contains("--store FILE"), "{result:?}");
}

#[test]
fn a_store_that_others_can_change_is_refused() {
    let place = Place::new();
    let store = store(&place);
    fs::set_permissions(&store, fs::Permissions::from_mode(0o666)).expect("it is ours");
    for words in READERS {
        let result = read(&place, &store, words, "a store of others");
        assert_eq!(
            (result.status, result.stdout.as_str()),
            (Some(1), ""),
            "{words}"
        );
        assert!(result.stderr.contains("chmod go-w"), "{result:?}");
    }
}

#[test]
fn the_probe_dies_with_the_lab() {
    if !has_kvm("the speed of ring 0") {
        return;
    }
    let place = Place::new();
    place.replace_program("trapline-probe", b"#!/bin/sh\nkill -STOP $$\n");
    let probe = place.parts().join("trapline-probe");
    let mut doctor = place
        .trapline(&["doctor"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("program starts");
    assert!(wait_until(TO_BEGIN, || !naming(&probe).is_empty()));
    signal(&doctor, libc::SIGKILL);
    doctor.wait().expect("child is reaped");
    assert!(
        wait_until(TO_BEGIN, || naming(&probe).is_empty()),
        "it lives on"
    );
}

/// QEMU's first start is a check of its version.
#[test]
fn ctrl_c_while_environments_are_checked_is_130() {
    if !has_qemu("stopping a check of QEMU") {
        return;
    }
    let real = on_path("qemu-system-x86_64").expect("QEMU is installed");
    let baseline = r#"{"trapline-baseline": 3, "trapline": "", "workload": "basic/getpid", "environments":
        {"sim": {"facts": {}, "figures": {"insn": {"basic/getpid": 1.0}}}}}"#;
    for words in [
        "run --env sim --workload basic/getpid",
        "check --baseline baseline.json",
        "baseline --env sim --workload basic/getpid",
        "explain sim basic/getpid",
    ] {
        let place = Place::new();
        let started = place.path().join("started");
        let script = format!("touch {}; sleep 60", started.display());
        place.use_qemu(&script, &real);
        fs::write(place.path().join("baseline.json"), baseline).expect("write succeeds");
        let words_of: Vec<&str> = words.split(' ').collect();
        let mut command = place.trapline(&words_of);
        command.current_dir(place.path());
        command.env("XDG_CACHE_HOME", place.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("program starts");
        assert!(wait_until(TO_BEGIN, || started.exists()), "{words}");
        signal(&child, libc::SIGINT);
        let result = CommandOutput::from(child.wait_with_output().expect("child is reaped"));
        assert_eq!(result.status, Some(130), "{words}: {result:?}");
        assert!(!result.stderr.contains("help:"), "{words}: {result:?}");
    }
}
