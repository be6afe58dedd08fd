//! Replayed recordings: decoder, runner, store and report without booting.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use trapline_tests::processes::{naming, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::{has_qemu, root};

const WORDS: [&str; 8] = [
    "run",
    "--env",
    "sim",
    "--workload",
    "basic",
    "--format",
    "json",
    "--store",
];

/// Copies the recording of workload basic to this test's directory.
fn recorded(place: &Place) -> PathBuf {
    let copy = place.path().join("recordings/sim/31f");
    std::fs::create_dir_all(&copy).expect("path is unused");
    for file in ["console", "errors", "events", "end"] {
        let from = root().join("tests/recordings/sim/31f").join(file);
        std::fs::copy(from, copy.join(file)).expect("recording is complete");
    }
    copy
}

fn command(place: &Place, words: &[&str]) -> std::process::Command {
    let mut command = place.trapline(words);
    command.arg(place.store());
    command.env("TRAPLINE_REPLAY", place.path().join("recordings"));
    command
}

fn replay(place: &Place) -> CommandOutput {
    CommandOutput::from(command(place, &WORDS).output().expect("program starts"))
}

fn reasons(json: &Value) -> Vec<String> {
    let cells = json["cells"].as_array().expect("run has cells");
    let reasons = cells.iter().filter_map(|cell| cell["failed"].as_str());
    reasons.map(str::to_owned).collect()
}

#[test]
fn replay_has_the_figures_of_the_recorded_boot() {
    if !has_qemu("recording a boot of sim") {
        return;
    }
    let place = Place::new();
    let mut real = place.trapline(&WORDS);
    real.arg(place.path().join("real.db"));
    real.env("TRAPLINE_RECORD", place.path().join("recordings/sim"));
    let real = CommandOutput::from(real.output().expect("program starts"));
    assert_eq!(real.status, Some(0), "{real:?}");
    let replayed = replay(&place);
    assert_eq!(replayed.status, Some(0), "{replayed:?}");
    assert_eq!(replayed.json()["cells"], real.json()["cells"]);
    let source = |json: &Value| json["environments"]["sim"]["facts"]["replayed-from"].is_string();
    assert_eq!(
        [&real, &replayed].map(|result| source(&result.json())),
        [false, true]
    );
}

/// Returns the errors of `instance` against the schema of `trapline run`.
fn schema_errors(instance: &Value) -> Vec<String> {
    errors_by_schema("run.json", instance)
}

/// Returns the errors of `instance` against a published schema.
pub fn errors_by_schema(name: &str, instance: &Value) -> Vec<String> {
    let path = root().join("docs/schema").join(name);
    let text = std::fs::read_to_string(path).expect("it is there");
    let schema: Value = serde_json::from_str(&text).expect("it is JSON");
    let validator = jsonschema::validator_for(&schema).expect("it is a schema");
    let errors = validator.iter_errors(instance);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn json_is_valid_against_the_published_schema() {
    let place = Place::new();
    recorded(&place);
    let replayed = replay(&place).json();
    assert_eq!(schema_errors(&replayed), [] as [String; 0]);
    let snapshot = root().join("lab/report/tests/expected/report.json");
    let text = std::fs::read_to_string(snapshot).expect("readable snapshot");
    let every_field: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(schema_errors(&every_field), [] as [String; 0]);
}

#[test]
fn schema_rejects_wrong_cells() {
    let place = Place::new();
    recorded(&place);
    let replayed = replay(&place).json();
    for (key, wrong) in [
        ("unit", Value::from("parsec")),
        ("estimate", Value::from("3264")),
        ("flags", serde_json::json!(["odd"])),
        ("skip", Value::from("and measured")),
    ] {
        let mut changed = replayed.clone();
        changed["cells"][0][key] = wrong;
        assert!(!schema_errors(&changed).is_empty(), "{key} is accepted");
    }
}

#[test]
fn truncated_recording_has_no_done_record() {
    let place = Place::new();
    let recording = recorded(&place);
    edit(&recording.join("console"), |bytes| {
        bytes.truncate(bytes.len() * 3 / 4)
    });
    let result = replay(&place);
    assert!(result.stdout.contains("Done record"), "{result:?}");
    assert!(!reasons(&result.json()).is_empty(), "{result:?}");
}

#[test]
fn damaged_frames_fail_their_operation_only() {
    let place = Place::new();
    let recording = recorded(&place);
    let whole = std::fs::read(recording.join("console")).expect("recording exists");
    // Samples of operations; others are padding or stages.
    let damaged = (100..whole.len() - 8).step_by(60).map(|at| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].fill(0);
        std::fs::write(recording.join("console"), bytes).expect("write succeeds");
        let json = replay(&place).json();
        let all = json["cells"].as_array().expect("run has cells").len();
        let failed = reasons(&json).len();
        assert!(failed < all, "{at}: {json}");
        failed
    });
    assert!(damaged.sum::<usize>() > 0);
}

#[test]
fn exit_status_of_the_recording_is_reported() {
    let place = Place::new();
    let recording = recorded(&place);
    std::fs::write(recording.join("console"), "").expect("write succeeds");
    std::fs::write(recording.join("end"), "exit 7\n").expect("write succeeds");
    let result = replay(&place);
    assert!(result.stdout.contains("status 7"), "{result:?}");
}

/// The store is removed or replaced while the guest runs.
#[test]
fn store_that_vanishes_during_a_run_is_an_error() {
    for vanish in [
        "rm STORE",
        "mv STORE STORE.old",
        "mv STORE OTHER; cp OTHER STORE",
    ] {
        let place = Place::new();
        let recording = recorded(&place);
        let script = vanish.replace("STORE", &place.store().display().to_string());
        let script = script.replace("OTHER", &place.path().join("other").display().to_string());
        edit(&recording.join("end"), |bytes| {
            let end = format!("{script}\n{}", String::from_utf8_lossy(bytes));
            *bytes = end.into_bytes();
        });
        let result = replay(&place);
        assert_eq!(
            (result.status, result.stdout.as_str()),
            (Some(1), ""),
            "{vanish}: {result:?}"
        );
        assert!(result.stderr.contains("removed or replaced"), "{result:?}");
        assert!(result.stderr.contains("\n  help: "), "{result:?}");
    }
}

#[test]
fn second_run_names_the_first() {
    let place = Place::new();
    recorded(&place);
    let table = [&WORDS[..5], &["--store"]].concat();
    let run = || {
        let run = command(&place, &table).output().expect("program starts");
        CommandOutput::from(run).stdout
    };
    let first = run();
    assert!(first.contains("\nIn words\n "), "{first}");
    assert!(!first.contains("nchanged since"), "{first}");
    let second = run();
    assert!(second.contains("\nUnchanged since run 1, "), "{second}");
}

#[test]
fn missing_recording_is_unavailable_with_a_remedy() {
    let place = Place::new();
    let recording = recorded(&place);
    std::fs::remove_file(recording.join("end")).expect("write succeeds");
    let result = replay(&place);
    assert!(result.stdout.contains("TRAPLINE_RECORD"), "{result:?}");
    // Nothing was measured: that is no success, and not the latest run.
    assert_eq!(result.status, Some(4), "{result:?}");
    let shown = CommandOutput::from(
        command(&place, &["show", "--store"])
            .output()
            .expect("it starts"),
    );
    assert_eq!(shown.status, Some(1), "{shown:?}");
    assert!(shown.stderr.contains("has a boot"), "{shown:?}");
}

#[test]
fn selection_that_cannot_be_measured_is_not_stored() {
    let place = Place::new();
    let run = place.run_storing("run", "--env custom --workload basic");
    assert_eq!(run.status, Some(4), "{run:?}");
    let words = ["Nothing was measured", "no custom VMM is given"];
    assert!(
        words.iter().all(|words| run.stdout.contains(words)),
        "{run:?}"
    );
    assert!(!run.stdout.contains("trapline show"), "{run:?}");
    let list = place.run_storing("show", "--list");
    assert_eq!((list.status, list.stdout.as_str()), (Some(0), ""));
}

#[test]
fn ctrl_c_and_kill_end_a_replayed_guest() {
    for (number, status) in [(libc::SIGINT, Some(130)), (libc::SIGKILL, None)] {
        let place = Place::new();
        let recording = recorded(&place);
        std::fs::write(recording.join("end"), "kill -STOP $$\n").expect("write succeeds");
        let mut run = command(&place, &WORDS)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("program starts");
        assert!(wait_until(TO_BEGIN, || !naming(&recording).is_empty()));
        signal(&run, number);
        let result = run.wait().expect("file is owned by the test");
        assert_eq!(result.code(), status, "signal {number}");
        assert!(wait_until(TO_BEGIN, || naming(&recording).is_empty()));
    }
}

fn edit(file: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).expect("file exists");
    change(&mut bytes);
    std::fs::write(file, bytes).expect("write succeeds");
}
