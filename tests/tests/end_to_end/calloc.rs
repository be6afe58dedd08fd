//! Memory that is zero: zeroed on demand or while idle, with either kind of stores.

use serde_json::Value;
use trapline_tests::has_qemu;
use trapline_tests::measurements::{cell, fastest};
use trapline_tests::run::Place;

const WORDS_OF_1_MIB: f64 = 131_072.0;

fn measure(place: &Place, environments: &str, zeroing: &str) -> Value {
    let operations = "basic/malloc-1m,basic/calloc-64k,basic/calloc-1m";
    let all = ["--env", environments, "--workload", operations];
    place.measure(&[&all[..], &["--zeroing", zeroing]].concat())
}

#[test]
fn zeroing_is_paid_in_the_allocation_or_while_idle() {
    if !has_qemu("zeroed memory on the instruction clock") {
        return;
    }
    let place = Place::new();
    for zeroing in ["demand", "demand-nt"] {
        let json = measure(&place, "sim", zeroing);
        let calloc = fastest(&json, "sim", "calloc-1m");
        assert!(calloc > WORDS_OF_1_MIB, "{json:#}");
        assert!(cell(&json, "sim", "calloc-1m")["idle_time"].is_null());
    }
    for zeroing in ["idle", "idle-nt"] {
        let json = measure(&place, "sim", zeroing);
        let [calloc, malloc] = ["calloc-1m", "malloc-1m"].map(|op| fastest(&json, "sim", op));
        assert!(calloc <= 1.1 * malloc, "{json:#}");
        let idle = cell(&json, "sim", "calloc-1m");
        assert!(
            idle["idle_time"].as_f64() > Some(WORDS_OF_1_MIB),
            "{idle:#}"
        );
        assert_eq!(idle["idle_bytes"], f64::from(1 << 20), "{idle:#}");
    }
}

#[test]
fn linux_zeroes_in_the_allocation() {
    let json = Place::new().measure(&["--env", "host", "--workload", "basic", "--boots", "2"]);
    let of = |op| fastest(&json, "host", op);
    assert!(of("calloc-1m") > of("malloc-1m"), "{json:#}");
    assert!(cell(&json, "host", "calloc-1m")["idle_time"].is_null());
}
