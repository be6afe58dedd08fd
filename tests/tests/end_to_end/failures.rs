//! Failures around a run: an unusable store, missing, broken or hostile parts, signals. Stored boots are
//! kept, no process is left, and the message has a remedy.

use std::path::Path;
use std::process::{Child, Stdio};
use trapline_tests::processes::{naming, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::{has_kvm, has_qemu, skip, write_program};

/// A quick run of one boot on the host.
const QUICK: [&str; 6] = [
    "--env",
    "host",
    "--workload",
    "basic/getpid",
    "--boots",
    "1",
];

fn run_with_store(place: &Place, store: &Path) -> CommandOutput {
    let store = store.to_str().expect("path is UTF-8");
    place.run(&[&["run", "--store", store][..], &QUICK].concat())
}

#[track_caller]
fn assert_fails(result: &CommandOutput, messages: &[&str]) {
    assert_eq!(result.status, Some(1), "{result:?}");
    assert_eq!(result.stdout, "", "a table was printed");
    assert!(result.stderr.starts_with("error: "), "{}", result.stderr);
    assert!(result.stderr.contains("\n  help: "), "{}", result.stderr);
    for words in messages {
        assert!(
            result.stderr.contains(words),
            "'{words}' is not in: {}",
            result.stderr
        );
    }
}

/// Runs one operation in one boot.
fn getpid_once(place: &Place, environments: &str) -> CommandOutput {
    let words = "--workload basic/getpid --boots 1 --format json";
    let mut all = vec!["run", "--env", environments];
    all.extend(words.split(' '));
    place.run(&all)
}

/// The command alone, without parts, is what `cargo install` installs.
#[test]
fn command_alone_shows_stored_runs_and_names_the_remedy_for_missing_parts() {
    let place = Place::new();
    for _ in 0..2 {
        let result = run_with_store(&place, &place.store());
        assert_eq!(result.status, Some(0), "{}", result.stderr);
    }
    let alone = place.path().join("alone");
    std::fs::create_dir(&alone).expect("path is unused");
    let program = alone.join("trapline");
    let trapline = std::fs::read(place.parts().join("trapline"));
    write_program(&program, trapline.expect("part is built"));
    let run = |words: &str| {
        let (store, words) = (place.store(), words.split(' '));
        let words = words.map(|word| match word {
            "STORE" => store.to_str().expect("path is UTF-8"),
            word => word,
        });
        let mut command = std::process::Command::new(&program);
        command.args(words).env_remove("TRAPLINE_PARTS");
        command
            .env("XDG_DATA_HOME", place.path())
            .current_dir(&alone);
        CommandOutput::from(command.output().expect("trapline starts"))
    };
    for words in [
        "show --store STORE",
        "compare 1 2 --store STORE --html compare.html",
        "report --store STORE",
        "export samples.csv --store STORE",
        "history --store STORE",
        "list",
    ] {
        let result = run(words);
        assert_eq!(result.status, Some(0), "{words}: {}", result.stderr);
    }
    for words in ["floor", "explain sim exits/port-out"] {
        if words == "floor" || has_qemu("missing parts of the simulated machine") {
            let remedies = [
                "is not in ",
                "Debian package",
                "make build",
                "TRAPLINE_PARTS",
            ];
            assert_fails(&run(words), &remedies);
        }
    }
}

#[test]
fn unwritable_store_is_rejected_before_the_run() {
    let place = Place::new();
    let below_a_file = place.path().join("parts/trapline/runs.db");
    assert_fails(
        &run_with_store(&place, &below_a_file),
        &["runs.db", "--store FILE"],
    );
    assert_fails(&run_with_store(&place, place.path()), &["--store FILE"]);
}

#[test]
fn foreign_file_as_store_is_rejected_unchanged() {
    let place = Place::new();
    let letter = "Dear store, this is a letter and no database. ".repeat(100);
    std::fs::write(place.store(), &letter).expect("write succeeds");
    assert_fails(
        &run_with_store(&place, &place.store()),
        &["damaged or not a store", "--store FILE"],
    );
    let store = place.store();
    let shown = place.run(&["show", "--store", store.to_str().expect("text")]);
    assert_fails(&shown, &["damaged or not a store"]);
    assert_eq!(
        std::fs::read_to_string(place.store()).expect("file exists"),
        letter
    );
}

/// `user_version`, 4 bytes, big endian (SQLite file format, section 1.3).
const USER_VERSION: std::ops::Range<usize> = 60..64;

#[test]
fn newer_store_is_rejected_unchanged() {
    let place = Place::new();
    let first = run_with_store(&place, &place.store());
    assert_eq!(first.status, Some(0), "{}", first.stderr);
    let mut bytes = std::fs::read(place.store()).expect("file exists");
    bytes[USER_VERSION].copy_from_slice(&999_999_u32.to_be_bytes());
    std::fs::write(place.store(), &bytes).expect("write succeeds");
    assert_fails(
        &run_with_store(&place, &place.store()),
        &["999999", "newer version"],
    );
    assert_eq!(std::fs::read(place.store()).expect("file exists"), bytes);
}

#[test]
fn unknown_run_is_rejected() {
    let place = Place::new();
    let store = place.store();
    let store = store.to_str().expect("path is UTF-8");
    let none = place.run(&["show", "--store", store]);
    assert_fails(&none, &["no such file", "trapline run"]);
    assert!(!place.store().exists(), "show created a store");
    assert_eq!(run_with_store(&place, &place.store()).status, Some(0));
    let other = place.run(&["show", "--store", store, "--run", "7"]);
    assert_fails(&other, &["no run 7", "trapline show --list"]);
    let list = place.run(&["show", "--store", store, "--list"]);
    assert!(
        list.stdout.contains("--env host --workload basic/getpid"),
        "{}",
        list.stdout
    );
}

#[test]
fn default_store_is_in_the_data_directory() {
    let place = Place::new();
    let result = place.run(&[&["run"][..], &QUICK].concat());
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    assert!(place.path().join("trapline/trapline.db").is_file());
    assert_eq!(place.run(&["show"]).stdout, result.stdout);
}

/// Returns the texts of `key` (`skip` or `failed`) in all cells of an environment.
fn reasons(json: &serde_json::Value, environment: &str, key: &str) -> Vec<String> {
    let cells = json["cells"].as_array().expect("run has cells");
    let of_environment = cells
        .iter()
        .filter(|cell| cell["environment"] == environment);
    of_environment
        .filter_map(|cell| cell[key].as_str())
        .map(str::to_owned)
        .collect()
}

fn parse(result: &CommandOutput) -> serde_json::Value {
    serde_json::from_str(&result.stdout).unwrap_or_else(|error| panic!("{error}: {result:?}"))
}

/// The time that a broken part has; a flood must reach its limit within it on a loaded host.
const TIMEOUT_SECONDS: &str = "10";

/// Checks the failure of `host` with a script as agent, and of `kvm`, if available, with a script as VMM.
#[track_caller]
fn assert_broken_parts_fail(script: &str, words: &[&str]) {
    assert_broken_part("trapline-agent", script, "host", words);
    if has_kvm("a VMM that is broken") {
        assert_broken_part("trapline-vmm", script, "kvm", words);
    }
}

#[track_caller]
fn assert_broken_part(part: &str, script: &str, environment: &str, words: &[&str]) {
    let place = Place::new();
    place.replace_program(part, script.as_bytes());
    let quick = [
        "--workload",
        "basic/getpid",
        "--boots",
        "1",
        "--timeout",
        TIMEOUT_SECONDS,
        "--format",
        "json",
    ];
    let result = place.run(&[&["run", "--env", environment][..], &quick].concat());
    assert_eq!(result.status, Some(1), "{}", result.stderr);
    assert!(naming(place.path()).is_empty(), "something still runs");
    let reason = reasons(&parse(&result), environment, "failed").join("\n");
    for words in words {
        assert!(
            reason.contains(words),
            "{environment}: '{words}' is not in: {reason}"
        );
    }
}

#[test]
fn part_that_exits_is_reported_with_its_last_output() {
    let script = "#!/bin/sh\necho no luck today >&2\nexit 7\n";
    assert_broken_parts_fail(script, &["status 7", "no luck today"]);
}

#[test]
fn killed_part_is_reported() {
    assert_broken_parts_fail("#!/bin/sh\nkill -SEGV $$\n", &["signal 11"]);
}

#[test]
fn hanging_part_is_killed() {
    let reason = format!("timed out after {TIMEOUT_SECONDS} s");
    assert_broken_parts_fail("#!/bin/sh\nexec sleep 1000\n", &[&reason]);
}

#[test]
fn flooding_part_is_killed() {
    assert_broken_parts_fail("#!/bin/sh\nexec cat /dev/zero\n", &["flooded"]);
}

#[test]
fn console_noise_is_no_figure() {
    assert_broken_parts_fail(
        "#!/bin/sh\nhead -c 300000 /dev/urandom\n",
        &["without a Done record"],
    );
}

#[test]
fn invalid_program_as_part_is_reported() {
    assert_broken_parts_fail("this is no program", &["cannot start"]);
}

#[test]
fn broken_environment_does_not_affect_others() {
    if !has_qemu("an environment beside a broken one") {
        return;
    }
    let place = Place::new();
    place.replace_program("trapline-agent", b"#!/bin/sh\nexit 7\n");
    let result = getpid_once(&place, "host,sim");
    assert_eq!(result.status, Some(1), "{}", result.stderr);
    let json = parse(&result);
    assert!(json["cells"][0]["failed"].is_string(), "{json}");
    assert!(json["cells"][1]["estimate"].is_number(), "{json}");
}

/// The init of the machine is not a program.
#[test]
fn kernel_panic_is_reported_with_its_last_lines() {
    if !has_qemu("a simulated machine that panics") {
        return;
    }
    let place = Place::new();
    place.replace_program("trapline-agent", b"no program");
    let result = getpid_once(&place, "sim/linux,sim");
    let json = parse(&result);
    if let Some(reason) = reasons(&json, "sim/linux", "skip").first() {
        return skip("a simulated machine that panics", reason);
    }
    assert_eq!(result.status, Some(1), "{}", result.stderr);
    let failure = reasons(&json, "sim/linux", "failed").join("\n");
    assert!(failure.starts_with("simulated machine failed"), "{failure}");
    assert!(failure.contains("Kernel panic - not syncing"), "{failure}");
    let sim = &json["cells"][0];
    assert_eq!(sim["environment"], "sim", "{json}");
    assert!(sim["estimate"].is_number(), "{json}");
}

#[test]
fn invalid_image_is_reported() {
    if !has_kvm("an image that is none") {
        return;
    }
    for bytes in [&b"this is no image"[..], b"\x7fELF", b""] {
        let place = Place::new();
        place.replace("trapline-image", bytes);
        let result = getpid_once(&place, "kvm");
        let reason = reasons(&parse(&result), "kvm", "failed").join("\n");
        assert_eq!(result.status, Some(1), "{result:?}");
        assert!(reason.contains("trapline-image"), "{reason}");
    }
}

#[test]
fn missing_part_is_a_skip() {
    let place = Place::new();
    std::fs::remove_file(place.parts().join("trapline-image")).expect("file exists");
    let result = getpid_once(&place, "host,sim");
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let reason = reasons(&parse(&result), "sim", "skip").join("\n");
    assert!(
        reason.contains("trapline-image") && reason.contains("make build"),
        "{reason}"
    );
}

#[test]
fn missing_or_old_qemu_is_a_skip() {
    let place = Place::new();
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).expect("path is unused");
    let list = |words: &str| {
        let mut command = place.trapline(&["list", "--format", "json"]);
        let output = command.env("PATH", &bin).output().expect("program starts");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mut environments = json["environments"].as_array().expect("list").iter();
        let tcg = environments.find(|it| it["name"] == "qemu-tcg");
        let tcg = tcg.expect("qemu-tcg is listed");
        assert_eq!(tcg["ready"], false);
        let reason = tcg["reason"].as_str().expect("reason").to_owned();
        assert!(reason.contains(words), "{reason}");
    };
    list("qemu-system-x86");
    let old = bin.join("qemu-system-x86_64");
    write_program(&old, "#!/bin/sh\necho QEMU emulator version 2.5.0\n");
    list("2.5");
}

/// Starts a run of minutes and waits until boots are stored.
fn start_long_run(place: &Place) -> Child {
    let environments = if has_qemu("ending a run with QEMU in it") {
        "host,qemu-tcg"
    } else {
        "host"
    };
    let store = place.store();
    let words = [
        "run",
        "--env",
        environments,
        "--workload",
        "basic",
        "--boots",
        "1000",
        "--store",
        store.to_str().expect("path is UTF-8"),
    ];
    let mut command = place.trapline(&words);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("program starts");
    let stored = wait_until(TO_BEGIN, || boots_stored(place) >= 4);
    assert!(stored, "no boots were stored");
    child
}

/// Returns the number of boots of the latest run in `show --list`.
fn boots_stored(place: &Place) -> usize {
    let store = place.store();
    let list = place
        .run(&["show", "--list", "--store", store.to_str().expect("text")])
        .stdout;
    let before = list.split(" boots, ").next().unwrap_or_default();
    before
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[track_caller]
fn assert_nothing_was_lost(place: &Place) {
    let gone = wait_until(TO_BEGIN, || naming(place.path()).is_empty());
    assert!(gone, "still running: {:?}", naming(place.path()));
    let boots = boots_stored(place);
    assert!(boots >= 4, "{boots} boots are stored");
    let store = place.store();
    let shown = place.run(&[
        "show",
        "--format",
        "json",
        "--store",
        store.to_str().expect("text"),
    ]);
    assert_eq!(shown.status, Some(0), "{}", shown.stderr);
    assert!(
        parse(&shown)["cells"][0]["estimate"].is_number(),
        "{}",
        shown.stdout
    );
}

#[test]
fn ctrl_c_keeps_samples_and_ends_all_processes() {
    let place = Place::new();
    let child = start_long_run(&place);
    signal(&child, libc::SIGINT);
    let result = CommandOutput::from(child.wait_with_output().expect("child is reaped"));
    assert_eq!(result.status, Some(130), "{}", result.stderr);
    assert!(
        result.stderr.contains("finished boots are stored"),
        "{}",
        result.stderr
    );
    assert!(
        result.stdout.contains("getpid"),
        "no partial table: {}",
        result.stdout
    );
    assert_nothing_was_lost(&place);
}

#[test]
fn kill_ends_all_processes_and_keeps_the_store_readable() {
    let place = Place::new();
    let mut child = start_long_run(&place);
    signal(&child, libc::SIGKILL);
    child.wait().expect("child can be reaped");
    assert_nothing_was_lost(&place);
}
