//! `trapline block`: a file of this host whose requests are all stored, disks of Linux guests and of images,
//! and environments without a disk.

use serde_json::Value;
use trapline_tests::run::{assert_fits_80_columns, CommandOutput, Place};
use trapline_tests::{has_qemu, skip};

fn block(place: &Place, words: &str) -> CommandOutput {
    place.run_storing("block", words)
}

const SMALL: &str = "--size 4M --requests 512 --boots 1";

#[test]
fn every_file_request_is_reported_and_stored() {
    let place = Place::new();
    let file = place.path().join("measured");
    let file = file.to_str().expect("path is UTF-8");
    let result = block(&place, &format!("{SMALL} --file {file} --format json"));
    assert_eq!(result.status, Some(0), "{result:?}");
    let json = result.json();
    let requests = json["requests"].as_array().expect("list");
    assert_eq!(requests.len(), 9, "{json:#}");
    for one in requests {
        let of = |key: &str| one[key].as_f64().expect("number");
        let count = of("count");
        for (name, least) in [("p90", 36.0), ("p99", 368.0), ("p999", 3_688.0)] {
            assert_eq!(one[name].is_number(), count >= least, "{name}: {one:#}");
        }
        let known = ["p50", "p90", "p99", "p999", "max"].map(|key| one[key].as_f64());
        let known: Vec<f64> = known.into_iter().flatten().collect();
        assert!(known.is_sorted() && known[0] > 0.0, "{one:#}");
        assert!((of("rate") * of("bytes") / 1e6 - of("megabytes")).abs() < 1e-6);
        // Little's law: average number of requests in flight.
        let together = of("rate") * of("mean") / 1e9;
        let depth = of("depth");
        assert!(together > 0.999 && together < depth + 0.001, "{one:#}");
    }
    let count = |operation: &str| {
        let its = requests.iter().find(|one| one["operation"] == operation);
        its.expect("operation is listed")["count"].as_u64()
    };
    assert_eq!(count("read-4k-32"), Some(512));
    assert_eq!(count("read-4k-1"), Some(128));
    assert_eq!(
        count("write-1m-1"),
        Some(4),
        "4 MiB have four places of 1 MiB"
    );
    let facts = &json["environments"]["host"]["facts"];
    assert!(facts["disk-engine"].is_string(), "{facts:#}");
    assert_eq!(json["facts"]["disk-mib"], "4");
    assert!(
        !std::path::Path::new(file).exists(),
        "nothing is left behind"
    );
    let shown = place.run(&["show", "--store", place.store().to_str().unwrap()]);
    let text = &shown.stdout;
    assert!(text.contains("Requests to a disk, wall clock"), "{text}");
    assert_fits_80_columns(text);
}

#[test]
fn existing_files_are_kept_and_invalid_options_rejected() {
    let place = Place::new();
    let precious = place.path().join("precious");
    std::fs::write(&precious, "precious").expect("write succeeds");
    let name = precious.to_str().expect("path is UTF-8");
    for (words, message) in [
        (format!("--file {name}"), "would be lost"),
        (
            "--file /no/such/directory/file".to_owned(),
            "no such directory",
        ),
        ("--size 100K".to_owned(), "whole MiB"),
        ("--size many".to_owned(), "500M or 4G"),
        ("--op read-8k-1".to_owned(), "read-4k-1"),
        ("--requests 0".to_owned(), "--requests"),
        ("--env hots".to_owned(), "did you mean 'host'?"),
    ] {
        let result = block(&place, &words);
        assert_eq!(result.status, Some(2), "{words}: {result:?}");
        assert!(
            result.stderr.contains(message),
            "{words}: {}",
            result.stderr
        );
        assert!(
            result.stderr.contains("help: "),
            "{words}: {}",
            result.stderr
        );
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn missing_disk_is_reported() {
    let place = Place::new();
    let words = format!("{SMALL} --env host,sim,sim/qemu-kvm-pc --op read-4k-1 --format json");
    let json = block(&place, &words).json();
    for environment in ["sim", "sim/qemu-kvm-pc"] {
        let cells = json["cells"].as_array().expect("list");
        let cell = cells.iter().find(|cell| cell["environment"] == environment);
        let cell = cell.expect("cell of the environment");
        assert!(cell["skip"].is_string(), "{cell:#}");
    }
    assert_eq!(json["requests"].as_array().map(Vec::len), Some(1));
}

#[test]
fn linux_guest_disk_requests_are_verified() {
    let feature = "the disk of a Linux guest";
    if !has_qemu(feature) {
        return;
    }
    let place = Place::new();
    let ops = "read-4k-1,read-1m-32,write-4k-sync";
    let words = format!("{SMALL} --env qemu-tcg/linux --op {ops} --format json");
    let result = block(&place, &words);
    let json = result.json();
    let cells = json["cells"].as_array().expect("list");
    if let Some(reason) = cells[0]["skip"].as_str() {
        return skip(feature, reason);
    }
    assert_eq!(result.status, Some(0), "{result:?}");
    assert_eq!(
        json["requests"].as_array().map(Vec::len),
        Some(3),
        "{json:#}"
    );
    let facts = &json["environments"]["qemu-tcg/linux"]["facts"];
    assert_eq!(facts["disk-cache"], "none (O_DIRECT)");
}

/// Measures `environment`; returns nothing if it is skipped.
fn measured(place: &Place, environment: &str, words: &str) -> Option<Value> {
    let words = format!("{words} --env {environment} --format json");
    let result = block(place, &words);
    let json = result.json();
    let cells = json["cells"].as_array().expect("list");
    if let Some(reason) = cells[0]["skip"].as_str() {
        skip("the disk of an image", reason);
        return None;
    }
    assert_eq!(result.status, Some(0), "{result:?}");
    Some(json)
}

#[test]
#[ignore = "slow: make test-all"]
fn image_disk_requests_are_verified_on_the_instruction_clock() {
    if !has_qemu("the disk of an image") {
        return;
    }
    let place = Place::new();
    for environment in ["sim/kvm", "sim/process", "sim/qemu-kvm"] {
        let Some(json) = measured(&place, environment, "--size 4M --requests 256") else {
            continue;
        };
        let requests = json["requests"].as_array().expect("list");
        assert_eq!(requests.len(), 9, "{json:#}");
        for one in requests {
            assert_eq!(one["unit"], "insn");
        }
        let facts = &json["environments"][environment]["facts"];
        let engine = facts["disk-engine"].as_str().expect("a fact");
        assert_eq!(engine, "the image's virtio-blk driver, with interrupts");
        assert_eq!(json["facts"]["disk-mib"], "4");
    }
}

#[test]
fn image_disk_requests_are_verified_on_this_host() {
    let place = Place::new();
    for environment in ["kvm", "process", "qemu-kvm"] {
        let words = format!("{SMALL} --op read-4k-32,write-1m-32,write-4k-sync");
        let Some(json) = measured(&place, environment, &words) else {
            continue;
        };
        assert_eq!(json["requests"].as_array().map(Vec::len), Some(3));
        let facts = &json["environments"][environment]["facts"];
        assert!(facts["disk-engine"].is_string(), "{facts:#}");
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn single_requests_are_explained_and_concurrent_ones_are_not() {
    if !has_qemu("the disk of an image") {
        return;
    }
    let place = Place::new();
    let explained = place.run(&["explain", "sim/kvm", "block/write-4k-1"]);
    assert_eq!(explained.status, Some(0), "{explained:?}");
    for component in ["kvm ", "trapline-vmm ", "guest "] {
        assert!(explained.stdout.contains(component), "{explained:?}");
    }
    let rejected = place.run(&["explain", "sim/kvm", "block/write-4k-32"]);
    assert_eq!(rejected.status, Some(2), "{rejected:?}");
    assert!(
        rejected.stderr.contains("concurrent requests"),
        "{rejected:?}"
    );
}

#[test]
fn default_run_measures_no_disk() {
    let place = Place::new();
    let words = [
        "--env",
        "host",
        "--workload",
        "block/read-4k-1",
        "--boots",
        "1",
    ];
    let json = place.measure(&words);
    assert_eq!(json["requests"][0]["operation"], "read-4k-1", "if named");
    let listed = place.run(&["list", "--format", "json"]);
    let list: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let workloads = list["workloads"].as_array().expect("list");
    let block = workloads
        .iter()
        .find(|workload| workload["name"] == "block");
    assert_eq!(block.expect("environment is listed")["by_default"], false);
}
