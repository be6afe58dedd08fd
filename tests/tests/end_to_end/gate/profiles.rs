//! Profiles of baselines: functions that gained or lost instructions.

use super::{baseline, check, edit, figures, take};
use serde_json::Value;
use std::path::{Path, PathBuf};
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, skip};

/// Writes a baseline with profiles, if this QEMU loads the plugin.
fn baseline_with_profiles(place: &Place, feature: &str) -> Option<PathBuf> {
    if !has_qemu(feature) {
        return None;
    }
    let file = baseline(place);
    let text = std::fs::read_to_string(&file).expect("file exists");
    if !text.contains("\"ledgers\"") {
        skip(feature, "QEMU is too old to load the plugin that counts");
        return None;
    }
    Some(file)
}

#[test]
fn plugin_does_not_change_figures() {
    let feature = "figures with and without the plugin";
    let place = Place::new();
    let Some(file) = baseline_with_profiles(&place, feature) else {
        return;
    };
    let mut counted: Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect("file exists")).expect("JSON");
    place.replace("libtrapline_profile.so", b"no library");
    let alone = place.run(&["baseline", "--env", "sim", "--workload", "basic"]);
    assert_eq!(alone.status, Some(0), "{alone:?}");
    assert!(
        alone
            .stderr
            .contains("\nnote: the baseline has no profiles: QEMU "),
        "{alone:?}"
    );
    let alone: Value = serde_json::from_str(&alone.stdout).expect("JSON");
    let sim = counted["environments"]["sim"].as_object_mut();
    let profiles = sim.expect("object").remove("ledgers");
    assert!(profiles.is_some_and(|profiles| profiles["basic/yield"].is_object()));
    assert_eq!(alone, counted);
}

/// Lowers the stored cost of the function that begins with `function` by `insn`, in figure and profile,
/// and returns its name.
fn shrink(
    file: &Path,
    (environment, operation): (&str, &str),
    function: &str,
    insn: f64,
) -> String {
    let mut whole = String::new();
    let text = std::fs::read_to_string(file).expect("file exists");
    let mut json: Value = serde_json::from_str(&text).expect("JSON");
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
    std::fs::write(file, format!("{json:#}")).expect("write succeeds");
    whole
}

/// Returns the indented lines after that of an operation.
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
        let (_, function) = whole.split_once(' ').expect("function name");
        let result = check(&place, &file, &[]);
        assert_eq!(result.status, Some(1), "{result:?}");
        let gain = format!("+{gained:.3}");
        let line = format!("{gain:>15}  {:<18} {function}", "guest");
        assert_eq!(below(&result.stdout, getpid.1), [line]);
    }
    edit(&file, |json| take(&mut figures(json)["basic/getpid"], 1.0));
    let result = check(&place, &file, &[]);
    let lines = below(&result.stdout, getpid.1);
    let caveat = "    profiles of other totals: ";
    assert!(
        lines.last().is_some_and(|line| line.starts_with(caveat)),
        "{lines:?}"
    );
}

#[test]
fn change_of_the_vmm_loop_is_named() {
    let feature = "a change of the VMM's loop";
    if !has_qemu(feature) {
        return;
    }
    let place = Place::new();
    let (environment, operation) = ("sim/kvm", "exits/port-out");
    let made = place.run(&["baseline", "--env", environment, "--workload", operation]);
    if made.status == Some(4) || made.stderr.contains("the baseline has no profiles") {
        return skip(feature, made.stderr.trim());
    }
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let file = place.path().join("baseline.json");
    std::fs::write(&file, made.stdout).expect("write succeeds");
    let vmm = "trapline-vmm trapline_machine::machine::Machine";
    shrink(&file, (environment, operation), vmm, 20.0);
    let result = check(&place, &file, &[]);
    assert_eq!(result.status, Some(1), "{result:?}");
    let lines = below(&result.stdout, operation);
    let [line] = lines[..] else {
        panic!("one function gained instructions: {}", result.stdout);
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
    let result = check(&place, &file, &[]);
    assert_eq!(result.status, Some(1), "{result:?}");
    let lead = "note: the functions that gained or lost are unknown: QEMU ";
    assert!(result.stdout.contains(lead), "{}", result.stdout);
    assert!(result.stdout.contains("API version 1"), "{}", result.stdout);
    // The first format had no profiles.
    edit(&file, |json| {
        json["trapline-baseline"] = 1.into();
        let sim = json["environments"]["sim"].as_object_mut();
        sim.expect("object").remove("ledgers");
    });
    let result = check(&place, &file, &["--format", "json"]);
    assert_eq!(result.status, Some(1), "{result:?}");
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON");
    let note = json["notes"][0].as_str().expect("note");
    assert!(note.contains("the baseline has no profiles; "), "{note}");
}
