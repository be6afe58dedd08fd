//! What can go wrong around the lab: a store it cannot use, parts that are
//! missing, broken or hostile, and somebody who ends it. Nothing that was
//! measured is lost, nothing is left running, and the message says what to do.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use trapline_tests::processes::{naming, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{Ended, Place};
use trapline_tests::{has_kvm, has_qemu, skip};

/// A quick run of one boot on the host.
const QUICK: [&str; 6] = [
    "--env",
    "host",
    "--workload",
    "basic/getpid",
    "--boots",
    "1",
];

fn run_with_store(place: &Place, store: &Path) -> Ended {
    let store = store.to_str().expect("the path is text");
    place.run(&[&["run", "--store", store][..], &QUICK].concat())
}

#[track_caller]
fn assert_fails(ended: &Ended, told: &[&str]) {
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert_eq!(ended.output, "", "nothing was measured");
    assert!(ended.errors.starts_with("error: "), "{}", ended.errors);
    assert!(ended.errors.contains("\n  help: "), "{}", ended.errors);
    for words in told {
        assert!(
            ended.errors.contains(words),
            "'{words}' is not in: {}",
            ended.errors
        );
    }
}

/// The shortest run there is, in `environments`.
fn getpid_once(place: &Place, environments: &str) -> Ended {
    let words = "--workload basic/getpid --boots 1 --format json";
    let mut all = vec!["run", "--env", environments];
    all.extend(words.split(' '));
    place.run(&all)
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
    std::fs::write(place.store(), &letter).expect("it can be written");
    assert_fails(
        &run_with_store(&place, &place.store()),
        &["damaged or not a store", "--store FILE"],
    );
    let store = place.store();
    let shown = place.run(&["show", "--store", store.to_str().expect("text")]);
    assert_fails(&shown, &["damaged or not a store"]);
    assert_eq!(
        std::fs::read_to_string(place.store()).expect("it is there"),
        letter
    );
}

/// `user_version`, 4 bytes, big endian (SQLite file format, section 1.3).
const USER_VERSION: std::ops::Range<usize> = 60..64;

#[test]
fn newer_store_is_rejected_unchanged() {
    let place = Place::new();
    let first = run_with_store(&place, &place.store());
    assert_eq!(first.status, Some(0), "{}", first.errors);
    let mut bytes = std::fs::read(place.store()).expect("it was made");
    bytes[USER_VERSION].copy_from_slice(&999_999_u32.to_be_bytes());
    std::fs::write(place.store(), &bytes).expect("it can be written");
    assert_fails(
        &run_with_store(&place, &place.store()),
        &["999999", "newer version"],
    );
    assert_eq!(std::fs::read(place.store()).expect("it is there"), bytes);
}

#[test]
fn unknown_run_is_rejected() {
    let place = Place::new();
    let store = place.store();
    let store = store.to_str().expect("the path is text");
    let none = place.run(&["show", "--store", store]);
    assert_fails(&none, &["no such file", "trapline run"]);
    assert!(!place.store().exists(), "showing made a store");
    assert_eq!(run_with_store(&place, &place.store()).status, Some(0));
    let other = place.run(&["show", "--store", store, "--run", "7"]);
    assert_fails(&other, &["no run 7", "trapline show --list"]);
    let list = place.run(&["show", "--store", store, "--list"]);
    assert!(
        list.output.contains("--env host --workload basic/getpid"),
        "{}",
        list.output
    );
}

#[test]
fn default_store_is_in_the_data_directory() {
    let place = Place::new();
    let ended = place.run(&[&["run"][..], &QUICK].concat());
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    assert!(place.path().join("trapline/trapline.db").is_file());
    assert_eq!(place.run(&["show"]).output, ended.output);
}

/// Every cell of an environment, by `skip` or `failed`.
fn reasons(json: &serde_json::Value, environment: &str, key: &str) -> Vec<String> {
    let cells = json["cells"].as_array().expect("there are cells");
    let of_environment = cells
        .iter()
        .filter(|cell| cell["environment"] == environment);
    of_environment
        .filter_map(|cell| cell[key].as_str())
        .map(str::to_owned)
        .collect()
}

fn parse(ended: &Ended) -> serde_json::Value {
    serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// What was told of environments one of whose parts was replaced by a script: the
/// agent for `host`, our VMM for `kvm` where that is offered. Each has to fail.
#[track_caller]
fn assert_told_of_broken(script: &str, words: &[&str]) {
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
        "3",
        "--format",
        "json",
    ];
    let ended = place.run(&[&["run", "--env", environment][..], &quick].concat());
    assert_eq!(ended.status, Some(1), "{}", ended.errors);
    assert!(naming(place.path()).is_empty(), "something still runs");
    let told = reasons(&parse(&ended), environment, "failed").join("\n");
    for words in words {
        assert!(
            told.contains(words),
            "{environment}: '{words}' is not in: {told}"
        );
    }
}

#[test]
fn part_that_exits_is_reported_with_its_last_output() {
    let script = "#!/bin/sh\necho no luck today >&2\nexit 7\n";
    assert_told_of_broken(script, &["status 7", "no luck today"]);
}

#[test]
fn killed_part_is_reported() {
    assert_told_of_broken("#!/bin/sh\nkill -SEGV $$\n", &["signal 11"]);
}

#[test]
fn hanging_part_is_killed() {
    assert_told_of_broken("#!/bin/sh\nexec sleep 1000\n", &["timed out after 3 s"]);
}

#[test]
fn flooding_part_is_killed() {
    assert_told_of_broken("#!/bin/sh\nexec cat /dev/zero\n", &["flooded"]);
}

#[test]
fn console_noise_is_no_figure() {
    assert_told_of_broken(
        "#!/bin/sh\nhead -c 300000 /dev/urandom\n",
        &["without a Done record"],
    );
}

#[test]
fn invalid_program_as_part_is_reported() {
    assert_told_of_broken("this is no program", &["cannot start"]);
}

/// The others are measured all the same.
#[test]
fn broken_environment_does_not_affect_others() {
    if !has_qemu("an environment beside a broken one") {
        return;
    }
    let place = Place::new();
    place.replace_program("trapline-agent", b"#!/bin/sh\nexit 7\n");
    let ended = getpid_once(&place, "host,sim");
    assert_eq!(ended.status, Some(1), "{}", ended.errors);
    let json = parse(&ended);
    assert!(json["cells"][0]["failed"].is_string(), "{json}");
    assert!(json["cells"][1]["estimate"].is_number(), "{json}");
}

/// No Linux can start this as its init.
#[test]
fn kernel_panic_is_reported_with_its_last_lines() {
    if !has_qemu("a simulated machine that panics") {
        return;
    }
    let place = Place::new();
    place.replace_program("trapline-agent", b"no program");
    let ended = getpid_once(&place, "sim/linux,sim");
    let json = parse(&ended);
    if let Some(reason) = reasons(&json, "sim/linux", "skip").first() {
        return skip("a simulated machine that panics", reason);
    }
    assert_eq!(ended.status, Some(1), "{}", ended.errors);
    let told = reasons(&json, "sim/linux", "failed").join("\n");
    assert!(told.contains("Kernel panic - not syncing"), "{told}");
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
        let ended = getpid_once(&place, "kvm");
        let told = reasons(&parse(&ended), "kvm", "failed").join("\n");
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(told.contains("trapline-image"), "{told}");
    }
}

#[test]
fn missing_part_is_a_skip() {
    let place = Place::new();
    std::fs::remove_file(place.parts().join("trapline-image")).expect("it was there");
    let ended = getpid_once(&place, "host,sim");
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    let told = reasons(&parse(&ended), "sim", "skip").join("\n");
    assert!(
        told.contains("trapline-image") && told.contains("make build"),
        "{told}"
    );
}

#[test]
fn missing_or_old_qemu_is_a_skip() {
    let place = Place::new();
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).expect("it is new");
    let list = |words: &str| {
        let mut command = place.trapline(&["list", "--format", "json"]);
        let output = command.env("PATH", &bin).output().expect("it starts");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let tcg = json["environments"].as_array().expect("a list")[3].clone();
        assert_eq!(
            (tcg["name"].as_str(), tcg["ready"].as_bool()),
            (Some("qemu-tcg"), Some(false))
        );
        let reason = tcg["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains(words), "{reason}");
    };
    list("qemu-system-x86");
    let old = bin.join("qemu-system-x86_64");
    std::fs::write(&old, "#!/bin/sh\necho QEMU emulator version 2.5.0\n").expect("it is ours");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    list("2.5");
}

/// Starts a run that would take minutes, and waits until boots were stored.
fn start_long_run(place: &Place) -> Child {
    let environments = match has_qemu("ending a run with QEMU in it") {
        true => "host,qemu-tcg",
        false => "host",
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
        store.to_str().expect("the path is text"),
    ];
    let mut command = place.trapline(&words);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let stored = wait_until(TO_BEGIN, || boots_stored(place) >= 4);
    assert!(stored, "no boots were stored");
    child
}

/// Boots of the latest run, as `show --list` tells.
fn boots_stored(place: &Place) -> usize {
    let store = place.store();
    let list = place
        .run(&["show", "--list", "--store", store.to_str().expect("text")])
        .output;
    let before = list.split(" boots, ").next().unwrap_or_default();
    before
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[track_caller]
fn assert_nothing_was_lost(place: &Place) {
    let gone = wait_until(Duration::from_secs(5), || naming(place.path()).is_empty());
    assert!(gone, "still running: {:?}", naming(place.path()));
    let boots = boots_stored(place);
    assert!(boots >= 4, "{boots} boots were kept");
    let store = place.store();
    let shown = place.run(&[
        "show",
        "--format",
        "json",
        "--store",
        store.to_str().expect("text"),
    ]);
    assert_eq!(shown.status, Some(0), "{}", shown.errors);
    assert!(
        parse(&shown)["cells"][0]["estimate"].is_number(),
        "{}",
        shown.output
    );
}

#[test]
fn ctrl_c_keeps_samples_and_ends_all_processes() {
    let place = Place::new();
    let child = start_long_run(&place);
    signal(&child, libc::SIGINT);
    let ended = Ended::from(child.wait_with_output().expect("it ends"));
    assert_eq!(ended.status, Some(130), "{}", ended.errors);
    assert!(
        ended.errors.contains("finished boots are stored"),
        "{}",
        ended.errors
    );
    assert!(
        ended.output.contains("getpid"),
        "no partial table: {}",
        ended.output
    );
    assert_nothing_was_lost(&place);
}

#[test]
fn kill_ends_all_processes_and_keeps_the_store_readable() {
    let place = Place::new();
    let mut child = start_long_run(&place);
    signal(&child, libc::SIGKILL);
    child.wait().expect("it was killed");
    assert_nothing_was_lost(&place);
}
