//! A VMM of the user's own: commands that cannot work, VMMs that never start
//! their guest, and VMMs that know nothing of Trapline and run it all the same.
//! QEMU and our own VMM, started like strangers, stand for those; a real one is
//! taken if this machine has it.

use serde_json::Value;
use std::time::{Duration, Instant};
use trapline_tests::processes::{naming, wait_until};
use trapline_tests::run::{Ended, Place};
use trapline_tests::{has_kvm, has_qemu, parts};

/// QEMU as somebody who knows nothing of Trapline would start it, with
/// `accelerator` in its words and `kernel` for what it boots.
fn qemu(accelerator: &str, kernel: &str) -> String {
    let bios = "/usr/share/qemu/qboot.rom";
    format!(
        "qemu-system-x86_64 -M microvm,acpi=off,rtc=off,x-option-roms=off -bios {bios} \
         -nodefaults -no-user-config -display none {accelerator} \
         -m {{memory}} -smp {{cpus}} -serial stdio -kernel {kernel} -append {{cmdline}}"
    )
}

const ON_KVM: &str = "-accel kvm -cpu host,-arch-capabilities -no-reboot";
const TRANSLATED: &str = "-accel tcg -cpu max";

fn our_vmm() -> String {
    let program = parts().join("trapline-vmm");
    format!(
        "{} --image {{image}} --memory {{memory}}M --cpus {{cpus}} --cmdline {{cmdline}}",
        program.display()
    )
}

/// `trapline run` with one short boot in `environments`.
fn run(place: &Place, environments: &str, vmm: &str, workload: &str) -> Ended {
    let store = place.store();
    place.run(&[
        "run",
        "--format",
        "json",
        "--boots",
        "1",
        "--env",
        environments,
        "--vmm",
        vmm,
        "--workload",
        workload,
        "--store",
        store.to_str().expect("the path is text"),
    ])
}

fn parse(ended: &Ended) -> Value {
    serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn cell<'a>(json: &'a Value, environment: &str, operation: &str) -> &'a Value {
    let cells = json["cells"].as_array().expect("there are cells");
    cells
        .iter()
        .find(|cell| cell["environment"] == environment && cell["operation"] == operation)
        .unwrap_or_else(|| panic!("no {operation} in {environment}: {json:#}"))
}

fn figure(json: &Value, environment: &str, operation: &str) -> f64 {
    let cell = cell(json, environment, operation);
    cell["estimate"]
        .as_f64()
        .unwrap_or_else(|| panic!("no figure: {cell}"))
}

#[track_caller]
fn assert_refused(vmm: &str, words: &[&str]) {
    let ended = run(&Place::new(), "custom", vmm, "basic/getpid");
    assert_eq!(ended.status, Some(2), "{vmm}: {ended:?}");
    for words in words {
        assert!(ended.errors.contains(words), "{vmm}: {}", ended.errors);
    }
}

#[test]
fn invalid_command_is_rejected_before_the_run() {
    assert_refused("vmm {image}", &["placeholder {cmdline} is missing"]);
    assert_refused(
        "vmm {cmdline}",
        &["placeholder {image} or {bzimage} is missing"],
    );
    assert_refused(
        "vmm {kernel} {cmdline}",
        &["unknown placeholder '{kernel}'", "{memory} (MiB)"],
    );
    assert_refused("vmm 'image {image} {cmdline}", &["unterminated quotation"]);
    assert_refused(
        "no-such-vmm {image} {cmdline}",
        &["no program no-such-vmm in $PATH"],
    );
}

/// A VMM that never starts its guest: what is told, and how soon.
#[track_caller]
fn assert_never_spoke(environment: &str, vmm: &str, most: u64, words: &[&str]) {
    let place = Place::new();
    let start = Instant::now();
    let ended = run(&place, environment, vmm, "basic/getpid");
    let took = start.elapsed();
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let json = parse(&ended);
    let told = cell(&json, environment, "getpid")["failed"]
        .as_str()
        .unwrap_or_else(|| panic!("{json:#}"))
        .to_owned();
    for words in words {
        assert!(told.contains(words), "{words} is not in: {told}");
    }
    assert!(
        told.contains("no record arrived from the guest's serial port"),
        "{told}"
    );
    assert!(told.contains("command: /"), "{told}");
    assert!(told.contains("trapline.run=basic/getpid"), "{told}");
    assert!(took < Duration::from_secs(most), "{took:?}");
    let gone = wait_until(Duration::from_secs(5), || naming(place.path()).is_empty());
    assert!(gone, "still running: {:?}", naming(place.path()));
}

#[test]
fn failing_vmm_is_reported_with_its_last_output() {
    let vmm = "sh -c 'echo no such device >&2; exit 3' {image} {cmdline}";
    let words = ["sh ended with status 3", "no such device"];
    assert_never_spoke("custom", vmm, 15, &words);
}

#[test]
fn vmm_that_exits_without_output_is_reported() {
    let words = ["true ended with status 0"];
    assert_never_spoke("custom", "true {image} {cmdline}", 15, &words);
}

/// So is what it has started itself.
#[test]
fn hanging_vmm_is_killed_early() {
    let vmm = r#"sh -c 'echo waiting; sh -c "sleep 1000; true" "$0"; true' {image} {cmdline}"#;
    let words = ["sh was killed after 20 s", "waiting"];
    assert_never_spoke("custom", vmm, 60, &words);
}

#[test]
fn flooding_vmm_is_killed() {
    let vmm = "sh -c 'while true; do echo noise noise noise noise; done' {image} {cmdline}";
    let ended = run(&Place::new(), "custom", vmm, "basic/getpid");
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let json = parse(&ended);
    let told = cell(&json, "custom", "getpid")["failed"].as_str();
    let told = told.unwrap_or_default();
    let fits = ["flooded its console", "no record arrived"];
    assert!(fits.iter().any(|words| told.contains(words)), "{json:#}");
    assert!(told.contains("noise"), "{told}");
}

#[test]
fn hanging_vmm_on_the_simulated_machine_is_reported() {
    if !has_machine("a VMM that hangs on the simulated machine") {
        return;
    }
    let vmm = "sh -c 'echo waiting; read forever' {image} {cmdline}";
    let words = ["sh was killed after 20 s", "waiting", "/trapline/image"];
    assert_never_spoke("sim/custom", vmm, 300, &words);
}

/// Returns whether `sim/custom` is ready.
fn has_machine(what: &str) -> bool {
    let listed = Place::new().run(&["list", "--format", "json", "--vmm", &our_vmm()]);
    let json = parse(&listed);
    let environments = json["environments"].as_array().expect("a list");
    let found = environments.iter().find(|e| e["name"] == "sim/custom");
    let reason = found.expect("it is listed")["reason"].as_str();
    if let Some(reason) = reason {
        trapline_tests::skip(what, reason);
    }
    reason.is_none()
}

#[test]
fn script_runs_on_the_host_only() {
    let place = Place::new();
    let script = place.path().join("vmm");
    std::fs::write(&script, "#!/bin/sh\nexit 0\n").expect("it is new");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("it is ours");
    let vmm = format!("{} {{image}} {{cmdline}}", script.display());
    let ended = run(&place, "sim/custom", &vmm, "basic/getpid");
    let json = parse(&ended);
    let told = cell(&json, "sim/custom", "getpid")["skip"]
        .as_str()
        .expect("a reason");
    assert!(told.contains("is a script"), "{told}");
}

/// That they are not measured by default `measured` shows, which counts cells.
#[test]
fn environments_without_a_vmm_are_listed_with_a_reason() {
    let place = Place::new();
    let listed = place.run(&["list"]);
    for words in ["  custom ", "  sim/custom ", "no custom VMM is given"] {
        assert!(listed.output.contains(words), "{}", listed.output);
    }
    let ended = place.run(&["floor", "--vmm", "vmm {image} {cmdline}"]);
    assert_eq!(ended.status, Some(2), "{}", ended.errors);
}

/// A guest that resets its machine is started again by a QEMU that was not told
/// otherwise: only the first counts, and the end is ours.
#[test]
fn vmm_that_outlives_its_guest_is_ended_without_failure() {
    if !has_qemu("a VMM that stays when its guest is done") {
        return;
    }
    let vmm = qemu(TRANSLATED, "{image}");
    let ended = run(&Place::new(), "custom", &vmm, "basic/getpid,boot");
    let json = parse(&ended);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(figure(&json, "custom", "getpid") > 0.0);
    assert!(figure(&json, "custom", "first-instruction") > 0.0);
    let end = cell(&json, "custom", "exit")["skip"].as_str();
    assert!(
        end.is_some_and(|reason| reason.contains("was killed")),
        "{json:#}"
    );
    let facts = &json["environments"]["custom"]["facts"];
    assert_eq!(facts["custom-vmm-command"], vmm.as_str(), "{facts:#}");
    assert!(facts["custom-vmm-sha256"].is_string() && facts["custom-vmm-end"].is_string());
}

#[test]
fn bzimage_boots_through_its_real_mode_entry() {
    if !has_qemu("the image as a bzImage") {
        return;
    }
    let vmm = qemu(TRANSLATED, "{bzimage}");
    let json = parse(&run(&Place::new(), "custom", &vmm, "basic/getpid"));
    assert!(figure(&json, "custom", "getpid") > 0.0);
}

/// The same VMM takes the same path, whether we know it or not: the fastest batch, for timer
/// interrupts of the machine fall into others.
#[test]
fn custom_vmm_has_the_figures_of_the_built_in_one() {
    if !has_machine("a VMM given with --vmm on the simulated machine") {
        return;
    }
    let place = Place::new();
    for (environment, vmm) in [
        ("sim/kvm", our_vmm()),
        ("sim/qemu-kvm", qemu(ON_KVM, "{image}")),
    ] {
        let both = format!("{environment},sim/custom");
        let json = parse(&run(&place, &both, &vmm, "exits/port-out,exits/cpuid,boot"));
        for operation in ["port-out", "cpuid"] {
            let fastest = |name: &str| cell(&json, name, operation)["min"].as_f64();
            let known = fastest(environment).expect("it was measured");
            let foreign = fastest("sim/custom").expect("it was measured");
            let off = (foreign / known - 1.0).abs();
            assert!(off < 0.01, "{operation}: {foreign} is not {known}");
        }
        for operation in ["first-instruction", "main", "first-sample", "exit"] {
            assert!(figure(&json, "sim/custom", operation) > 1e6, "{operation}");
        }
    }
}

#[test]
fn profile_of_a_custom_vmm_adds_up() {
    let what = "the profile of a VMM given with --vmm";
    if !has_machine(what) {
        return;
    }
    let vmm = our_vmm();
    let words = "explain sim/custom exits/port-out --format json --vmm";
    let words: Vec<_> = words.split(' ').chain([vmm.as_str()]).collect();
    let ended = Place::new().run(&words);
    if ended.errors.contains("cannot load the plugin") {
        return trapline_tests::skip(what, ended.errors.trim());
    }
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    let profile = parse(&ended);
    assert_eq!(profile["residual"], 0, "{profile:#}");
    let functions = profile["functions"].as_array().expect("a list");
    let is_vmm = |function: &Value| function["component"] == "trapline-vmm";
    assert!(functions.iter().any(is_vmm), "{profile:#}");
}

/// A VMM that is neither ours nor QEMU: `alioth` in $PATH, or the command in
/// $TRAPLINE_TEST_VMM.
fn real_stranger() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories = std::env::split_paths(&path);
    let alioth = "alioth boot --pvh {image} -m size={memory}M --cpu count={cpus} -c {cmdline}";
    let found = directories.any(|directory| directory.join("alioth").is_file());
    let named = std::env::var("TRAPLINE_TEST_VMM").ok();
    named.or_else(|| found.then(|| alioth.to_owned()))
}

#[test]
#[ignore = "slow: make test-all"]
fn third_party_vmm_is_measured() {
    let what = "a VMM that is neither ours nor QEMU";
    let Some(vmm) = real_stranger() else {
        return trapline_tests::skip(what, "none is here: cargo install alioth-cli");
    };
    let place = Place::new();
    if has_machine(what) {
        let json = parse(&run(&place, "sim,sim/custom", &vmm, "basic,exits,boot"));
        assert_eq!(
            figure(&json, "sim/custom", "getpid"),
            figure(&json, "sim", "getpid")
        );
        assert!(figure(&json, "sim/custom", "port-out") > 2000.0);
        assert!(figure(&json, "sim/custom", "first-instruction") > 1e6);
    }
    if has_kvm(what) {
        let json = parse(&run(&place, "custom", &vmm, "basic,exits"));
        assert!(figure(&json, "custom", "port-out") > 100.0);
    }
}
