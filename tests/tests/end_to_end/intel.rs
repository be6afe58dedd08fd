//! The machine with Intel's virtualization, end to end: its figures are explained to
//! the instruction, and what can go wrong with Bochs is told with what helps.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use trapline_tests::processes::{children, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{Ended, Place};
use trapline_tests::skip;

/// The program of Bochs, as the kernel calls its processes.
const BOCHS: &str = "bochs-bin";

/// Returns whether an environment is ready; otherwise records `what` as skipped.
fn is_ready(place: &Place, environment: &str, what: &str) -> bool {
    let (_, reason) = availability(place, environment, None);
    if let Some(reason) = &reason {
        skip(what, reason);
    }
    reason.is_none()
}

/// What `trapline list` says of an environment, with another $PATH if one is given:
/// how it ended, and why the environment is not ready.
fn availability(place: &Place, environment: &str, path: Option<&Path>) -> (Ended, Option<String>) {
    let mut command = place.trapline(&["list", "--format", "json"]);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let ended = Ended::from(command.output().expect("it starts"));
    let json: Value = serde_json::from_str(&ended.output).expect("one JSON object");
    let all = json["environments"].as_array().expect("a list");
    let found = all.iter().find(|one| one["name"] == environment);
    let reason = found.expect("it is known")["reason"].as_str();
    let reason = reason.map(str::to_owned);
    (ended, reason)
}

fn profile(place: &Place, environment: &str, operation: &str) -> (String, Value) {
    let ended = place.run(&["explain", environment, operation, "--format", "json"]);
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    let json = serde_json::from_str(&ended.output).expect("one JSON object");
    (ended.output, json)
}

/// Returns the figure of `trapline run` for the same operation, without a profiler.
fn figure(place: &Place, environment: &str, operation: &str) -> f64 {
    let json = place.measure(&["-q", "--env", environment, "--workload", operation]);
    json["cells"][0]["estimate"]
        .as_f64()
        .expect("it was measured")
}

/// Instructions of a component.
fn of_component(profile: &Value, component: &str) -> f64 {
    let functions = profile["functions"].as_array().expect("a list");
    let own = functions
        .iter()
        .filter(|item| item["component"] == component);
    own.filter_map(|item| item["insn"].as_f64()).sum()
}

#[track_caller]
fn assert_explains(profile: &Value, figure: f64) {
    assert_eq!(profile["residual"], 0, "{profile:#}");
    assert_eq!(
        profile["total"].as_f64(),
        Some(figure),
        "watching changes it"
    );
    let functions = profile["functions"].as_array().expect("a list");
    let sum: f64 = functions
        .iter()
        .filter_map(|item| item["insn"].as_f64())
        .sum();
    assert!((sum - figure).abs() < 1e-6, "{profile:#}");
}

#[test]
fn all_instructions_of_the_bare_machine_belong_to_the_image() {
    let place = Place::new();
    if !is_ready(&place, "sim-vmx", "explaining Intel's bare machine") {
        return;
    }
    let (text, json) = profile(&place, "sim-vmx", "basic/getpid");
    assert_explains(&json, figure(&place, "sim-vmx", "basic/getpid"));
    assert!(of_component(&json, "guest") >= 1.0, "{text}");
}

#[test]
#[ignore = "slow: make test-all"]
fn profile_of_an_exit_to_kvm_is_complete() {
    let place = Place::new();
    if !is_ready(
        &place,
        "sim-vmx/kvm",
        "explaining an exit to KVM on Intel's machine",
    ) {
        return;
    }
    let operation = "exits/port-out";
    let (text, json) = profile(&place, "sim-vmx/kvm", operation);
    assert_explains(&json, figure(&place, "sim-vmx/kvm", operation));
    assert_eq!(json["exits"], json["operations"], "one exit each");
    for component in ["guest", "kvm_intel", "kvm", "kernel", "trapline-vmm"] {
        let insn = of_component(&json, component);
        assert!(insn >= 1.0, "nothing of {component}: {text}");
    }
    assert!(text.contains("\"vmx_vcpu_run\""), "{text}");
}

/// From the image to Xen and back, with nobody else on the way.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_an_exit_to_xen_is_complete() {
    let place = Place::new();
    let environment = "sim-vmx/xen-pvh";
    if !is_ready(
        &place,
        environment,
        "explaining an exit to Xen on Intel's machine",
    ) {
        return;
    }
    let operation = "exits/cpuid";
    let (text, json) = profile(&place, environment, operation);
    assert_explains(&json, figure(&place, environment, operation));
    assert_eq!(json["exits"], json["operations"], "one exit each");
    for component in ["guest", "xen"] {
        let insn = of_component(&json, component);
        assert!(insn >= 1.0, "nothing of {component}: {text}");
    }
    if text.contains("\"[xen]\"") {
        return skip("names of Xen's code", "its symbols cannot be had");
    }
    assert!(text.contains("\"vmx_vmexit_handler\""), "{text}");
}

/// Profile of a Linux program, with its faults and system calls.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_system_call_is_complete() {
    let place = Place::new();
    if !is_ready(
        &place,
        "sim-vmx/linux",
        "explaining Linux on Intel's machine",
    ) {
        return;
    }
    let (text, json) = profile(&place, "sim-vmx/linux", "basic/getpid");
    assert_eq!(json["residual"], 0, "{text}");
    assert!(of_component(&json, "kernel") > 10.0, "{text}");
    assert!(of_component(&json, "trapline-agent") >= 1.0, "{text}");
}

#[test]
fn explanations_without_plugin_support_are_rejected() {
    let place = Place::new();
    let drawn = place.path().join("one.svg");
    let drawn = drawn.to_str().expect("a plain name");
    for (words, told) in [
        (
            vec!["sim-vmx/kvm", "boot"],
            "explain boot is not supported by",
        ),
        (
            vec!["sim-vmx/kvm", "exits/cpuid", "--flamegraph", drawn],
            "--flamegraph is not supported by sim-vmx/kvm",
        ),
        (
            vec!["sim-vmx/xen-pvh", "boot"],
            "explain boot is not supported by",
        ),
        (
            vec!["sim/kvm", "sim-vmx/kvm", "exits/cpuid"],
            "cannot be compared",
        ),
    ] {
        let ended = place.run(&[&["explain"], &words[..]].concat());
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.errors.contains(told), "{ended:?}");
        assert!(ended.errors.contains("help: "), "{ended:?}");
    }
}

/// A directory in which a script stands for Bochs.
fn false_bochs(place: &Place, script: &str) -> std::path::PathBuf {
    let bin = place.path().join("only");
    std::fs::create_dir_all(&bin).expect("it can be made");
    let program = bin.join(BOCHS);
    std::fs::write(&program, script).expect("it can be written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("it is ours");
    bin
}

#[test]
fn missing_bochs_or_vmx_is_reported_with_a_remedy() {
    let place = Place::new();
    let empty = place.path().join("nothing");
    std::fs::create_dir(&empty).expect("it is new");
    let without = "#!/bin/sh\n[ \"$2\" = cpu ] && echo bx_generic || echo Bochs x86 Emulator 2.7\n";
    let without = false_bochs(&place, without);
    for (path, told) in [(empty, "there is no Bochs"), (without, "has no processor")] {
        for environment in ["sim-vmx", "sim-vmx/kvm", "sim-vmx/xen-pvh"] {
            let (_, reason) = availability(&place, environment, Some(&path));
            let reason = reason.expect("it is not ready");
            assert!(reason.contains(told), "{reason}");
            assert!(reason.contains("apt-get install"), "{reason}");
        }
    }
}

/// Starts a run on Intel's machine, and waits until Bochs runs for it.
fn start(place: &Place) -> (Child, i32) {
    let store = place.store();
    let store = store.to_str().expect("the path is text");
    let words = "--env sim-vmx/linux --workload basic/getpid --format json";
    let mut all = vec!["run", "--store", store];
    all.extend(words.split(' '));
    let mut command = place.trapline(&all);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let runs = wait_until(TO_BEGIN, || !machines(&child).is_empty());
    assert!(runs, "no Bochs was started");
    let bochs = machines(&child)[0];
    (child, bochs)
}

/// The Bochs that make machines for a lab.
fn machines(lab: &Child) -> Vec<i32> {
    let mut all = children(lab.id(), BOCHS);
    all.retain(is_machine);
    all
}

/// Returns whether a Bochs process runs a machine, and does not only print its version.
fn is_machine(bochs: &i32) -> bool {
    let words = std::fs::read(format!("/proc/{bochs}/cmdline"));
    words.is_ok_and(|words| words.split(|byte| *byte == 0).any(|word| word == b"-f"))
}

fn is_alive(process: i32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

#[test]
fn killed_bochs_is_reported() {
    let place = Place::new();
    if !is_ready(&place, "sim-vmx/linux", "killing Bochs") {
        return;
    }
    let (mut child, _) = start(&place);
    // Both boots of the machine, at the same time or one after the other.
    let over = wait_until(Duration::from_secs(60), || {
        for bochs in machines(&child) {
            // SAFETY: kill(2) touches no memory of ours. The process is one that our
            // child has started and that runs for seconds: this is its number still.
            unsafe { libc::kill(bochs, libc::SIGKILL) };
        }
        child.try_wait().expect("it is ours").is_some()
    });
    assert!(over, "the lab waits for what was killed");
    let ended = Ended::from(child.wait_with_output().expect("it ends"));
    assert_eq!(ended.status, Some(1), "{}", ended.errors);
    assert!(ended.output.contains("signal 9"), "{ended:?}");
}

#[test]
fn ctrl_c_ends_bochs() {
    let place = Place::new();
    if !is_ready(&place, "sim-vmx/linux", "interrupting Bochs") {
        return;
    }
    let (child, bochs) = start(&place);
    signal(&child, libc::SIGINT);
    let ended = Ended::from(child.wait_with_output().expect("it ends"));
    assert_eq!(ended.status, Some(130), "{}", ended.errors);
    assert!(
        wait_until(Duration::from_secs(5), || !is_alive(bochs)),
        "Bochs still runs"
    );
}

#[test]
fn exceeded_deadline_is_reported_with_the_option_to_raise_it() {
    let place = Place::new();
    if !is_ready(&place, "sim-vmx/linux", "a deadline for Bochs") {
        return;
    }
    let words = "--env sim-vmx/linux --workload basic/getpid --timeout 1";
    let json = place.measure(&words.split(' ').collect::<Vec<_>>());
    let told = json["cells"][0]["failed"].as_str().expect("it failed");
    assert!(told.contains("timed out after 1 s"), "{told}");
    assert!(told.contains("--timeout allows more"), "{told}");
}
