//! `[vmm.NAME]` in plans and in the configuration: environments by name.

use crate::shared::default_run;
use serde_json::Value;
use std::path::PathBuf;
use trapline_tests::measurements::{cell, estimate, facts, fastest};
use trapline_tests::run::{unavailable_reason, Place};
use trapline_tests::{parts, root};

/// Defines trapline-vmm twice, `plain` without its seccomp filter.
fn definitions() -> String {
    let vmm = parts().join("trapline-vmm");
    let command = format!(
        "{} --image {{image}} --memory {{memory}}M --cmdline {{cmdline}}",
        vmm.display()
    );
    format!(
        "[vmm.filtered]\ncommand = '{command}'\n[vmm.plain]\ncommand = '{command} --no-sandbox'\n"
    )
}

fn configure(place: &Place, text: &str) -> PathBuf {
    let directory = place.path().join("trapline");
    std::fs::create_dir_all(&directory).expect("place is writable");
    let file = directory.join("config.toml");
    std::fs::write(&file, text).expect("place is writable");
    file
}

#[test]
fn vmms_of_a_plan_are_measured_side_by_side() {
    let place = Place::new();
    if !place.has("sim/kvm", "VMMs of a plan") {
        return;
    }
    let plan = place.path().join("study.toml");
    let head = "environments = ['sim/filtered', 'sim/plain']\nworkloads = ['exits/port-out']\n";
    std::fs::write(&plan, format!("{head}{}", definitions())).expect("place is writable");
    let store = place.store();
    let [plan, store] = [&plan, &store].map(|path| path.to_str().expect("path is UTF-8"));
    let json = place
        .run(&["run", plan, "--format", "json", "--store", store])
        .json();
    let [filtered, plain] = ["sim/filtered", "sim/plain"].map(|it| estimate(&json, it, "port-out"));
    assert!(
        filtered > plain + 100.0,
        "the filter costs {filtered} - {plain}"
    );
    let facts = facts(&json, "sim/plain");
    assert!(facts["custom-vmm-sha256"].is_string(), "{facts:#}");
    // Nothing defines these names here.
    let shown = Place::new().run(&["show", "--store", store]);
    assert!(
        shown.stdout.contains("sim/filtered  sim/plain"),
        "{shown:?}"
    );
}

/// Copies the definitions of `vmms/` to the configuration of a test.
fn copy_ready_definitions(place: &Place) {
    let directory = place.path().join("trapline/vmms");
    std::fs::create_dir_all(&directory).expect("place is writable");
    let files = std::fs::read_dir(root().join("vmms")).expect("directory of definitions");
    for file in files.flatten() {
        std::fs::copy(file.path(), directory.join(file.file_name())).expect("place is writable");
    }
}

#[test]
fn ready_definitions_are_valid() {
    let place = Place::new();
    copy_ready_definitions(&place);
    let list = place.run(&["list", "--format", "json"]);
    let page = std::fs::read_to_string(root().join("docs/vmms.md")).expect("readable page");
    let listed = list.json();
    let environments = listed["environments"].as_array().expect("list");
    for name in [
        "qemu-q35",
        "kvmtool",
        "alioth",
        "firecracker",
        "cloud-hypervisor",
        "crosvm",
    ] {
        let reason = unavailable_reason(&list, name).unwrap_or_default();
        let is_valid = reason.is_empty() || reason.contains("there is no program");
        assert!(is_valid, "{name}: {reason}");
        let row = environments.iter().find(|row| row["name"] == name);
        let by_default = &row.expect("environment is listed")["by_default"];
        assert_eq!(*by_default, true, "{name}: a plain run measures it");
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not in docs/vmms.md"
        );
    }
}

/// Checks that a port write in a defined VMM has the cost of the built-in environment.
#[track_caller]
fn assert_equal_port_writes(defined: (&Value, &str), built_in: (&Value, &str)) {
    let [defined, built_in] = [defined, built_in].map(|(run, it)| estimate(run, it, "port-out"));
    let difference = (defined / built_in - 1.0).abs();
    assert!(difference < 0.01, "{defined} is not {built_in}");
}

#[test]
fn definition_of_qemu_microvm_is_measured() {
    let place = Place::new();
    copy_ready_definitions(&place);
    if !place.has("sim/qemu-microvm", "the definitions of QEMU") {
        return;
    }
    let words = ["--env", "sim/qemu-microvm", "--workload", "exits/port-out"];
    let json = place.measure(&words);
    let built_in = (&default_run().json, "sim/qemu-kvm");
    assert_equal_port_writes((&json, "sim/qemu-microvm"), built_in);
}

/// Without `-no-reboot` QEMU would start the guest again after a reset; profiles then have batches that no guest reports.
#[test]
#[ignore = "slow: make test-all"]
fn baseline_and_profile_of_a_vmm_that_restarts_guests_after_a_reset() {
    let place = Place::new();
    let ready = std::fs::read_to_string(root().join("vmms/qemu.toml")).expect("readable file");
    configure(&place, &ready.replace("-no-reboot", ""));
    if !place.has("sim/qemu-q35", "a VMM that starts its guest again") {
        return;
    }
    let operations = ["--workload", "exits/port-out,exits/cpuid,boot"];
    let words = [&["baseline", "--env", "sim/qemu-q35"][..], &operations].concat();
    let baseline = place.run(&words);
    assert_eq!(baseline.status, Some(0), "{baseline:?}");
    assert!(baseline.stdout.contains("\"boot/exit\""), "{baseline:?}");
    let explained = place.run(&["explain", "sim/qemu-q35", "exits/port-out"]);
    assert_eq!(explained.status, Some(0), "{explained:?}");
    assert!(
        explained.stdout.contains("kvm_arch_vcpu_ioctl_run"),
        "{explained:?}"
    );
}

#[test]
#[ignore = "slow: make test-all"]
fn linux_guest_of_a_defined_vmm_is_measured() {
    let place = Place::new();
    copy_ready_definitions(&place);
    configure(&place, &definitions());
    if !place.has("sim/qemu-q35/linux", "a Linux guest of a defined VMM") {
        return;
    }
    let environment = "sim/qemu-q35/linux";
    let operations = "basic/getpid,exits";
    let json = place.measure(&["--env", environment, "--workload", operations]);
    assert!((250.0..500.0).contains(&fastest(&json, environment, "getpid")));
    // An exit, and at least one more from a timer to a sleep.
    let exit = fastest(&json, environment, "cpuid");
    assert!((1_000.0..1_500.0).contains(&exit), "{exit}");
    assert!(fastest(&json, environment, "timer-wake") > exit);
    let port = cell(&json, environment, "port-out");
    let reason = port["skip"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("a Linux process has no ports"),
        "{port:#}"
    );
    let facts = facts(&json, environment);
    assert!(facts["guest-kernel-sha256"].is_string(), "{facts:#}");
    assert!(facts["custom-vmm-sha256"].is_string(), "{facts:#}");
    // A definition without such a command.
    let list = place.run(&["list", "--format", "json"]);
    let reason = unavailable_reason(&list, "sim/plain/linux").expect("no Linux guest");
    let expected = "vmm.plain has no command for Linux guests";
    assert!(reason.starts_with(expected), "{reason}");
}

/// The registers of the entropy device on PCI are accessed, and named.
#[test]
#[ignore = "slow: make test-all"]
fn definitions_of_qemu_with_pci_are_measured() {
    let place = Place::new();
    copy_ready_definitions(&place);
    if !place.has("sim/qemu-q35", "the definitions of QEMU") {
        return;
    }
    let built_in = "sim/qemu-kvm-pc";
    let all = ["sim/qemu-q35", "sim/qemu-pc", built_in].join(",");
    let operations = "exits/port-out,exits/mmio-read,exits/mmio-write";
    let json = place.measure(&["--env", &all, "--workload", operations]);
    for (environment, slot) in [("sim/qemu-q35", "01"), ("sim/qemu-pc", "02")] {
        assert_equal_port_writes((&json, environment), (&json, built_in));
        let [read, write] = ["mmio-read", "mmio-write"].map(|it| estimate(&json, environment, it));
        assert!(write > 5000.0 && read > write, "{environment}: {json:#}");
        let named = format!("PCI 00:{slot}.0, virtio device ID 4");
        let facts = facts(&json, environment);
        assert_eq!(facts["virtio-registers"], named.as_str(), "{facts:#}");
    }
}

/// Notifies devices of trapline-vmm, of PCI, and of a transport that QEMU names on the command line.
#[test]
#[ignore = "slow: make test-all"]
fn notifications_of_virtio_devices_are_measured() {
    let place = Place::new();
    let ready = std::fs::read_to_string(root().join("vmms/qemu.toml")).expect("readable file");
    // Without a bus QEMU takes the last transport, which is not that at 0xfeb00000.
    configure(&place, &ready.replace(",bus=virtio-mmio-bus.0", ""));
    if !place.has("sim/qemu-q35", "notifications of virtio devices") {
        return;
    }
    let environments = "sim/kvm,sim/qemu-microvm,sim/qemu-q35";
    let json = place.measure(&["--env", environments, "--workload", "exits/doorbell"]);
    for (environment, named) in [
        ("sim/kvm", "virtio-mmio 0xfeb00800"),
        ("sim/qemu-microvm", "virtio-mmio 0xfeb00e00"),
        ("sim/qemu-q35", "PCI 00:01.0"),
    ] {
        // An exit, and the switch to the thread of the device and back.
        let figure = estimate(&json, environment, "doorbell");
        assert!(figure > 8000.0, "{environment}: {figure}");
        let facts = facts(&json, environment);
        let expected = format!("{named}, virtio device ID 4");
        assert_eq!(facts["virtio-doorbell"], expected.as_str(), "{facts:#}");
    }
}

/// The device for notifications would add instructions to the exits of others.
#[test]
fn notifications_do_not_change_other_figures() {
    let place = Place::new();
    if !place.has("sim/kvm", "notifications beside other operations") {
        return;
    }
    let measure = |operations: &str| {
        let head = ["--env", "sim/kvm", "--exact-boots", "1", "--workload"];
        place.measure(&[&head[..], &[operations]].concat())
    };
    let with = measure("exits/port-out,exits/mmio-read,exits/doorbell");
    for operation in ["port-out", "mmio-read"] {
        let [one, other] =
            [&default_run().json, &with].map(|json| estimate(json, "sim/kvm", operation));
        assert_eq!(one.to_string(), other.to_string(), "{operation}");
    }
    let notification = estimate(&with, "sim/kvm", "doorbell");
    assert!(notification > 8000.0, "{notification}");
}

#[test]
fn vmms_of_the_configuration_are_listed() {
    let place = Place::new();
    configure(
        &place,
        &format!("{}[vmm.broken]\ncommand = 'vmm {{image}}'\n", definitions()),
    );
    let list = place.run(&["list", "--format", "json"]);
    let reason = unavailable_reason(&list, "broken").expect("a command without {cmdline}");
    assert!(
        reason.starts_with("vmm.broken: placeholder {cmdline} is missing"),
        "{reason}"
    );
    let command_line = place.run(&["run", "--env", "sim/plian"]);
    assert!(
        command_line.stderr.contains("did you mean 'sim/plain'?"),
        "{command_line:?}"
    );
}

#[test]
fn invalid_configuration_is_a_warning_with_its_line() {
    let place = Place::new();
    let file = configure(&place, "\n[vmm.KVM]\ncommand = 'x'\n");
    let result = place.run(&["list"]);
    assert_eq!(result.status, Some(0), "{result:?}");
    let expected = format!("warning: {}, line 2: VMM 'KVM': a name has", file.display());
    assert!(result.stderr.starts_with(&expected), "{}", result.stderr);
    assert!(result.stderr.contains("\nhelp: "), "{}", result.stderr);
    // Help needs no configuration.
    assert_eq!(place.run(&["--help"]).status, Some(0));
}
