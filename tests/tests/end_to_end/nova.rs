//! The VMM as the root task of NOVA. NOVA is a file of the user's: with `TRAPLINE_NOVA` all tests run.

use trapline_tests::has_qemu;
use trapline_tests::measurements::{cell, component_insn, estimate};
use trapline_tests::run::{has, Place};

/// Words that name a file as the hypervisor.
fn with_hypervisor(file: &str) -> Vec<&str> {
    vec![
        "--env",
        "sim/nova",
        "--workload",
        "basic/getpid",
        "--boots",
        "1",
        "--nova",
        file,
    ]
}

#[test]
fn missing_hypervisor_is_reported_with_the_remedy() {
    if !has_qemu("a missing hypervisor") {
        return;
    }
    let place = Place::new();
    let mut list = place.trapline(&["list", "sim/nova"]);
    list.env_remove("TRAPLINE_NOVA")
        .env("XDG_CACHE_HOME", place.path());
    let output = list.output().expect("trapline starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        line.contains("Missing: there is no NOVA hypervisor"),
        "{text}"
    );
    assert!(
        line.contains("interface version 10, by --nova or TRAPLINE_NOVA"),
        "{text}"
    );
    let result = place.run(&[&["run"][..], &with_hypervisor("/no/nova")].concat());
    assert_eq!(result.status, Some(2), "{result:?}");
    assert!(
        result
            .stderr
            .starts_with("error: nova=/no/nova: no such file\n  help: "),
        "{result:?}"
    );
}

#[test]
fn other_files_are_no_hypervisor() {
    if !has_qemu("a file that is no hypervisor") {
        return;
    }
    let place = Place::new();
    let agent = place.parts().join("trapline-agent");
    let script = place.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").expect("place is writable");
    // QEMU finds no header in a program of Linux.
    let no_header = "Error loading uncompressed kernel without PVH ELF Note";
    for (file, expected) in [(&script, "is not an ELF file"), (&agent, no_header)] {
        let words = with_hypervisor(file.to_str().expect("path is UTF-8"));
        let json = place.measure(&words);
        let cell = cell(&json, "sim/nova", "getpid");
        let reason = cell["skip"].as_str().or(cell["failed"].as_str());
        assert!(
            reason.is_some_and(|reason| reason.contains(expected)),
            "{cell:#}"
        );
    }
}

#[test]
fn figures_are_exact_and_explained() {
    let place = Place::reproducing();
    if !has("sim/nova", "figures") {
        return;
    }
    let words = [
        "--env",
        "sim,sim/nova",
        "--workload",
        "exits,system",
        "--boots",
        "2",
    ];
    let json = place.measure(&words);
    let port_out = estimate(&json, "sim/nova", "port-out");
    assert!((400.0..1000.0).contains(&port_out), "{port_out}");
    for operation in ["fork", "context-switch", "syscall"] {
        let figures = ["sim", "sim/nova"].map(|it| estimate(&json, it, operation));
        assert_eq!(figures[0], figures[1], "{operation}: nothing exits");
    }
    for cell in json["cells"].as_array().expect("cells") {
        assert!(cell["failed"].is_null(), "{cell:#}");
    }
    let profile = place.run(&["explain", "sim/nova", "exits/port-out", "--format", "json"]);
    let profile = profile.json();
    let of = |component| component_insn(&profile, component);
    let sum = of("nova") + of("trapline-nova") + of("guest");
    assert!((sum - port_out).abs() < 5.0, "{sum} of {port_out}");
}

#[test]
fn figures_on_the_machine_with_vmx_are_exact_and_explained() {
    let place = Place::reproducing();
    if !has("sim-vmx/nova", "figures") {
        return;
    }
    let words = ["--env", "sim-vmx/nova", "--workload", "exits,irq/own-timer"];
    let json = place.measure(&[&words[..], &["--boots", "2"]].concat());
    let port_out = estimate(&json, "sim-vmx/nova", "port-out");
    assert!((400.0..1000.0).contains(&port_out), "{port_out}");
    for cell in json["cells"].as_array().expect("cells") {
        assert!(cell["failed"].is_null(), "{cell:#}");
    }
    let words = ["explain", "sim-vmx/nova", "exits/port-out"];
    let profile = place.run(&[&words[..], &["--format", "json"]].concat());
    assert_eq!(profile.json()["residual"], 0, "{profile:?}");
}

#[test]
fn linux_guest_is_measured() {
    let place = Place::new();
    if !has("sim/nova/linux", "a Linux guest") {
        return;
    }
    let words = [
        "--env",
        "sim/nova/linux",
        "--workload",
        "exits,basic,boot",
        "--boots",
        "2",
    ];
    let json = place.measure(&words);
    let figure = |operation| estimate(&json, "sim/nova/linux", operation);
    let [port_out, mmio_read, main] = ["port-out", "mmio-read", "main"].map(figure);
    assert!((400.0..1500.0).contains(&port_out), "{port_out}");
    assert!(port_out < mmio_read, "{mmio_read}");
    // The kernel alone takes more than this.
    assert!(main > 200e6, "{main}");
    for cell in json["cells"].as_array().expect("cells") {
        assert!(cell["failed"].is_null(), "{cell:#}");
    }
}

#[test]
fn boot_stages_begin_at_the_reset() {
    let place = Place::new();
    if !has("sim/nova", "boot stages") {
        return;
    }
    let json = place.measure(&["--env", "sim/nova", "--workload", "boot"]);
    let operations = ["vm-created", "first-instruction", "main", "first-sample"];
    let figures = operations.map(|it| estimate(&json, "sim/nova", it));
    assert!(figures.is_sorted(), "{figures:?}");
    // NOVA alone takes more than this.
    assert!(figures[0] > 20e6, "{figures:?}");
    let exit = cell(&json, "sim/nova", "exit");
    assert_eq!(exit["skip"], "the machine ends with its guest", "{exit:#}");
    let profile = place.run(&["explain", "sim/nova", "boot/main", "--format", "json"]);
    let profile = profile.json();
    let stages = profile["stages"].as_array().expect("list of stages");
    let names: Vec<_> = stages.iter().map(|stage| &stage["stage"]).collect();
    let expected = [
        "vmm-main",
        "vm-created",
        "vmm-entry",
        "guest-entry",
        "guest-main",
    ];
    assert_eq!(names, expected);
    // `program` has code that belongs to no named function of the root task.
    let total: f64 = ["firmware", "nova", "trapline-nova", "program", "guest"]
        .map(|it| component_insn(&profile, it))
        .iter()
        .sum();
    let difference = total - figures[2];
    assert!(
        difference.abs() < figures[2] / 1e3,
        "{total} of {figures:?}"
    );
}

#[test]
fn baseline_of_nova_is_met() {
    let place = Place::new();
    if !has("sim/nova", "baselines") {
        return;
    }
    let words = ["baseline", "--env", "sim/nova", "--workload", "exits"];
    let baseline = place.run(&words);
    assert_eq!(baseline.status, Some(0), "{}", baseline.stderr);
    let file = place.path().join("nova.json");
    std::fs::write(&file, &baseline.stdout).expect("place is writable");
    let checked = place.run(&["check", "--baseline", file.to_str().expect("path is UTF-8")]);
    assert_eq!(checked.status, Some(0), "{checked:?}");
}
