//! Profiles of starts (workload `boot`), by stage.

use super::{assert_adds_up, assert_named, assert_near, explain, number, profile};
use crate::shared::default_run;
use serde_json::Value;
use trapline_tests::has_qemu;
use trapline_tests::measurements::{estimate, total_insn};
use trapline_tests::run::Place;

/// Checks that the stages of a start add up, each with a residual of 0 unless the machine was halted, and
/// returns their names.
#[track_caller]
fn assert_stages_add_up(profile: &Value) -> Vec<&str> {
    let stages = profile["stages"].as_array().expect("list of stages");
    let total: f64 = stages.iter().map(|stage| number(&stage["total"])).sum();
    assert_near(total, number(&profile["total"]), profile);
    for stage in stages {
        assert_near(total_insn(stage), number(&stage["total"]), stage);
        let slept = stage["halts"] != 0;
        assert!(slept || stage["residual"] == 0, "{stage:#}");
        let residual = number(&stage["residual"]);
        assert!(residual >= 0.0, "{stage:#}");
    }
    let name = |stage: &'static str| move |s: &Value| s[stage].as_str().map(str::to_owned);
    let ends = stages.iter().filter_map(name("stage"));
    let begins = stages.iter().filter_map(name("from")).skip(1);
    assert!(ends.zip(begins).all(|(end, begin)| end == begin));
    let ends = stages.iter().filter_map(|stage| stage["stage"].as_str());
    ends.collect()
}

#[test]
fn profile_of_a_start_is_complete_by_stage() {
    let place = Place::new();
    let operation = "boot/main";
    for (environment, stages, named) in [
        (
            "sim/linux",
            &["guest-main"][..],
            &[
                ("kernel", "do_execveat_common"),
                ("trapline-agent", "_start"),
            ][..],
        ),
        (
            "sim/kvm",
            &[
                "vmm-main",
                "vm-created",
                "vmm-entry",
                "guest-entry",
                "guest-main",
            ],
            &[
                ("kernel", "do_execveat_common"),
                ("kvm", "kvm_vm_ioctl"),
                ("kvm_amd", "__svm_vcpu_run"),
                ("trapline-vmm", "main"),
                ("trapline-agent", "__execve"),
                ("guest", "trapline_direct_entry"),
            ],
        ),
    ] {
        let Some((_, json)) = profile(&place, environment, operation) else {
            return;
        };
        assert_adds_up(&json);
        assert_eq!(assert_stages_add_up(&json), stages);
        let measured = estimate(&default_run().json, environment, operation);
        assert_eq!(number(&json["total"]), measured);
        assert_named(&json, named);
    }
}

/// The clock offset of a domain is unknown, so only the whole start is compared with the machine's clock.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_domain_start_is_complete_by_stage() {
    let place = Place::new();
    let Some((_, json)) = profile(&place, "sim/xen-pvh", "boot/exit") else {
        return;
    };
    assert_adds_up(&json);
    let stages = [
        "guest-entry",
        "guest-main",
        "first-sample",
        "guest-exit",
        "reaped",
    ];
    assert_eq!(assert_stages_add_up(&json), stages);
    assert_named(
        &json,
        &[
            ("guest", "trapline_main"),
            ("xen", "svm_vmexit_handler"),
            ("xen", "clear_page"),
            ("dom0-kernel", "do_execveat_common"),
            ("xen_privcmd", "privcmd_ioctl"),
            ("xenstored", "[+0x"),
            ("libxenlight", "libxl_"),
            ("trapline-agent", "__execve"),
        ],
    );
}

#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_whole_boot_lacks_sleep_only() {
    let place = Place::new();
    let Some((_, json)) = profile(&place, "sim/kvm", "boot/exit") else {
        return;
    };
    let stages = assert_stages_add_up(&json);
    assert_eq!(stages.last(), Some(&"reaped"));
    assert_named(&json, &[("kernel", "do_exit"), ("kvm", "kvm_vm_release")]);
}

#[test]
fn bare_machine_has_no_start_to_explain() {
    if !has_qemu("the start of a bare machine") {
        return;
    }
    let result = explain(&Place::new(), &["sim", "boot/main"]);
    if result.stderr.contains("cannot load the plugin") {
        return trapline_tests::skip("the start of a bare machine", result.stderr.trim());
    }
    assert_eq!(result.status, Some(1), "{result:?}");
    let message = "boot/main is not measured in sim: the bare machine has no VMM";
    assert!(result.stderr.contains(message), "{result:?}");
}
