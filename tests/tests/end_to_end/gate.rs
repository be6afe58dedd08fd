//! `trapline baseline` and `trapline check`, and the baselines of this repository.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trapline_tests::run::{Ended, Place};
use trapline_tests::{has_qemu, root, skip};

fn check(place: &Place, file: &Path, words: &[&str]) -> Ended {
    let file = file.to_str().expect("the path is text");
    place.run(&[&["check", "--baseline", file][..], words].concat())
}

/// Measures a baseline of one workload on the bare simulated machine.
fn measure_baseline() -> String {
    let made = Place::new().run(&["baseline", "--env", "sim", "--workload", "basic"]);
    assert_eq!(made.status, Some(0), "{}", made.errors);
    made.output
}

/// Writes the baseline that all tests share.
fn baseline(place: &Place) -> PathBuf {
    static BASELINE: OnceLock<String> = OnceLock::new();
    let file = place.path().join("baseline.json");
    let text = BASELINE.get_or_init(measure_baseline);
    std::fs::write(&file, text).expect("it can be written");
    file
}

/// Changes a baseline that was just made.
fn edit(file: &Path, change: impl Fn(&mut Value)) {
    let text = std::fs::read_to_string(file).expect("it was made");
    let mut value = serde_json::from_str(&text).expect("it is JSON");
    change(&mut value);
    std::fs::write(file, format!("{value:#}")).expect("it can be written");
}

fn figures(baseline: &mut Value) -> &mut Value {
    &mut baseline["environments"]["sim"]["figures"]["insn"]
}

/// Takes `insn` from a figure.
fn take(value: &mut Value, insn: f64) {
    *value = (value.as_f64().expect("a figure") - insn).into();
}

/// A baseline with profiles; `None` where this QEMU cannot count.
fn baseline_with_profiles(place: &Place, what: &str) -> Option<PathBuf> {
    if !has_qemu(what) {
        return None;
    }
    let file = baseline(place);
    let text = std::fs::read_to_string(&file).expect("it was made");
    if !text.contains("\"ledgers\"") {
        skip(what, "this QEMU cannot load the plugin that counts");
        return None;
    }
    Some(file)
}

#[test]
fn unchanged_figures_pass() {
    if !has_qemu("a baseline of sim") {
        return;
    }
    let place = Place::new();
    let file = baseline(&place);
    let ended = check(&place, &file, &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(ended.output, "same: 4 figures as in the baseline\n");
    assert_eq!(ended.errors, "");
    let first = std::fs::read_to_string(file).expect("it was made");
    assert_eq!(measure_baseline(), first, "two baselines differ");
}

#[test]
fn one_instruction_is_a_change_without_tolerance() {
    if !has_qemu("a change against a baseline of sim") {
        return;
    }
    let place = Place::new();
    let file = baseline(&place);
    edit(&file, |json| {
        take(&mut figures(json)["basic/getpid"], 1.0);
        json["environments"]["sim"]["facts"]["qemu"] = "0.1".into();
    });
    let ended = check(&place, &file, &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let told: Vec<&str> = ended.output.lines().collect();
    assert!(
        told[0].starts_with("likely cause: QEMU, 0.1 -> "),
        "{told:?}"
    );
    let row = told.iter().find(|line| line.starts_with("basic/getpid"));
    assert!(row.is_some_and(|row| row.contains(" +1.000 ")), "{told:?}");
    assert_eq!(told.last(), Some(&"changed: 1 of 4 figures"));
    assert!(!ended.output.contains("basic/yield"), "{}", ended.output);

    let let_pass = check(&place, &file, &["--tolerance", "basic=1"]);
    assert_eq!(let_pass.status, Some(0), "{let_pass:?}");
    assert!(let_pass.output.contains("1 of them within"), "{let_pass:?}");
    assert_forms(&place, &file);
}

/// The figures come from runs in which every instruction was counted, or was not:
/// the machine does not know.
#[test]
fn plugin_does_not_change_figures() {
    let what = "figures with and without the plugin";
    let place = Place::new();
    let Some(file) = baseline_with_profiles(&place, what) else {
        return;
    };
    let mut counted: Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect("it was made")).expect("JSON");
    place.replace("libtrapline_profile.so", b"no library");
    let alone = place.run(&["baseline", "--env", "sim", "--workload", "basic"]);
    assert_eq!(alone.status, Some(0), "{alone:?}");
    assert!(
        alone
            .errors
            .starts_with("note: the baseline has no profiles: QEMU "),
        "{alone:?}"
    );
    let alone: Value = serde_json::from_str(&alone.output).expect("JSON");
    let sim = counted["environments"]["sim"].as_object_mut();
    let profiles = sim.expect("an object").remove("ledgers");
    assert!(profiles.is_some_and(|profiles| profiles["basic/yield"].is_object()));
    assert_eq!(alone, counted);
}

/// Lowers the stored cost of `function` by `insn`, in each batch and in the profile.
/// The function's whole name.
fn shrink(
    file: &Path,
    (environment, operation): (&str, &str),
    function: &str,
    insn: f64,
) -> String {
    let mut whole = String::new();
    let text = std::fs::read_to_string(file).expect("it was made");
    let mut json: Value = serde_json::from_str(&text).expect("it is JSON");
    let kept = &mut json["environments"][environment];
    take(&mut kept["figures"]["insn"][operation], insn);
    let fastest = kept.get_mut("fastest");
    if let Some(fastest) = fastest.and_then(|all| all.get_mut(operation)) {
        take(fastest, insn);
    }
    let functions = kept["ledgers"][operation].as_object_mut();
    let mut functions = functions.expect("functions").iter_mut();
    if let Some((name, value)) = functions.find(|(name, _)| name.starts_with(function)) {
        take(value, insn);
        whole.clone_from(name);
    }
    std::fs::write(file, format!("{json:#}")).expect("it can be written");
    whole
}

/// Returns the lines below that of an operation.
fn below<'a>(output: &'a str, operation: &str) -> Vec<&'a str> {
    let mut lines = output.lines();
    lines.find(|line| line.starts_with(operation));
    lines.take_while(|line| line.starts_with("    ")).collect()
}

#[test]
fn function_that_gained_instructions_is_named() {
    let place = Place::new();
    let Some(file) = baseline_with_profiles(&place, "a function that gained instructions") else {
        return;
    };
    let getpid = ("sim", "basic/getpid");
    let mut gained = 0.0;
    for insn in [1.0, 19.0] {
        gained += insn;
        let whole = shrink(&file, getpid, "guest trapline_workloads", insn);
        let (_, function) = whole.split_once(' ').expect("a function");
        let ended = check(&place, &file, &[]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let gain = format!("+{gained:.3}");
        let line = format!("{gain:>15}  {:<18} {function}", "guest");
        assert_eq!(below(&ended.output, getpid.1), [line]);
    }
    edit(&file, |json| take(&mut figures(json)["basic/getpid"], 1.0));
    let ended = check(&place, &file, &[]);
    let told = below(&ended.output, getpid.1);
    let caveat = "    not the figures themselves: profiles of ";
    assert!(
        told.last().is_some_and(|line| line.starts_with(caveat)),
        "{told:?}"
    );
}

/// The VMM's loop, of which every exit takes a turn.
#[test]
fn change_of_the_vmm_loop_is_named() {
    let what = "a change of the VMM's loop";
    if !has_qemu(what) {
        return;
    }
    let place = Place::new();
    let (environment, operation) = ("sim/kvm", "exits/port-out");
    let made = place.run(&["baseline", "--env", environment, "--workload", operation]);
    if made.status == Some(4) || made.errors.contains("the baseline has no profiles") {
        return skip(what, made.errors.trim());
    }
    assert_eq!(made.status, Some(0), "{}", made.errors);
    let file = place.path().join("baseline.json");
    std::fs::write(&file, made.output).expect("it can be written");
    let vmm = "trapline-vmm trapline_machine::machine::Machine";
    shrink(&file, (environment, operation), vmm, 20.0);
    let ended = check(&place, &file, &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let told = below(&ended.output, operation);
    let [line] = told[..] else {
        panic!("one function gained: {}", ended.output);
    };
    assert!(
        line.starts_with("        +20.000  trapline-vmm  "),
        "{line}"
    );
    assert!(line.ends_with("machine::Machine<V>::run"), "{line}");
}

#[test]
fn missing_profiles_are_reported_with_the_reason() {
    let place = Place::new();
    let Some(file) = baseline_with_profiles(&place, "a change that cannot be explained") else {
        return;
    };
    edit(&file, |json| take(&mut figures(json)["basic/getpid"], 1.0));
    place.replace("libtrapline_profile.so", b"no library");
    let ended = check(&place, &file, &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let lead = "note: the functions that gained or lost are unknown: QEMU ";
    assert!(ended.output.contains(lead), "{}", ended.output);
    assert!(ended.output.contains("API version 1"), "{}", ended.output);
    // The first format had no profiles.
    edit(&file, |json| {
        json["trapline-baseline"] = 1.into();
        let sim = json["environments"]["sim"].as_object_mut();
        sim.expect("an object").remove("ledgers");
    });
    let ended = check(&place, &file, &["--format", "json"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let json: Value = serde_json::from_str(&ended.output).expect("JSON");
    let note = json["notes"][0].as_str().expect("a note");
    assert!(note.contains("the baseline has no profiles; "), "{note}");
}

/// Every form tells of the same change, with the same status.
#[track_caller]
fn assert_forms(place: &Place, file: &Path) {
    for (format, words) in [
        ("markdown", "| sim | basic/getpid | "),
        ("junit", "<failure message="),
        ("bencher", "\"sim basic/getpid\": {"),
        ("json", "\"outcome\": \"changed\""),
    ] {
        let ended = check(place, file, &["--format", format]);
        assert_eq!(ended.status, Some(1), "{format}: {ended:?}");
        assert!(ended.output.contains(words), "{format}: {}", ended.output);
    }
}

#[test]
fn missing_and_new_operations_are_changes() {
    if !has_qemu("an operation that appears") {
        return;
    }
    let place = Place::new();
    let file = baseline(&place);
    edit(&file, |json| {
        let all = figures(json).as_object_mut().expect("figures");
        all.remove("basic/yield");
        all.insert("basic/later".to_owned(), 1.0.into());
    });
    let ended = check(&place, &file, &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let row = |name: &str, word: &str| {
        let mut lines = ended.output.lines();
        lines.any(|line| line.starts_with(name) && line.ends_with(word))
    };
    assert!(row("basic/yield", "appeared"), "{}", ended.output);
    assert!(row("basic/later", "vanished"), "{}", ended.output);
}

#[track_caller]
fn assert_usage(ended: &Ended, words: &[&str]) {
    assert_eq!(
        (ended.status, ended.output.as_str()),
        (Some(2), ""),
        "{ended:?}"
    );
    for word in words {
        assert!(ended.errors.contains(word), "{word}: {}", ended.errors);
    }
    assert!(ended.errors.contains("\n  help: "), "{}", ended.errors);
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
        ("", "it is empty"),
        ("{\"trapline-baseline\": 1,", "damaged"),
        ("{\"cells\": []}", "no baseline"),
        ("{\"trapline-baseline\": 99}", "format 99"),
        (
            "{\"trapline-baseline\": 2, \"trapline\": \"\", \"workload\": \"basic\", \"environments\": {}}",
            "no figures",
        ),
    ] {
        std::fs::write(&file, text).expect("it can be written");
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
        let ended = place.run(&[&[command, "--env", "sim,kvm"][..], rest].concat());
        assert_usage(&ended, &["baselines are not supported by kvm", "sim/kvm"]);
    }
    let ended = place.run(&["check", "--baseline", "x", "--tolerance", "basic=-1"]);
    assert_usage(&ended, &["--tolerance"]);
}

#[test]
fn unmeasurable_baseline_has_its_own_status() {
    let place = Place::new();
    let empty = place.path().join("bin");
    std::fs::create_dir(&empty).expect("it is new");
    let mut command = place.trapline(&["baseline", "--env", "sim"]);
    let output = command.env("PATH", &empty).output().expect("it starts");
    let ended = Ended::from(output);
    assert_eq!(
        (ended.status, ended.output.as_str()),
        (Some(4), ""),
        "{ended:?}"
    );
    assert!(ended.errors.contains("qemu-system-x86"), "{}", ended.errors);
}

/// Ourselves. Digits are those of one kernel, QEMU and toolchain: where others are
/// here, nobody is to blame for a difference.
#[track_caller]
fn assert_as_kept(name: &str) {
    let what = format!("the baseline {name}");
    if !has_qemu(&what) {
        return;
    }
    let place = Place::new();
    let file = root().join("baselines").join(name);
    let ended = check(&place, &file, &["--format", "json"]);
    if ended.status == Some(4) {
        return skip(&what, ended.errors.trim());
    }
    let json: Value =
        serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let causes = json["causes"].as_array().expect("a list");
    let around = causes.iter().find(|cause| cause["around"] == true);
    if let Some(cause) = around {
        assert_ne!(ended.status, Some(3), "{}", ended.output);
        let why = format!(
            "it was made with another {}; `make baseline` makes it anew",
            cause["fact"].as_str().expect("a name")
        );
        return skip(&what, &why);
    }
    assert_eq!(
        ended.status,
        Some(0),
        "a figure of ours changed; if that is meant, `make baseline` and say why:\n{}",
        check(&place, &file, &[]).output
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
