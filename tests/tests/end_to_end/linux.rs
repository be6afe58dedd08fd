//! Linux guests in QEMU and trapline-vmm on this host and on the simulated machine, and user-mode Linux;
//! unavailable ones have a reason.

use crate::shared::{assert_reproducible, default_run, linux_guest, LINUX_GUEST};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use trapline_tests::measurements::{assert_measured, cell, estimate, facts};
use trapline_tests::processes::{children, living_in_group, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{has, Place};
use trapline_tests::{has_qemu, skip};

const FEATURE: &str = "a Linux guest";

fn reason<'a>(json: &'a Value, environment: &str, operation: &str) -> &'a str {
    let cell = cell(json, environment, operation);
    cell["skip"].as_str().unwrap_or_else(|| panic!("{cell}"))
}

#[test]
#[ignore = "slow: boots a Linux guest twice"]
fn distribution_kernel_on_sim_kvm_is_reproducible() {
    if !has_qemu(FEATURE) || !has(LINUX_GUEST, FEATURE) {
        return;
    }
    let run = linux_guest();
    let getpid = estimate(&run.json, LINUX_GUEST, "getpid");
    assert!((200.0..2_000.0).contains(&getpid), "{getpid}");
    assert_reproducible(&run.place, LINUX_GUEST);
}

/// Linux guests of trapline-vmm and of QEMU.
const BOTH_VMMS: [&str; 2] = ["sim/kvm/linux", "sim/qemu-kvm/linux"];

fn has_both_vmms() -> bool {
    has_qemu(FEATURE) && BOTH_VMMS.iter().all(|id| has(id, FEATURE))
}

#[test]
#[ignore = "slow: make test-all"]
fn starts_of_a_distribution_kernel_are_reproducible_in_both_vmms() {
    if !has_both_vmms() {
        return;
    }
    let place = Place::reproducing();
    let both = BOTH_VMMS;
    let json = place.measure(&["--env", &both.join(","), "--workload", "basic/getpid,boot"]);
    for environment in both {
        let getpid = estimate(&json, environment, "getpid");
        assert!(
            (200.0..2_000.0).contains(&getpid),
            "{environment}: {getpid}"
        );
        let main = estimate(&json, environment, "main");
        assert!(main > 1e8 && estimate(&json, environment, "exit") > main);
        assert_reproducible(&place, environment);
    }
    let of = |environment| facts(&json, environment)["guest-initramfs-sha256"].clone();
    assert_eq!(of(both[0]), of(both[1]), "both boot the same initramfs");
    let entered = estimate(&json, both[0], "first-instruction");
    assert!(entered < estimate(&json, both[0], "main") / 2.0);
    assert!(reason(&json, both[1], "first-instruction").contains("QEMU does not report"));
}

#[test]
#[ignore = "slow: make test-all"]
fn two_cpus_on_sim_kvm_are_reproducible() {
    if !has_both_vmms() {
        return;
    }
    let place = Place::reproducing();
    let both = BOTH_VMMS;
    let words = format!("--env {} --workload basic/getpid --cpus 2", both.join(","));
    let json = place.measure(&words.split(' ').collect::<Vec<_>>());
    for environment in both {
        assert!(estimate(&json, environment, "getpid") > 200.0);
        let facts = facts(&json, environment);
        assert_eq!(facts["guest-cpus"], "2");
        assert_eq!(facts["guest-without"], "kvm-pv-eoi");
        assert_reproducible(&place, environment);
    }
}

/// More CPUs than one digit counts, and memory on both sides of the devices below 4 GiB.
#[test]
#[ignore = "slow: make test-all"]
fn a_large_guest_has_all_of_its_cpus_and_memory() {
    if !has_qemu(FEATURE) || !has("sim/kvm/linux", FEATURE) {
        return;
    }
    let words = "--env sim/kvm/linux --workload basic/getpid --cpus 10 --memory 3500M";
    let json = Place::new().measure(&words.split(' ').collect::<Vec<_>>());
    assert!(estimate(&json, "sim/kvm/linux", "getpid") > 200.0);
    let facts = facts(&json, "sim/kvm/linux");
    assert_eq!(facts["guest-cpus"], "10");
    assert_eq!(facts["guest-memory-mib"], "3500");
}

#[test]
fn linux_guest_on_the_host_measures_or_reports_why_not() {
    let place = Place::new();
    let mut environments = vec!["qemu-tcg/linux", "uml"];
    environments.retain(|id| has(id, FEATURE));
    if environments.is_empty() {
        return;
    }
    let workload = "basic/getpid,basic/first-touch-4k,exits/cpuid,exits/port-out,boot";
    let json = place.measure(&[
        "--env",
        &environments.join(","),
        "--workload",
        workload,
        "--boots",
        "1",
    ]);
    for environment in environments {
        assert_measured(&json, environment, &["getpid", "first-touch-4k", "cpuid"]);
        let main = estimate(&json, environment, "main");
        assert!(main > 1e8 && estimate(&json, environment, "exit") > main);
        // A process of the host has no access to ports.
        match environment {
            "uml" => assert!(reason(&json, environment, "port-out").contains("has no ports")),
            _ => assert_measured(&json, environment, &["port-out"]),
        }
        cell(&json, environment, "first-instruction")["skip"]
            .as_str()
            .expect("skip reason");
        let facts = facts(&json, environment);
        assert_eq!(facts["guest-cpus"], "1");
        for name in [
            "guest-kernel-sha256",
            "guest-initramfs-sha256",
            "agent-sha256",
        ] {
            assert_eq!(facts[name].as_str().map(str::len), Some(64), "{name}");
        }
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn missing_cpus_are_reported() {
    if !has_qemu(FEATURE) {
        return;
    }
    let place = Place::new();
    let environment = "qemu-tcg/linux";
    if !has(environment, FEATURE) {
        return;
    }
    let words = "--workload basic/getpid --boots 1 --cpus 2";
    let words: Vec<_> = words.split(' ').collect();
    let measure =
        |environments: &str| place.measure(&[&["--env", environments][..], &words].concat());
    let json = measure("uml,qemu-tcg/linux");
    if json.to_string().contains("kernel has no timer") {
        return skip(FEATURE, "the host is too busy for the kernel of a guest");
    }
    assert_measured(&json, environment, &["getpid"]);
    assert_eq!(facts(&json, environment)["guest-cpus"], "2");
    let why = json.to_string();
    let is_missing = !has("uml", FEATURE);
    let expected = "--cpus 2 is not supported by uml, as user-mode Linux has one CPU: leave it out";
    assert!(is_missing || why.contains(expected), "{why}");
    place.wrap_qemu("[ $# -lt 5 ] || set -- \"$@\" -smp 1");
    let json = measure(environment).to_string();
    assert!(
        json.contains("1 CPUs are online in this machine, which has 2"),
        "{json}"
    );
}

#[test]
fn emulated_ring_0_excludes_linux_guests() {
    let place = Place::new();
    let doubtful = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has_hardware = doubtful
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split(' ').any(|flag| flag == "vmx" || flag == "svm"));
    for name in ["kvm/linux", "qemu-kvm/linux"] {
        match (has_hardware, place.unavailable_reason(name)) {
            (false, reason) => {
                let reason = reason.expect("environment is unavailable");
                let has_cause = reason.contains("KVM emulates ring 0")
                    || reason.contains("/dev/kvm")
                    || reason.contains("qemu");
                assert!(has_cause, "{reason}");
            }
            (true, Some(reason)) => skip(&format!("{FEATURE} in {name}"), &reason),
            (true, None) => {
                let words = ["--env", name, "--workload", "basic/getpid", "--boots", "1"];
                assert_measured(&place.measure(&words), name, &["getpid"]);
            }
        }
    }
}

#[test]
fn user_mode_linux_ends_with_trapline() {
    let place = Place::new();
    if !has("uml", FEATURE) {
        return;
    }
    let home = std::env::var_os("HOME").expect("$HOME");
    let directory = PathBuf::from(home).join(".uml");
    let existed = directory.exists();
    // Downloads it first, so that the wait below covers its start only.
    let words = ["--env", "uml", "--workload", "basic/getpid", "--boots", "1"];
    assert_measured(&place.measure(&words), "uml", &["getpid"]);
    for how in [libc::SIGKILL, libc::SIGINT] {
        let long = "run --env uml --workload basic --boots 50 --quiet";
        let long: Vec<_> = long.split(' ').collect();
        let mut command = place.trapline(&long);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = quiet.spawn().expect("program starts");
        let program = || children(run.id(), "linux.uml").first().copied();
        assert!(wait_until(TO_BEGIN, || program().is_some()));
        let group = program().expect("it exists");
        // The kernel, its helpers, a guest process, and the guard.
        assert!(wait_until(TO_BEGIN, || living_in_group(group) > 3));
        signal(&run, how);
        run.wait().expect("child can be reaped");
        let is_gone = || living_in_group(group) == 0;
        assert!(wait_until(TO_BEGIN, is_gone), "signal {how}");
    }
    assert_eq!(
        directory.exists(),
        existed,
        "the user's directory of user-mode Linux"
    );
}

#[test]
fn a_kernel_is_named_by_its_version() {
    if !has_qemu("a kernel that is named") {
        return;
    }
    let place = Place::new();
    let words = ["--env", "sim/kvm", "--workload", "exits/port-out"];
    let json = &default_run().json;
    // `package linux-image-VERSION_...`, unless the user has given a file.
    let origin = json["environments"]["sim/kvm"]["facts"]["l1-kernel"].as_str();
    let origin = origin.expect("fact of the machine's kernel");
    let package = origin.strip_prefix("package ").expect("a package");
    let (name, _) = package.split_once('_').expect("a version");
    let version = name.strip_prefix("linux-image-").expect("a kernel");
    for kernel in [name, version] {
        let named = place.measure(&[&words[..], &["--kernel", kernel]].concat());
        let usual = cell(json, "sim/kvm", "port-out");
        assert_eq!(named["cells"][0]["estimate"], usual["estimate"]);
    }
    let unknown = place.run(&[&["run"], &words[..], &["--kernel", "0.0.0-0"]].concat());
    let text = unknown.stdout + &unknown.stderr;
    let message = "neither a file nor a kernel package";
    assert!(text.contains(message), "{text}");
}
