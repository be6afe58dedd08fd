//! Workload `net`: the image and Linux guests exchange bytes with a peer behind a tap of the VMM, programs of Linux over the
//! loopback device.

use crate::shared::{linux_guest, LINUX_GUEST};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use trapline_host::sha256_of_file;
use trapline_tests::measurements::{assert_carried, cell, estimate};
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, parts, skip};

const EXCHANGES: [&str; 4] = ["tcp-ping", "udp-ping", "tcp-send", "tcp-receive"];
const WITH_DATAGRAMS: [&str; 6] = [
    "tcp-ping",
    "udp-ping",
    "tcp-send",
    "tcp-receive",
    "udp-64",
    "udp-1472",
];
const OVER_VSOCK: [&str; 3] = ["vsock-ping", "vsock-send", "vsock-receive"];

/// QEMU delivers an injected interrupt twice, at which two guests on one machine stood still; its function is replaced if its
/// code is known (lab/steady).
#[test]
fn the_installed_qemu_delivers_no_interrupt_twice() {
    if !has_qemu("interrupts that are delivered once") {
        return;
    }
    let output = Command::new("qemu-system-x86_64")
        .arg("--version")
        .env("LD_PRELOAD", parts().join("libtrapline_steady.so"))
        .env("TRAPLINE_STEADY_REPORT", "1")
        .output()
        .expect("QEMU starts");
    let report = String::from_utf8_lossy(&output.stderr);
    if report.trim() != "dropped" {
        let why = format!("it may deliver an interrupt twice: {report}");
        skip("interrupts that are delivered once", &why);
    }
}

#[test]
fn a_qemu_that_may_deliver_interrupts_twice_is_refused_for_two_guests() {
    if !has_qemu("interrupts that are delivered once") {
        return;
    }
    let place = Place::new();
    place.wrap_qemu("unset LD_PRELOAD");
    let words = ["--env", "sim/kvm/linux", "--workload", "net/udp-ping"];
    let more = ["--peer", "guest", "--path", "vhost-net", "--format", "json"];
    let result = place.run(&[&["run"], &words[..], &more].concat());
    assert_eq!(result.status, Some(4), "{result:?}");
    for expected in ["may deliver an interrupt twice", "--path switch"] {
        assert!(result.stdout.contains(expected), "{result:?}");
    }
}

/// Measures `operations` in `environment`. Returns nothing if they are skipped.
fn measured(
    place: &Place,
    environment: &str,
    operations: &[&str],
    words: &[&str],
) -> Option<Value> {
    let selection: Vec<_> = operations
        .iter()
        .map(|operation| format!("net/{operation}"))
        .collect();
    let selection = selection.join(",");
    let own = ["--env", environment, "--workload", &*selection];
    let json = place.measure(&[&own, words].concat());
    check(&json, environment, operations).then_some(json)
}

/// Checks that `operations` were measured, or skipped for a missing network. Returns false if they were skipped.
fn check(json: &Value, environment: &str, operations: &[&str]) -> bool {
    for operation in operations {
        let cell = cell(json, environment, operation);
        if let Some(reason) = cell["skip"].as_str() {
            skip("a network", reason);
            return false;
        }
        assert_carried(cell);
    }
    true
}

#[test]
#[ignore = "slow: boots four machines with a network"]
fn exchanges_are_measured_on_the_instruction_clock() {
    if !has_qemu("a network") {
        return;
    }
    let place = Place::new();
    for environment in ["sim/linux", "sim/kvm", "sim/process"] {
        let Some(json) = measured(&place, environment, &WITH_DATAGRAMS, &[]) else {
            continue;
        };
        let of = |operation| estimate(&json, environment, operation);
        assert!(of("tcp-ping") > of("udp-ping"), "a connection is more work");
        assert!(of("udp-1472") > of("udp-64"), "more bytes are copied");
    }
    // A stream of datagrams to a Linux guest takes a minute.
    check(&linux_guest().json, LINUX_GUEST, &EXCHANGES);
}

#[test]
#[ignore = "slow: boots two machines with Linux guests"]
fn linux_exchanges_bytes_over_vsock() {
    if !has_qemu("vsock") {
        return;
    }
    measured(&Place::new(), "sim/linux", &OVER_VSOCK, &[]);
    check(&linux_guest().json, LINUX_GUEST, &OVER_VSOCK);
}

#[test]
fn exchanges_are_measured_on_this_host() {
    let place = Place::new();
    for environment in ["host", "kvm", "process", "kvm/linux"] {
        measured(&place, environment, &WITH_DATAGRAMS, &["--boots", "1"]);
    }
}

#[test]
fn files_are_sent_by_linux_and_left_out_for_the_image() {
    let place = Place::new();
    let selection = "net/tcp-send,net/sendfile";
    let environments = "host,kvm/linux,process";
    let words = [
        "--env",
        environments,
        "--workload",
        selection,
        "--boots",
        "1",
    ];
    let json = place.measure(&words);
    let cells = json["cells"].as_array().expect("list");
    for environment in ["host", "kvm/linux", "process"] {
        let of =
            |cell: &&Value| cell["environment"] == environment && cell["operation"] == "sendfile";
        let cell = cells.iter().find(of).expect("cell of the environment");
        match cell["skip"].as_str() {
            Some(reason) if environment == "process" => {
                assert!(reason.contains("no file in memory"), "{reason}")
            }
            Some(reason) => skip("a network", reason),
            None => {
                assert_ne!(environment, "process");
                assert_carried(cell);
            }
        }
    }
}

#[test]
fn exchanges_between_guests_are_measured() {
    let place = Place::new();
    for environment in ["kvm", "process", "kvm/linux"] {
        let words = ["--boots", "1", "--peer", "guest"];
        measured(&place, environment, &WITH_DATAGRAMS, &words);
    }
    if has_qemu("exchanges between guests") {
        measured(&place, "sim/kvm", &WITH_DATAGRAMS, &["--peer", "guest"]);
    }
}

#[test]
fn other_workloads_of_a_run_with_a_network_are_measured() {
    let place = Place::new();
    let words = [
        "--env",
        "kvm",
        "--workload",
        "exits/cpuid,net/tcp-ping",
        "--boots",
        "1",
    ];
    let json = place.measure(&words);
    let cells = json["cells"].as_array().expect("list");
    let cell = cells.iter().find(|cell| cell["operation"] == "cpuid");
    let cell = cell.expect("cell of the operation");
    match cell["skip"].as_str() {
        Some(reason) => skip("kvm", reason),
        None => assert_carried(cell),
    }
}

#[test]
fn missing_network_is_reported() {
    let place = Place::new();
    let words = [
        "--env",
        "host,sim,qemu-kvm",
        "--workload",
        "net/tcp-ping",
        "--boots",
        "1",
    ];
    let json = place.measure(&words);
    let cells = json["cells"].as_array().expect("list");
    for environment in ["sim", "qemu-kvm"] {
        let cell = cells.iter().find(|cell| cell["environment"] == environment);
        assert!(cell.expect("cell of the environment")["skip"].is_string());
    }
}

#[test]
#[ignore = "slow: explains three exchanges"]
fn pings_and_datagrams_are_explained() {
    if !has_qemu("a network") {
        return;
    }
    let place = Place::new();
    for operation in ["net/tcp-ping", "net/udp-ping", "net/udp-64"] {
        let explained = place.run(&["explain", "sim/kvm", operation]);
        assert_eq!(explained.status, Some(0), "{explained:?}");
        for component in ["kernel ", "guest ", "trapline-vmm ", "trapline-agent "] {
            assert!(explained.stdout.contains(component), "{explained:?}");
        }
        assert!(explained.stdout.contains("Residual: 0"), "{explained:?}");
    }
}

/// Measures packets in `environment`; returns nothing if they are skipped.
fn packets(place: &Place, environment: &str, words: &[&str]) -> Option<()> {
    let selection = "net/packet-64,net/packet-1500,net/packet-ping";
    let own = ["--env", environment, "--workload", selection];
    let json = place.measure(&[&own, words].concat());
    let cells = json["cells"].as_array().expect("list");
    if let Some(reason) = cells[0]["skip"].as_str() {
        skip("packets between guests", reason);
        return None;
    }
    assert_eq!(cells.len(), 3);
    for cell in cells {
        assert_carried(cell);
    }
    if words.contains(&"--path") {
        return Some(());
    }
    let hash = &json["environments"][environment]["facts"]["switch-sha256"];
    let switch = sha256_of_file(&place.parts().join("trapline-switch"));
    assert_eq!(hash.as_str(), Some(&*switch.expect("file exists")));
    Some(())
}

#[test]
fn packets_between_guests_are_measured_on_this_host() {
    let place = Place::new();
    for environment in ["kvm", "process", "kvm/linux"] {
        packets(&place, environment, &["--boots", "1"]);
    }
    if is_loaded("bridge") {
        packets(&place, "process", &["--boots", "1", "--path", "bridge"]);
    }
}

/// Returns whether the kernel has a module, loaded or built in.
fn is_loaded(module: &str) -> bool {
    let is_loaded = Path::new("/sys/module").join(module).exists();
    if !is_loaded {
        skip(
            "a bridge between guests",
            &format!("module {module} is not loaded"),
        );
    }
    is_loaded
}

#[test]
#[ignore = "slow: boots two guests in each of three machines"]
fn packets_between_guests_are_measured_and_explained() {
    if !has_qemu("packets between guests") {
        return;
    }
    let place = Place::new();
    for environment in ["sim/kvm", "sim/process"] {
        packets(&place, environment, &[]);
    }
    let explained = place.run(&["explain", "sim/kvm", "net/packet-64"]);
    assert_eq!(explained.status, Some(0), "{explained:?}");
    for component in [
        "kernel ",
        "kvm ",
        "guest ",
        "trapline-vmm ",
        "trapline-switch ",
    ] {
        assert!(explained.stdout.contains(component), "{explained:?}");
    }
}

#[test]
#[ignore = "slow: boots four machines"]
fn each_way_between_guests_is_explained_by_its_own_modules() {
    if !has_qemu("ways between guests") {
        return;
    }
    let place = Place::new();
    for (path, components) in [
        ("bridge", &["tun ", "bridge ", "trapline-vmm "][..]),
        ("vhost-net", &["tun ", "bridge ", "vhost ", "vhost_net "]),
    ] {
        packets(&place, "sim/kvm", &["--path", path]);
        let explained = place.run(&["explain", "sim/kvm", "net/packet-64", "--path", path]);
        assert_eq!(explained.status, Some(0), "{explained:?}");
        for component in components {
            assert!(explained.stdout.contains(component), "{explained:?}");
        }
        assert!(explained.stdout.contains("Residual: 0"), "{explained:?}");
    }
}

#[test]
fn tap_and_switch_are_measured_in_one_boot() {
    let place = Place::new();
    let selection = "net/udp-ping,net/packet-64";
    let words = ["--env", "kvm", "--workload", selection, "--boots", "1"];
    let json = place.measure(&words);
    for cell in json["cells"].as_array().expect("list") {
        match cell["skip"].as_str() {
            Some(reason) => skip("a network", reason),
            None => assert_carried(cell),
        }
    }
}

#[test]
fn default_run_measures_no_network() {
    let listed = Place::new().run(&["list", "--format", "json"]);
    let list: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let workloads = list["workloads"].as_array().expect("list");
    let net = workloads.iter().find(|workload| workload["name"] == "net");
    assert_eq!(net.expect("workload is listed")["by_default"], false);
}
