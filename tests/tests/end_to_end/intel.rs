//! The simulated machine with VMX: complete profiles of its figures, and failures of Bochs.

use crate::shared::assert_reproducible;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use trapline_tests::measurements::{cells, component_insn, estimate, facts, total_insn};
use trapline_tests::processes::{children, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{has, unavailable_reason, CommandOutput, Place};
use trapline_tests::{skip, write_program};

/// Process name of Bochs.
const BOCHS: &str = "bochs-bin";

fn profile(place: &Place, environment: &str, operation: &str) -> (String, Value) {
    let result = place.run(&["explain", environment, operation, "--format", "json"]);
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let json = serde_json::from_str(&result.stdout).expect("JSON object");
    (result.stdout, json)
}

/// Share by which the clock of Bochs 3.0 may be short: it lags by up to five instructions at the end of a batch, but not while they
/// are traced.
const LAG: f64 = 2e-4;

/// Checks a profile against an operation's figure in a run.
#[track_caller]
fn assert_explains(profile: &Value, run: &Value, environment: &str, operation: &str) {
    assert_eq!(profile["residual"], 0, "{profile:#}");
    let total = profile["total"].as_f64().expect("total is a number");
    assert!((total_insn(profile) - total).abs() < 1e-6, "{profile:#}");
    let figure = estimate(run, environment, operation);
    let bochs = facts(run, environment)["bochs"].as_str();
    let lag = if bochs.is_some_and(|version| version.starts_with("2.")) {
        0.0
    } else {
        LAG * total
    };
    assert!(
        (-lag - 1e-6..1e-6).contains(&(figure - total)),
        "profiling changes the figure: {figure} to {total}"
    );
}

/// Returns a run of one operation.
fn measured(place: &Place, environment: &str, operation: &str) -> Value {
    place.measure(&["-q", "--env", environment, "--workload", operation])
}

#[test]
fn all_instructions_of_the_bare_machine_belong_to_the_image() {
    let place = Place::new();
    if !has("sim-vmx", "explaining Intel's bare machine") {
        return;
    }
    let (text, json) = profile(&place, "sim-vmx", "basic/getpid");
    let run = measured(&place, "sim-vmx", "basic/getpid");
    assert_explains(&json, &run, "sim-vmx", "getpid");
    assert!(component_insn(&json, "guest") >= 1.0, "{text}");
}

#[test]
#[ignore = "slow: make test-all"]
fn image_in_kvm_is_reproducible_and_explained() {
    let place = Place::reproducing();
    if !has(
        "sim-vmx/kvm",
        "explaining an exit to KVM on Intel's machine",
    ) {
        return;
    }
    let workload = "exits/port-out,exits/cpuid,exits/hypercall,boot/main";
    let run = place.measure(&["-q", "--env", "sim-vmx/kvm", "--workload", workload]);
    for cell in cells(&run) {
        assert_eq!(cell["boots"], 2, "{cell:#}");
    }
    assert_reproducible(&place, "sim-vmx/kvm");
    let (text, json) = profile(&place, "sim-vmx/kvm", "exits/port-out");
    assert_explains(&json, &run, "sim-vmx/kvm", "port-out");
    assert_eq!(json["exits"], json["operations"], "one exit each");
    for component in ["guest", "kvm_intel", "kvm", "kernel", "trapline-vmm"] {
        let insn = component_insn(&json, component);
        assert!(insn >= 1.0, "nothing of {component}: {text}");
    }
    assert!(text.contains("\"vmx_vcpu_run\""), "{text}");
}

/// The path contains the image and Xen only.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_an_exit_to_xen_is_complete() {
    let place = Place::new();
    let environment = "sim-vmx/xen-pvh";
    if !has(environment, "explaining an exit to Xen on Intel's machine") {
        return;
    }
    let operation = "exits/cpuid";
    let (text, json) = profile(&place, environment, operation);
    let run = measured(&place, environment, operation);
    assert_explains(&json, &run, environment, "cpuid");
    assert_eq!(json["exits"], json["operations"], "one exit each");
    for component in ["guest", "xen"] {
        let insn = component_insn(&json, component);
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
    if !has("sim-vmx/linux", "explaining Linux on Intel's machine") {
        return;
    }
    let (text, json) = profile(&place, "sim-vmx/linux", "basic/getpid");
    assert_eq!(json["residual"], 0, "{text}");
    assert!(component_insn(&json, "kernel") > 10.0, "{text}");
    assert!(component_insn(&json, "trapline-agent") >= 1.0, "{text}");
}

/// Processes of the image fault, which the clock of this machine charges.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_fork_is_complete() {
    let place = Place::new();
    if !has("sim-vmx", "explaining processes on Intel's machine") {
        return;
    }
    let (text, json) = profile(&place, "sim-vmx", "system/fork");
    let run = measured(&place, "sim-vmx", "system/fork");
    assert_explains(&json, &run, "sim-vmx", "fork");
    assert_ne!(json["faults"], 0, "{text}");
}

#[test]
fn explanations_without_plugin_support_are_rejected() {
    let place = Place::new();
    let drawn = place.path().join("one.svg");
    let drawn = drawn.to_str().expect("path is UTF-8");
    for (words, message) in [
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
        let result = place.run(&[&["explain"], &words[..]].concat());
        assert_eq!(result.status, Some(2), "{result:?}");
        assert!(result.stderr.contains(message), "{result:?}");
        assert!(result.stderr.contains("help: "), "{result:?}");
    }
}

/// Creates a directory with a script in place of Bochs.
fn false_bochs(place: &Place, script: &str) -> std::path::PathBuf {
    let bin = place.path().join("only");
    std::fs::create_dir_all(&bin).expect("directory can be created");
    let program = bin.join(BOCHS);
    write_program(&program, script);
    bin
}

#[test]
fn missing_bochs_or_vmx_is_reported_with_a_remedy() {
    let place = Place::new();
    let empty = place.path().join("nothing");
    std::fs::create_dir(&empty).expect("path is unused");
    let without = "#!/bin/sh\n[ \"$2\" = cpu ] && echo bx_generic || echo Bochs x86 Emulator 2.7\n";
    let without = false_bochs(&place, without);
    for (path, message) in [(empty, "there is no Bochs"), (without, "has no processor")] {
        let mut command = place.trapline(&["list", "--format", "json"]);
        let list = command.env("PATH", path).output().expect("program starts");
        let list = CommandOutput::from(list);
        for environment in ["sim-vmx", "sim-vmx/kvm", "sim-vmx/xen-pvh"] {
            let reason = unavailable_reason(&list, environment);
            let reason = reason.expect("environment is unavailable");
            assert!(reason.contains(message), "{reason}");
            assert!(reason.contains("apt-get install"), "{reason}");
        }
    }
}

/// Starts a run and waits until Bochs runs its machine.
fn start(place: &Place) -> (Child, i32) {
    let store = place.store();
    let store = store.to_str().expect("path is UTF-8");
    let words = "--env sim-vmx/linux --workload basic/getpid --format json";
    let mut all = vec!["run", "--store", store];
    all.extend(words.split(' '));
    let mut command = place.trapline(&all);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("program starts");
    let runs = wait_until(TO_BEGIN, || !machines(&child).is_empty());
    assert!(runs, "no Bochs was started");
    let bochs = machines(&child)[0];
    (child, bochs)
}

/// Returns the Bochs processes of a run's machines.
fn machines(run: &Child) -> Vec<i32> {
    let mut all = children(run.id(), BOCHS);
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
    if !has("sim-vmx/linux", "killing Bochs") {
        return;
    }
    let (mut child, _) = start(&place);
    // The run boots the machine twice, concurrently or one after the other.
    let over = wait_until(Duration::from_secs(60), || {
        for bochs in machines(&child) {
            // SAFETY: kill(2) accesses no memory of this process. The child of the run was just listed
            // and runs for seconds.
            unsafe { libc::kill(bochs, libc::SIGKILL) };
        }
        child
            .try_wait()
            .expect("file is owned by the test")
            .is_some()
    });
    assert!(over, "the run does not end");
    let result = CommandOutput::from(child.wait_with_output().expect("child is reaped"));
    assert_eq!(result.status, Some(1), "{}", result.stderr);
    assert!(result.stdout.contains("signal 9"), "{result:?}");
}

#[test]
fn ctrl_c_ends_bochs() {
    let place = Place::new();
    if !has("sim-vmx/linux", "interrupting Bochs") {
        return;
    }
    let (child, bochs) = start(&place);
    signal(&child, libc::SIGINT);
    let result = CommandOutput::from(child.wait_with_output().expect("child is reaped"));
    assert_eq!(result.status, Some(130), "{}", result.stderr);
    assert!(
        wait_until(TO_BEGIN, || !is_alive(bochs)),
        "Bochs still runs"
    );
}

#[test]
fn exceeded_deadline_is_reported_with_the_option_to_raise_it() {
    let place = Place::new();
    if !has("sim-vmx/linux", "a deadline for Bochs") {
        return;
    }
    let words = "--env sim-vmx/linux --workload basic/getpid --timeout 1";
    let json = place.measure(&words.split(' ').collect::<Vec<_>>());
    let reason = json["cells"][0]["failed"]
        .as_str()
        .expect("operation failed");
    assert!(reason.contains("timed out after 1 s"), "{reason}");
    assert!(reason.contains("--timeout allows more"), "{reason}");
}
