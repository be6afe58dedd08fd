//! `--vmm COMMAND`: invalid commands, VMMs that do not start their guest, and VMMs without support for
//! Trapline. QEMU and trapline-vmm with plain command lines are examples of the latter, and a
//! third-party VMM if one is installed.

use trapline_tests::measurements::{assert_measured, cell, estimate, facts, fastest, functions};
use trapline_tests::processes::{naming, wait_until, TO_BEGIN};
use trapline_tests::run::{unavailable_reason, CommandOutput, Place};
use trapline_tests::{has_kvm, has_qemu, parts, write_program};

/// Returns a plain QEMU command line that boots `kernel`.
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

/// Returns the command of a script with this text that starts `vmm`.
fn behind_script(place: &Place, text: &str, vmm: &str) -> String {
    let script = place.path().join("vmm");
    write_program(&script, text);
    format!("{} {vmm}", script.display())
}

/// Runs `trapline run` with one short boot in `environments`.
fn run(place: &Place, environments: &str, vmm: &str, workload: &str) -> CommandOutput {
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
        store.to_str().expect("path is UTF-8"),
    ])
}

#[track_caller]
fn assert_refused(vmm: &str, words: &[&str]) {
    let result = run(&Place::new(), "custom", vmm, "basic/getpid");
    assert_eq!(result.status, Some(2), "{vmm}: {result:?}");
    for words in words {
        assert!(result.stderr.contains(words), "{vmm}: {}", result.stderr);
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
        "vmm {elf} {cmdline}",
        &["unknown placeholder '{elf}'", "{memory} (MiB)"],
    );
    assert_refused("vmm 'image {image} {cmdline}", &["unterminated quotation"]);
    assert_refused(
        "no-such-vmm {image} {cmdline}",
        &["no program no-such-vmm in $PATH"],
    );
}

/// Checks the failure of a VMM that does not start its guest.
#[track_caller]
fn assert_no_record(environment: &str, vmm: &str, words: &[&str]) {
    let place = Place::new();
    let result = run(&place, environment, vmm, "basic/getpid");
    assert_eq!(result.status, Some(1), "{result:?}");
    let json = result.json();
    let reason = cell(&json, environment, "getpid")["failed"]
        .as_str()
        .unwrap_or_else(|| panic!("{json:#}"))
        .to_owned();
    for words in words {
        assert!(reason.contains(words), "{words} is not in: {reason}");
    }
    assert!(
        reason.contains("no record arrived from the guest's serial port"),
        "{reason}"
    );
    assert!(reason.contains("command: /"), "{reason}");
    // On an exact clock the whole workload is measured.
    let run = match environment {
        "sim/custom" => "trapline.run=basic/getpid,basic/null-io,",
        _ => "trapline.run=basic/getpid ",
    };
    assert!(reason.contains(run), "{reason}");
    let gone = wait_until(TO_BEGIN, || naming(place.path()).is_empty());
    assert!(gone, "still running: {:?}", naming(place.path()));
}

#[test]
fn failing_vmm_is_reported_with_its_last_output() {
    let vmm = "sh -c 'echo no such device >&2; exit 3' {image} {cmdline}";
    let words = ["sh ended with status 3", "no such device"];
    assert_no_record("custom", vmm, &words);
}

#[test]
fn vmm_that_exits_without_output_is_reported() {
    let words = ["true ended with status 0"];
    assert_no_record("custom", "true {image} {cmdline}", &words);
}

/// Its children are killed, too.
#[test]
fn hanging_vmm_is_killed_early() {
    let vmm = r#"sh -c 'echo waiting; sh -c "sleep 1000; true" "$0"; true' {image} {cmdline}"#;
    let words = ["sh was killed after 20 s", "waiting"];
    assert_no_record("custom", vmm, &words);
}

#[test]
fn flooding_vmm_is_killed() {
    let vmm = "sh -c 'while true; do echo noise noise noise noise; done' {image} {cmdline}";
    let result = run(&Place::new(), "custom", vmm, "basic/getpid");
    assert_eq!(result.status, Some(1), "{result:?}");
    let json = result.json();
    let reason = cell(&json, "custom", "getpid")["failed"].as_str();
    let reason = reason.unwrap_or_default();
    let fits = ["flooded its console", "no record arrived"];
    assert!(fits.iter().any(|words| reason.contains(words)), "{json:#}");
    assert!(reason.contains("noise"), "{reason}");
}

#[test]
fn vmm_with_other_memory_is_reported() {
    if !has_qemu("a VMM with other memory") {
        return;
    }
    let vmm = qemu(TRANSLATED, "{image}").replace("{memory}", "64");
    let result = run(&Place::new(), "custom", &vmm, "basic/getpid,boot/main");
    assert_eq!(result.status, Some(1), "{result:?}");
    let json = result.json();
    for operation in ["getpid", "main"] {
        let reason = cell(&json, "custom", operation)["failed"].as_str();
        let expected = "MiB of memory, and was to have";
        assert!(reason.is_some_and(|it| it.contains(expected)), "{json:#}");
    }
}

/// The second of three boots gives no figure: the others do, and the run has failed.
#[test]
fn vmm_that_fails_in_one_start_of_three_fails_the_run() {
    if !has_qemu("a VMM that fails sometimes") {
        return;
    }
    let place = Place::new();
    let text = "#!/bin/sh\necho >> \"$0.starts\"\n[ $(wc -l < \"$0.starts\") -ne 2 ] || exit 3\nexec \"$@\"\n";
    let vmm = behind_script(&place, text, &qemu(TRANSLATED, "{image}"));
    let store = place.store();
    let stored = [
        "--store",
        store.to_str().expect("path is UTF-8"),
        "--format",
    ];
    let words = [
        "run",
        "--env",
        "custom",
        "--workload",
        "basic/getpid",
        "--boots",
        "3",
        "--vmm",
        &vmm,
    ];
    let result = place.run(&[&words[..], &stored, &["json"]].concat());
    assert_eq!(result.status, Some(1), "{result:?}");
    let json = result.json();
    let cell = cell(&json, "custom", "getpid");
    assert_eq!(cell["boots"], 2, "{json:#}");
    let flags = cell["flags"].as_array().expect("a list");
    assert!(flags.iter().any(|flag| flag == "boots-lost"), "{json:#}");
    let junit = place.run(&[&["show"][..], &stored, &["junit"]].concat());
    assert!(junit.stdout.contains("failures=\"1\""), "{}", junit.stdout);
    let expected = "type=\"boots-lost\"";
    assert!(junit.stdout.contains(expected), "{}", junit.stdout);
    let table = place.run(&[&["show", "--all"][..], &stored[..2]].concat());
    let expected = "1 of 3 (0.8% to 91%) boots lost: ";
    assert!(table.stdout.contains(expected), "{}", table.stdout);
    let starts = place.path().join("vmm.starts");
    std::fs::remove_file(starts).expect("the script counts its starts");
    let allowed = ["--allow-lost", "1"];
    let result = place.run(&[&words[..], &allowed, &stored, &["junit"]].concat());
    assert_eq!(result.status, Some(0), "{result:?}");
    assert!(
        result.stdout.contains("failures=\"0\""),
        "{}",
        result.stdout
    );
    assert!(result.stdout.contains("boots lost"), "{}", result.stdout);
}

#[test]
fn hanging_vmm_on_the_simulated_machine_is_reported() {
    if !has_machine("a VMM that hangs on the simulated machine") {
        return;
    }
    let vmm = "sh -c 'echo waiting; read forever' {image} {cmdline}";
    let words = ["sh was killed after 20 s", "waiting", "/trapline/image"];
    assert_no_record("sim/custom", vmm, &words);
}

/// Returns whether `sim/custom` is ready.
fn has_machine(feature: &str) -> bool {
    let list = Place::new().run(&["list", "--format", "json", "--vmm", &our_vmm()]);
    let reason = unavailable_reason(&list, "sim/custom");
    if let Some(reason) = &reason {
        trapline_tests::skip(feature, reason);
    }
    reason.is_none()
}

/// The boot of a guest begins with the VMM's own exec, not with that of a script before it, which would double it. The
/// exec itself costs more in a shell than in a new process.
#[test]
fn script_before_a_vmm_is_no_part_of_the_boot() {
    if !has_machine("a script that starts a VMM on the simulated machine") {
        return;
    }
    let place = Place::new();
    let text = "#!/bin/sh -e\n: > \"$HOME/started\"\nexec \"$@\"\n";
    let vmm = behind_script(&place, text, &our_vmm());
    let workload = "exits/port-out,boot/first-instruction";
    let json = run(&place, "sim/kvm,sim/custom", &vmm, workload).json();
    for (operation, tolerance) in [("port-out", 0.01), ("first-instruction", 0.25)] {
        let built_in = fastest(&json, "sim/kvm", operation);
        let wrapped = fastest(&json, "sim/custom", operation);
        let difference = (wrapped / built_in - 1.0).abs();
        assert!(
            difference < tolerance,
            "{operation}: {wrapped} is not {built_in}"
        );
    }
    let facts = facts(&json, "sim/custom");
    let part = parts().join("trapline-vmm").display().to_string();
    let named = facts["custom-vmm-files"].as_str().unwrap_or_default();
    assert!(named.starts_with(&part), "{facts:#}");
}

/// They are not measured by default: `measured` counts cells.
#[test]
fn environments_without_a_vmm_are_listed_with_a_reason() {
    let place = Place::new();
    let listed = place.run(&["list", "--all"]);
    for words in ["  custom ", "  sim/custom ", "no custom VMM is given"] {
        assert!(listed.stdout.contains(words), "{}", listed.stdout);
    }
    let result = place.run(&["floor", "--vmm", "vmm {image} {cmdline}"]);
    assert_eq!(result.status, Some(2), "{}", result.stderr);
}

/// QEMU without `-no-reboot` restarts a guest that resets its machine: only the first start counts, and
/// Trapline ends QEMU.
#[test]
fn vmm_that_outlives_its_guest_is_ended_without_failure() {
    if !has_qemu("a VMM that stays when its guest is done") {
        return;
    }
    let vmm = qemu(TRANSLATED, "{image}");
    let result = run(&Place::new(), "custom", &vmm, "basic/getpid,boot");
    let json = result.json();
    assert_eq!(result.status, Some(0), "{result:?}");
    assert_measured(&json, "custom", &["getpid", "first-instruction"]);
    let end = cell(&json, "custom", "exit")["skip"].as_str();
    assert!(
        end.is_some_and(|reason| reason.contains("was killed")),
        "{json:#}"
    );
    let facts = facts(&json, "custom");
    assert_eq!(facts["custom-vmm-command"], vmm.as_str(), "{facts:#}");
    assert!(facts["custom-vmm-sha256"].is_string() && facts["custom-vmm-end"].is_string());
}

/// QEMU would start these guests again after a reset, but their tables have a register to switch them off.
#[test]
fn machine_with_acpi_is_switched_off_at_the_end() {
    if !has_qemu("power-off by ACPI") {
        return;
    }
    for machine in [
        "pc",
        "q35",
        "microvm,acpi=on -bios /usr/share/qemu/qboot.rom",
    ] {
        let vmm = format!(
            "qemu-system-x86_64 -M {machine} -nodefaults -no-user-config -display none {TRANSLATED} \
             -m {{memory}} -smp {{cpus}} -serial stdio -kernel {{image}} -append {{cmdline}}"
        );
        let json = run(&Place::new(), "custom", &vmm, "boot").json();
        assert_measured(&json, "custom", &["exit"]);
        let facts = facts(&json, "custom");
        assert!(facts["custom-vmm-end"].is_null(), "{machine}: {facts:#}");
    }
}

#[test]
fn bzimage_boots_through_its_real_mode_entry() {
    if !has_qemu("the image as a bzImage") {
        return;
    }
    let vmm = qemu(TRANSLATED, "{bzimage}");
    let json = run(&Place::new(), "custom", &vmm, "basic/getpid").json();
    assert_measured(&json, "custom", &["getpid"]);
}

/// Compares the fastest batch, since timer interrupts of the machine slow others down.
#[test]
fn custom_vmm_has_the_figures_of_the_built_in_one() {
    if !has_machine("a VMM given with --vmm on the simulated machine") {
        return;
    }
    let place = Place::new();
    let exits = "exits/port-out,exits/cpuid";
    for (environment, vmm, workload) in [
        ("sim/kvm", our_vmm(), "exits/port-out,exits/cpuid,boot"),
        ("sim/qemu-kvm", qemu(ON_KVM, "{image}"), exits),
    ] {
        let both = format!("{environment},sim/custom");
        let json = run(&place, &both, &vmm, workload).json();
        for operation in ["port-out", "cpuid"] {
            let built_in = fastest(&json, environment, operation);
            let custom = fastest(&json, "sim/custom", operation);
            let difference = (custom / built_in - 1.0).abs();
            assert!(difference < 0.01, "{operation}: {custom} is not {built_in}");
        }
        let stages: &[&str] = if workload == exits {
            &[]
        } else {
            &["first-instruction", "main", "first-sample", "exit"]
        };
        for stage in stages {
            assert!(estimate(&json, "sim/custom", stage) > 1e6, "{stage}");
        }
    }
}

/// The VMM ends without a `HOME`, also where its mappings are read.
#[test]
fn profile_of_a_custom_vmm_adds_up() {
    let feature = "the profile of a VMM given with --vmm";
    if !has_machine(feature) {
        return;
    }
    let vmm = format!(r#"sh -c '[ -n "$HOME" ] && exec "$0" "$@"' {}"#, our_vmm());
    let words = "explain sim/custom exits/port-out --format json --vmm";
    let words: Vec<_> = words.split(' ').chain([vmm.as_str()]).collect();
    let result = Place::new().run(&words);
    if result.stderr.contains("cannot load the plugin") {
        return trapline_tests::skip(feature, result.stderr.trim());
    }
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let profile = result.json();
    assert_eq!(profile["residual"], 0, "{profile:#}");
    let vmm = functions(&profile, "trapline-vmm").count();
    assert!(vmm > 0, "{profile:#}");
}

/// Returns the command of a third-party VMM: `alioth` in $PATH, or the command in
/// $TRAPLINE_TEST_VMM.
fn third_party_vmm() -> Option<String> {
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
    let feature = "a VMM that is neither ours nor QEMU";
    let Some(vmm) = third_party_vmm() else {
        return trapline_tests::skip(feature, "none is installed: cargo install alioth-cli");
    };
    let place = Place::new();
    if has_machine(feature) {
        let json = run(&place, "sim,sim/custom", &vmm, "basic,exits,boot").json();
        assert_eq!(
            estimate(&json, "sim/custom", "getpid"),
            estimate(&json, "sim", "getpid")
        );
        assert!(estimate(&json, "sim/custom", "port-out") > 2000.0);
        assert!(estimate(&json, "sim/custom", "first-instruction") > 1e6);
    }
    if has_kvm(feature) {
        let json = run(&place, "custom", &vmm, "basic,exits").json();
        assert!(estimate(&json, "custom", "port-out") > 100.0);
    }
}

/// A console that was recorded in one run is a failure in the next, with the samples of a real boot.
#[test]
fn recorded_console_is_no_boot() {
    if !has_kvm("a recorded console") {
        return;
    }
    let place = Place::new();
    let console = place.path().join("console").display().to_string();
    let text = format!(
        "#!/bin/sh\nif [ -s {console} ]; then exec cat {console}; fi\n\"$@\" | tee {console}\n"
    );
    let vmm = behind_script(&place, &text, &our_vmm());
    let booted = run(&place, "custom", &vmm, "exits/cpuid");
    assert_eq!(booted.status, Some(0), "{booted:?}");
    assert!(estimate(&booted.json(), "custom", "cpuid") > 100.0);
    let replayed = run(&place, "custom", &vmm, "exits/cpuid");
    assert_eq!(replayed.status, Some(1), "{replayed:?}");
    let json = replayed.json();
    let reason = cell(&json, "custom", "cpuid")["failed"].to_string();
    assert!(
        reason.contains("its output is that of another boot"),
        "{reason}"
    );
}
