//! `trapline explain`: profiles add up to the measured figure and are reproducible.

use crate::shared::default_run;
use serde_json::Value;
use std::sync::OnceLock;
use trapline_tests::has_qemu;
use trapline_tests::measurements::{cells, component_insn, estimate, functions, total_insn};
use trapline_tests::run::{CommandOutput, Place};

mod flame_graph;
mod formats;
mod starts;

fn explain(place: &Place, words: &[&str]) -> CommandOutput {
    place.run(&[&["explain"], words].concat())
}

/// Returns the profile of an operation as text and as JSON, if this host can measure it.
fn profile(place: &Place, environment: &str, operation: &str) -> Option<(String, Value)> {
    profile_with(place, environment, operation, &[])
}

/// Returns the profile with further arguments.
fn profile_with(
    place: &Place,
    environment: &str,
    operation: &str,
    more: &[&str],
) -> Option<(String, Value)> {
    let feature = format!("explaining {operation} in {environment}");
    if !has_qemu(&feature) {
        return None;
    }
    let words = [environment, operation, "--format", "json"];
    let result = explain(place, &[&words, more].concat());
    let unnamed = result.stderr.contains("Xen has no symbols");
    if unnamed {
        trapline_tests::skip(&feature, result.stderr.trim());
        return None;
    }
    let missing = [
        "cannot load the plugin",
        "no kernel package",
        "no Xen package",
        "no package",
        "apt-get download",
        "is not here",
    ];
    if result.status == Some(1) && missing.iter().any(|words| result.stderr.contains(words)) {
        trapline_tests::skip(&feature, result.stderr.trim());
        return None;
    }
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let json = serde_json::from_str(&result.stdout).expect("JSON object");
    Some((result.stdout, json))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[track_caller]
fn assert_adds_up(profile: &Value) {
    assert_eq!(profile["residual"], 0, "{profile:#}");
    assert_near(total_insn(profile), number(&profile["total"]), profile);
}

/// Compares a sum of quotients with a quotient of sums, up to rounding.
#[track_caller]
fn assert_near(sum: f64, total: f64, of: &Value) {
    assert!((sum - total).abs() < 1e-6 + 1e-12 * total, "{sum}: {of:#}");
}

#[test]
fn all_instructions_of_the_bare_machine_belong_to_the_image() {
    let place = Place::new();
    let operation = "basic/getpid";
    let Some((_, json)) = profile(&place, "sim", operation) else {
        return;
    };
    assert_adds_up(&json);
    let measured = estimate(&default_run().json, "sim", operation);
    assert_eq!(number(&json["total"]), measured);
}

#[test]
fn profile_of_an_exit_is_complete() {
    let Some(SharedProfile { text, json, .. }) = shared_profile() else {
        return;
    };
    assert_adds_up(json);
    assert_eq!(json["exits"], json["operations"], "one exit each");
    let [environment, operation] = SHARED;
    let measured = estimate(&default_run().json, environment, operation);
    assert_eq!(number(&json["total"]), measured);
    for component in ["guest", "kvm_amd", "kvm", "kernel", "trapline-vmm"] {
        let insn = component_insn(json, component);
        assert!(insn >= 1.0, "nothing of {component}: {text}");
    }
    assert!(text.contains("\"__svm_vcpu_run\""), "{text}");
}

/// The profile of each operation adds up to its figure in `trapline run`.
#[test]
fn workload_is_explained_by_operation() {
    let place = Place::new();
    let Some((_, json)) = profile(&place, "sim", "exits") else {
        return;
    };
    let profiles = json["ledgers"].as_array().expect("list");
    let mut explained = 0;
    let is_exit = |cell: &&Value| cell["environment"] == "sim" && cell["workload"] == "exits";
    for cell in cells(&default_run().json)
        .iter()
        .filter(|cell| is_exit(cell) && cell["estimate"].is_number())
    {
        let path = format!("exits/{}", cell["operation"].as_str().expect("name"));
        let found = profiles
            .iter()
            .find(|profile| profile["operation"] == *path);
        match found {
            None => assert_eq!(path, "exits/timer-wake"),
            Some(profile) => {
                assert_adds_up(profile);
                assert_eq!(profile["total"], cell["estimate"], "{path}");
                explained += 1;
            }
        }
    }
    assert_eq!(explained, profiles.len());
    assert!(explained >= 5, "{json:#}");
    let result = explain(&place, &["sim", "exits"]);
    assert!(
        result
            .stderr
            .starts_with("note: exits/hypercall is not measured in sim: "),
        "{result:?}"
    );
}

/// The path contains Xen, and kernel and device model of the initial domain.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_domain_device_includes_dom0() {
    assert_domain_profile(
        "sim/xen-hvm",
        &[
            ("dom0-kernel", "do_sys_poll"),
            ("xen_evtchn", "evtchn_interrupt"),
            ("device-model", "[+0x"),
            ("libxenevtchn", "xenevtchn_notify"),
        ],
    );
}

/// Checks the profile of a port write of a domain: that of Xen, and these functions.
fn assert_domain_profile(environment: &str, functions: &[(&str, &str)]) {
    let (place, operation) = (Place::new(), "exits/port-out");
    let Some((_, json)) = profile(&place, environment, operation) else {
        return;
    };
    assert_adds_up(&json);
    assert_eq!(number(&json["total"]), place.figure(environment, operation));
    let common = [
        ("guest", "trapline_workloads"),
        ("xen", "svm_vmexit_handler"),
        ("xen", "pv_hypercall"),
    ];
    assert_named(&json, &[&common[..], functions].concat());
}

/// The path contains Xen, the kernel of the initial domain, and the VMM.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_domain_of_trapline_vmm_includes_both() {
    assert_domain_profile(
        "sim/xen/trapline",
        &[
            ("dom0-kernel", "__seccomp_filter"),
            ("xen_privcmd", "privcmd_ioctl"),
            ("xen_evtchn", "evtchn_ioctl"),
            ("trapline-vmm", "<trapline_xen::vcpu::XenVcpu"),
        ],
    );
}

/// Environment and operation of the shared profile.
const SHARED: [&str; 2] = ["sim/kvm", "exits/port-out"];

/// The profile of [`DRAWN`] and its flame graph.
struct SharedProfile {
    text: String,
    json: Value,
    svg: String,
}

fn explain_shared() -> Option<SharedProfile> {
    let place = Place::new();
    let file = place.path().join("one.svg");
    let name = file.to_str().expect("path is UTF-8");
    let (text, json) = profile_with(&place, SHARED[0], SHARED[1], &["--flamegraph", name])?;
    let svg = std::fs::read_to_string(file).expect("flame graph exists");
    Some(SharedProfile { text, json, svg })
}

/// Returns the profile that all tests share.
fn shared_profile() -> Option<&'static SharedProfile> {
    static SHARED: OnceLock<Option<SharedProfile>> = OnceLock::new();
    SHARED.get_or_init(explain_shared).as_ref()
}

#[track_caller]
fn assert_named(profile: &Value, named: &[(&str, &str)]) {
    for (component, wanted) in named {
        let names = functions(profile, component).filter_map(|item| item["function"].as_str());
        let names: Vec<_> = names.collect();
        let found = names.iter().any(|name| name.starts_with(wanted));
        assert!(found, "no {wanted} in {component}: {names:?}");
    }
}

#[test]
fn difference_of_identical_profiles_is_empty() {
    if !has_qemu("the difference of two profiles") {
        return;
    }
    let place = Place::new();
    let words = ["sim", "sim", "exits/port-out", "--format", "json"];
    let result = explain(&place, &words);
    if result.stderr.contains("cannot load the plugin") {
        return trapline_tests::skip("the difference of two profiles", result.stderr.trim());
    }
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON object");
    assert_eq!(
        json["changes"],
        serde_json::json!([]),
        "a profile differs from itself"
    );
    assert_eq!(number(&json["difference"]), 0.0);
}

#[test]
fn two_settings_of_one_environment_are_compared() {
    if !has_qemu("profiles of two settings") {
        return;
    }
    let place = Place::new();
    let settings = ["sim/kvm:paging=shadow", "sim/kvm"];
    let words = [&settings[..], &["exits/mmio-write", "--format", "json"]].concat();
    let result = explain(&place, &words);
    if result.status == Some(1) {
        return trapline_tests::skip("profiles of two settings", result.stderr.trim());
    }
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON object");
    for (side, settings) in [("before", "paging=shadow"), ("after", "")] {
        assert_eq!(json[side]["environment"], "sim/kvm");
        assert_eq!(json[side]["settings"], settings);
        assert_adds_up(&json[side]);
    }
    let changes = json["changes"].as_array().expect("list");
    assert!(
        changes.iter().any(|change| change["component"] == "kvm"),
        "KVM translates the guest's addresses alike: {changes:?}"
    );
}

#[test]
fn unexplainable_operations_are_rejected_with_alternatives() {
    let place = Place::new();
    for (words, message) in [
        (["kvm", "exits/port-out"], "is not on the instruction clock"),
        (
            ["sim", "exits/timer-wake"],
            "explain is not supported by exits/timer-wake",
        ),
        (
            ["sim", "stream"],
            "name an operation of basic, system, exits, boot, populate, block, files or net",
        ),
        (
            ["sim-vmx", "boot"],
            "explain boot is not supported by sim-vmx",
        ),
        (["sim/kmv", "exits"], "did you mean 'sim/kvm'?"),
        (["sim", "exits/port-oot"], "did you mean 'exits/port-out'?"),
    ] {
        let result = explain(&place, &words);
        assert_eq!(result.status, Some(2), "{result:?}");
        assert!(result.stderr.contains(message), "{result:?}");
    }
}

#[test]
fn unloadable_plugin_is_reported_with_a_remedy() {
    if !has_qemu("a plugin that QEMU cannot load") {
        return;
    }
    let place = Place::new();
    place.replace("libtrapline_profile.so", b"no library");
    let result = explain(&place, &["sim", "basic/getpid"]);
    assert_eq!(result.status, Some(1), "{result:?}");
    assert!(
        result.stderr.contains("cannot load the plugin"),
        "{result:?}"
    );
    assert!(result.stderr.contains("API version 1"), "{result:?}");
}
