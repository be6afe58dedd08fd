//! Workload `files`: an archive behind the page cache of the image, ext4 in Linux guests, a directory of the host.

use serde_json::Value;
use trapline_tests::measurements::{assert_measured, cell, fastest};
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, skip};

const OPERATIONS: [&str; 11] = [
    "open",
    "read-1k",
    "read-64k",
    "read-4k-warm",
    "read-4k-cold",
    "read-1m-warm",
    "read-1m-cold",
    "read-large",
    "write-4k-warm",
    "write-4k-fsync",
    "write-large",
];

/// Operations that need a disk, and a cache that can be emptied.
const COLD: [&str; 5] = [
    "read-4k-cold",
    "read-1m-cold",
    "read-large",
    "write-4k-fsync",
    "write-large",
];

fn measure(place: &Place, environment: &str, words: &[&str]) -> Value {
    let all = ["--env", environment, "--workload", "files"];
    place.measure(&[&all[..], words].concat())
}

fn fact(json: &Value, environment: &str, operation: &str) -> String {
    let fact = &json["environments"][environment]["facts"][format!("files-{operation}")];
    fact.as_str().unwrap_or_default().to_owned()
}

/// Returns the number before `unit` in a fact.
fn count(fact: &str, unit: &str) -> u64 {
    let mut parts = fact.split(", ");
    let number = parts.find_map(|part| part.strip_suffix(unit)?.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{unit}: {fact}"))
}

/// Checks the order of prices, which on the wall clock depends on what else a host does.
fn check_prices(json: &Value, environment: &str) {
    let of = |operation| fastest(json, environment, operation);
    assert!(of("open") < of("read-1k") && of("read-1k") < of("read-64k"));
    assert!(of("read-4k-cold") > 2.0 * of("read-4k-warm"), "{json:#}");
    assert!(of("write-4k-fsync") > 2.0 * of("write-4k-warm"), "{json:#}");
}

/// Checks the counts of the image's cache.
fn check_cache(json: &Value, environment: &str) {
    let warm = fact(json, environment, "read-1m-warm");
    assert_eq!(count(&warm, "misses"), 0, "{warm}");
    assert_eq!(count(&warm, "hits"), count(&warm, "pages needed"), "{warm}");
    let cold = fact(json, environment, "read-1m-cold");
    assert_eq!(
        count(&cold, "read from the disk"),
        count(&cold, "pages needed")
    );
    assert!(count(&cold, "hits") > count(&cold, "misses"), "{cold}");
    let random = fact(json, environment, "read-4k-cold");
    assert!(
        count(&random, "misses") > count(&random, "hits"),
        "{random}"
    );
    let warm = fact(json, environment, "write-4k-warm");
    assert_eq!(count(&warm, "written to it"), 0, "{warm}");
    for operation in ["write-4k-fsync", "write-large"] {
        let fact = fact(json, environment, operation);
        assert_eq!(count(&fact, "written to it"), count(&fact, "pages needed"));
    }
}

#[test]
#[ignore = "slow: measures files in three machines"]
fn files_of_the_image_are_read_on_the_instruction_clock() {
    if !has_qemu("files of the image on the instruction clock") {
        return;
    }
    let place = Place::new();
    for environment in ["sim/kvm", "sim/process", "sim/qemu-kvm"] {
        let json = measure(&place, environment, &[]);
        if let Some(reason) = cell(&json, environment, "open")["skip"].as_str() {
            skip("files of the image", reason);
            continue;
        }
        assert_measured(&json, environment, &OPERATIONS);
        check_prices(&json, environment);
        check_cache(&json, environment);
    }
}

#[test]
fn files_of_the_image_are_read_on_this_host() {
    let place = Place::new();
    for environment in ["kvm", "process", "qemu-kvm"] {
        let json = measure(&place, environment, &["--boots", "1"]);
        if let Some(reason) = cell(&json, environment, "open")["skip"].as_str() {
            skip("files of the image", reason);
            continue;
        }
        assert_measured(&json, environment, &OPERATIONS);
        check_cache(&json, environment);
    }
}

#[test]
#[ignore = "slow: measures files in a Linux guest"]
fn files_of_a_linux_guest_are_read_on_the_instruction_clock() {
    let feature = "files of a Linux guest";
    if !has_qemu(feature) {
        return;
    }
    let environment = "sim/kvm/linux";
    let json = measure(&Place::new(), environment, &[]);
    if let Some(reason) = cell(&json, environment, "open")["skip"].as_str() {
        return skip(feature, reason);
    }
    assert_measured(&json, environment, &OPERATIONS);
    let cold = fact(&json, environment, "read-4k-cold");
    assert!(count(&cold, "read from the disk") >= count(&cold, "pages needed"));
}

#[test]
fn files_in_memory_are_never_cold() {
    if !has_qemu("files in memory") {
        return;
    }
    let json = measure(&Place::new(), "sim/linux", &[]);
    for operation in OPERATIONS {
        let measured = cell(&json, "sim/linux", operation);
        if COLD.contains(&operation) {
            let reason = measured["skip"].as_str().expect("it is skipped");
            assert!(reason.contains("in memory"), "{reason}");
        } else {
            assert!(measured["estimate"].is_number(), "{measured:#}");
        }
    }
}

#[test]
fn files_of_this_host_are_read_and_removed() {
    let place = Place::new();
    let json = measure(&place, "host", &["--boots", "1"]);
    assert_measured(&json, "host", &["open"]);
    assert!(fastest(&json, "host", "read-64k") > fastest(&json, "host", "read-1k"));
}

#[test]
fn a_run_measures_either_disks_or_files() {
    let words = ["--env", "host", "--workload", "block/read-4k-1,files/open"];
    let json = Place::new().measure(&[&words[..], &["--boots", "1"]].concat());
    let reason = cell(&json, "host", "open")["skip"]
        .as_str()
        .expect("skipped");
    assert!(reason.contains("a run of its own"), "{reason}");
}
