//! `trapline baseline` and `trapline check`, and the baselines of this repository.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::{baseline_of_release, has_qemu, skip};

mod profiles;

fn check(place: &Place, file: &Path, words: &[&str]) -> CommandOutput {
    let file = file.to_str().expect("path is UTF-8");
    place.run(&[&["check", "--baseline", file][..], words].concat())
}

/// Returns a baseline of one workload on the bare simulated machine.
fn measure_baseline(place: &Place) -> String {
    let made = place.run(&["baseline", "--env", "sim", "--workload", "basic"]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    made.stdout
}

/// Writes the measured baseline that tests share.
fn baseline(place: &Place) -> PathBuf {
    static BASELINE: OnceLock<String> = OnceLock::new();
    write(
        place,
        BASELINE.get_or_init(|| measure_baseline(&Place::new())),
    )
}

/// Writes a baseline without profiles, whose guest is replayed as that of each check is.
fn replayed_baseline(place: &Place) -> PathBuf {
    write(place, &measure_baseline(place))
}

fn write(place: &Place, baseline: &str) -> PathBuf {
    let file = place.path().join("baseline.json");
    std::fs::write(&file, baseline).expect("write succeeds");
    file
}

/// Edits a baseline file.
fn edit(file: &Path, change: impl Fn(&mut Value)) {
    let text = std::fs::read_to_string(file).expect("file exists");
    let mut value = serde_json::from_str(&text).expect("JSON");
    change(&mut value);
    std::fs::write(file, format!("{value:#}")).expect("write succeeds");
}

fn figures(baseline: &mut Value) -> &mut Value {
    &mut baseline["environments"]["sim"]["figures"]["insn"]
}

/// Subtracts `insn` from a figure.
fn take(value: &mut Value, insn: f64) {
    *value = (value.as_f64().expect("figure") - insn).into();
}

#[test]
fn unchanged_figures_pass() {
    if !has_qemu("a baseline of sim") {
        return;
    }
    let place = Place::new();
    let file = baseline(&place);
    let result = check(&place, &file, &["-q"]);
    assert_eq!(result.status, Some(0), "{result:?}");
    assert_eq!(result.stdout, "same: 7 figures as in the baseline\n");
    assert_eq!(result.stderr, "");
    let first = std::fs::read_to_string(file).expect("file exists");
    assert_eq!(measure_baseline(&place), first, "two baselines differ");
}

#[test]
fn one_instruction_is_a_change_without_tolerance() {
    if !has_qemu("a change against a baseline of sim") {
        return;
    }
    let place = Place::replaying();
    let file = replayed_baseline(&place);
    edit(&file, |json| {
        take(&mut figures(json)["basic/getpid"], 1.0);
        json["environments"]["sim"]["facts"]["qemu"] = "0.1".into();
    });
    let result = check(&place, &file, &[]);
    assert_eq!(result.status, Some(1), "{result:?}");
    let lines: Vec<&str> = result.stdout.lines().collect();
    assert!(
        lines[0].starts_with("likely cause: QEMU, 0.1 -> "),
        "{lines:?}"
    );
    let row = lines.iter().find(|line| line.starts_with("basic/getpid"));
    assert!(row.is_some_and(|row| row.contains(" +1.000 ")), "{lines:?}");
    assert_eq!(lines.last(), Some(&"changed: 1 of 7 figures"));
    assert!(!result.stdout.contains("basic/yield"), "{}", result.stdout);

    let let_pass = check(&place, &file, &["--tolerance", "basic=1"]);
    assert_eq!(let_pass.status, Some(0), "{let_pass:?}");
    assert!(let_pass.stdout.contains("1 of them within"), "{let_pass:?}");
    assert_forms(&place, &file);
}

/// Checks that every format reports the change with the same status.
#[track_caller]
fn assert_forms(place: &Place, file: &Path) {
    for (format, words) in [
        ("markdown", "| sim | basic/getpid | "),
        ("junit", "<failure message="),
        ("bencher", "\"sim basic/getpid\": {"),
        ("json", "\"outcome\": \"changed\""),
    ] {
        let result = check(place, file, &["--format", format]);
        assert_eq!(result.status, Some(1), "{format}: {result:?}");
        assert!(result.stdout.contains(words), "{format}: {}", result.stdout);
    }
}

#[test]
fn missing_and_new_operations_are_changes() {
    if !has_qemu("an operation that appears") {
        return;
    }
    let place = Place::replaying();
    let file = replayed_baseline(&place);
    edit(&file, |json| {
        let all = figures(json).as_object_mut().expect("figures");
        all.remove("basic/yield");
        all.insert("basic/later".to_owned(), 1.0.into());
        json["environments"]["sim"]["skipped"] = serde_json::json!({"basic/yield": "no device"});
    });
    let result = check(&place, &file, &[]);
    assert_eq!(result.status, Some(1), "{result:?}");
    let row = |name: &str, word: &str| {
        let mut lines = result.stdout.lines();
        lines.any(|line| line.starts_with(name) && line.ends_with(word))
    };
    assert!(row("basic/yield", "appeared"), "{}", result.stdout);
    assert!(row("basic/later", "vanished"), "{}", result.stdout);
}

/// A gate that compares nothing, or less than it was asked to, does not pass.
#[test]
fn no_requested_operation_is_missing_from_a_baseline() {
    if !has_qemu("a baseline without an operation") {
        return;
    }
    let place = Place::new();
    let words = ["baseline", "-q", "--env", "sim", "--workload"];
    let nothing = place.run(&[&words[..], &["exits/hypercall"]].concat());
    assert_eq!(
        (nothing.status, nothing.stdout.as_str()),
        (Some(4), ""),
        "{nothing:?}"
    );
    assert!(
        nothing.stderr.contains("exits/hypercall is skipped: "),
        "{nothing:?}"
    );
    assert!(nothing.stderr.contains("\n  help: "), "{nothing:?}");
    let run = place.run(&["run", "-q", "--env", "sim", "--workload", "exits/hypercall"]);
    assert_eq!(run.status, Some(4), "{run:?}");

    let some = place.run(&[&words[..], &["exits/hypercall,basic/getpid"]].concat());
    assert_eq!(some.status, Some(0), "{some:?}");
    assert_eq!(some.stderr, "note: skipped in sim: exits/hypercall\n");
    let file = place.path().join("baseline.json");
    std::fs::write(&file, &some.stdout).expect("write succeeds");
    let result = check(&place, &file, &["-q"]);
    let same = "same: 1 figure as in the baseline; 1 operation is skipped\n";
    assert_eq!(
        (result.status, result.stdout.as_str()),
        (Some(0), same),
        "{result:?}"
    );
    let junit = check(&place, &file, &["-q", "--format", "junit"]);
    assert!(
        junit.stdout.contains("<skipped message=\"no hypervisor"),
        "{junit:?}"
    );

    let whole: Value = serde_json::from_str(&some.stdout).expect("JSON");
    for (key, operation) in [("skipped", "exits/hypercall"), ("figures", "basic/getpid")] {
        let mut less = whole.clone();
        less["environments"]["sim"][key] = serde_json::json!({});
        std::fs::write(&file, less.to_string()).expect("write succeeds");
        for format in ["table", "junit", "json"] {
            let result = check(&place, &file, &["--format", format]);
            let words = match key {
                "figures" => "no figures of sim",
                _ => operation,
            };
            assert_usage(&result, &["baseline.json", words]);
        }
    }
}

#[track_caller]
fn assert_usage(result: &CommandOutput, words: &[&str]) {
    assert_eq!(
        (result.status, result.stdout.as_str()),
        (Some(2), ""),
        "{result:?}"
    );
    for word in words {
        assert!(result.stderr.contains(word), "{word}: {}", result.stderr);
    }
    assert!(result.stderr.contains("\n  help: "), "{}", result.stderr);
}

#[test]
fn invalid_baseline_is_a_usage_error_with_a_remedy() {
    let place = Place::new();
    let file = place.path().join("baseline.json");
    assert_usage(
        &check(&place, &file, &[]),
        &["cannot read", "trapline baseline"],
    );
    for (text, words) in [
        ("", "empty, as after"),
        ("{\"trapline-baseline\": 1,", "damaged"),
        ("{\"cells\": []}", "not a baseline"),
        ("{\"trapline-baseline\": 99}", "format 99"),
        (
            "{\"trapline-baseline\": 2, \"trapline\": \"\", \"workload\": \"basic\", \"environments\": {}}",
            "no figures",
        ),
    ] {
        std::fs::write(&file, text).expect("write succeeds");
        assert_usage(&check(&place, &file, &[]), &["baseline.json", words]);
    }
}

#[test]
fn wall_clock_figures_have_no_baseline() {
    let place = Place::new();
    for command in ["baseline", "bisect"] {
        let rest: &[&str] = match command {
            "bisect" => &[
                "--good",
                "A",
                "--bad",
                "B",
                "--build",
                "true",
                "--workload",
                "basic",
            ],
            _ => &[],
        };
        let result = place.run(&[&[command, "--env", "sim,kvm"][..], rest].concat());
        assert_usage(&result, &["baselines are not supported by kvm", "sim/kvm"]);
    }
    for (environment, why) in [
        ("host", "figures of the wall clock differ"),
        ("sim/kvm", "runs the image"),
    ] {
        let words = ["--env", environment, "--workload", "kernel-build/mini"];
        let result = place.run(&[&["baseline"][..], &words].concat());
        assert_usage(&result, &[why, "sim/linux"]);
    }
    let result = place.run(&["check", "--baseline", "x", "--tolerance", "basic=-1"]);
    assert_usage(&result, &["--tolerance"]);
}

#[test]
fn unmeasurable_baseline_has_its_own_status() {
    let place = Place::new();
    let empty = place.path().join("bin");
    std::fs::create_dir(&empty).expect("path is unused");
    let mut command = place.trapline(&["baseline", "--env", "sim"]);
    let output = command
        .env("PATH", &empty)
        .output()
        .expect("program starts");
    let result = CommandOutput::from(output);
    assert_eq!(
        (result.status, result.stdout.as_str()),
        (Some(4), ""),
        "{result:?}"
    );
    assert!(
        result.stderr.contains("qemu-system-x86"),
        "{}",
        result.stderr
    );
}

/// Compares with a baseline of the repository. Exact figures belong to one kernel, QEMU and toolchain:
/// with others, and on a release without baselines, the test is skipped.
#[track_caller]
fn assert_as_kept(name: &str) {
    let feature = format!("the baseline {name}");
    if !has_qemu(&feature) {
        return;
    }
    let file = match baseline_of_release(name) {
        Ok(file) => file,
        Err(reason) => return skip(&feature, &reason),
    };
    let place = Place::new();
    let result = check(&place, &file, &["--format", "json"]);
    if result.status == Some(4) {
        return skip(&feature, result.stderr.trim());
    }
    let json: Value =
        serde_json::from_str(&result.stdout).unwrap_or_else(|error| panic!("{error}: {result:?}"));
    let causes = json["causes"].as_array().expect("list");
    // What the host brings. Anything else around the guest is of the repository.
    let brought = ["l1-kernel", "qemu", "qemu-sha256", "toolchain"];
    let mut facts = causes.iter().filter_map(|cause| cause["fact"].as_str());
    if let Some(fact) = facts.find(|fact| brought.contains(fact)) {
        assert_ne!(result.status, Some(3), "{}", result.stdout);
        let why = format!("it has another {fact}; `make baseline` updates it");
        return skip(&feature, &why);
    }
    assert_eq!(
        result.status,
        Some(0),
        "a figure changed; if intended, run `make baseline` and explain it:\n{}",
        check(&place, &file, &[]).stdout
    );
}

#[test]
fn figures_of_sim_match_the_stored_baseline() {
    assert_as_kept("sim.json");
}

#[test]
fn figures_of_sim_kvm_match_the_stored_baseline() {
    assert_as_kept("sim-kvm.json");
}
