//! Several guests that are measured at the same time.

use trapline_tests::measurements::{assert_measured, cell, facts};
use trapline_tests::run::{has, Place};

/// Measures two guests of `environment`, and checks what is reported.
fn check(place: &Place, environment: &str, operations: &str) {
    let words = "--boots 2 --guests 2 --workload".split(' ');
    let words: Vec<_> = words.chain([operations, "--env", environment]).collect();
    let json = place.measure(&words);
    let measured = operations.split(',').filter(|it| *it != "boot/main");
    assert_measured(&json, environment, &measured.collect::<Vec<_>>());
    let skip = cell(&json, environment, "boot/main")["skip"].as_str();
    assert!(
        skip.is_some_and(|reason| reason.contains("--guests")),
        "{skip:?}"
    );
    let simultaneous = facts(&json, environment)["simultaneous"].as_str();
    assert!(simultaneous.is_some(), "{json:#}");
}

#[test]
fn two_agents_are_measured_at_the_same_time() {
    check(&Place::new(), "host", "basic/getpid,system/fork,boot/main");
}

#[test]
fn two_guests_of_trapline_vmm_are_measured_at_the_same_time() {
    let place = Place::new();
    for environment in ["kvm", "process"] {
        if has(environment, "several guests") {
            check(&place, environment, "exits/port-out,boot/main");
        }
    }
}
