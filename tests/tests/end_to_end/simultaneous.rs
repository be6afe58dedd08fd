//! Several guests that are measured at the same time.

use trapline_tests::measurements::{assert_measured, cell, estimate, facts};
use trapline_tests::run::{has, Place};

/// Measures two guests of `environment`, and checks what is reported. `irq/own-timer` is left out.
fn check(place: &Place, environment: &str, operations: &str) {
    let words = "--boots 2 --guests 2 --workload".split(' ');
    let words: Vec<_> = words.chain([operations, "--env", environment]).collect();
    let json = place.measure(&words);
    let measured = operations.split(',').filter(|it| *it != "irq/own-timer");
    assert_measured(&json, environment, &measured.collect::<Vec<_>>());
    let skip = cell(&json, environment, "irq/own-timer")["skip"].as_str();
    assert!(
        skip.is_some_and(|reason| reason.contains("--guests")),
        "{skip:?}"
    );
    let simultaneous = facts(&json, environment)["simultaneous"].as_str();
    assert!(simultaneous.is_some(), "{json:#}");
}

#[test]
fn two_agents_are_measured_at_the_same_time() {
    check(
        &Place::new(),
        "host",
        "basic/getpid,system/fork,boot/main,irq/own-timer",
    );
}

#[test]
fn two_guests_of_trapline_vmm_are_measured_at_the_same_time() {
    let place = Place::new();
    for environment in ["kvm", "process"] {
        if has(environment, "several guests") {
            check(
                &place,
                environment,
                "exits/port-out,boot/main,irq/own-timer",
            );
        }
    }
}

/// Starts of guests of our VMM and of one that does not report the offset of its guest's clock.
#[test]
fn guests_of_a_simulated_machine_start_at_the_same_time() {
    let place = Place::new();
    if !has("sim/kvm", "starts at the same time") {
        return;
    }
    let environments = ["sim/kvm", "sim/qemu-kvm"].into_iter();
    let environments: Vec<_> = environments.filter(|it| has(it, "starts")).collect();
    let environments = environments.join(",");
    let words = ["--env", &environments, "--exact-boots", "1", "--workload"];
    let words = [&words[..], &["boot/main,exits/cpuid"]].concat();
    let alone = place.measure(&words);
    let together = place.measure(&[&words[..], &["--guests", "4"]].concat());
    for environment in environments.split(',') {
        // One CPU starts them all: the last one waits for most of the work of the others.
        let [one, four] = [&alone, &together].map(|json| estimate(json, environment, "main"));
        assert!(
            four > 1.5 * one && four < 6.0 * one,
            "{environment}: {one} {four}"
        );
        let skip = cell(&together, environment, "exits/cpuid")["skip"].as_str();
        assert!(
            skip.is_some_and(|reason| reason.contains("only start")),
            "{skip:?}"
        );
    }
}
