//! Guests that are processes on the simulated machine, end to end.

use trapline_tests::measurements::{assert_figure, cell, fastest};
use trapline_tests::run::{has, Place};

const FEATURE: &str = "guests that are processes";

/// Returns the instructions of a hypercall and of a port write.
fn crossing(place: &Place, mechanism: &str) -> Option<[f64; 2]> {
    if !has("sim/process", FEATURE) {
        return None;
    }
    let words = "-q --env sim/process --workload exits/hypercall,exits/port-out --crossing";
    let words: Vec<_> = words.split(' ').chain([mechanism]).collect();
    let run = place.measure(&words);
    for operation in ["hypercall", "port-out"] {
        assert_figure(cell(&run, "sim/process", operation));
    }
    Some(["hypercall", "port-out"].map(|operation| fastest(&run, "sim/process", operation)))
}

/// The requirement on the fastest mechanism: a hypercall in at most 100 instructions.
#[test]
fn hypercall_in_the_process_takes_at_most_100_instructions() {
    let place = Place::new();
    for mechanism in ["auto", "rewrite"] {
        let Some([hypercall, port_out]) = crossing(&place, mechanism) else {
            return;
        };
        assert!(hypercall <= 100.0, "{mechanism}: {hypercall}");
        assert!(port_out > 1_000.0, "{mechanism}: {port_out}");
    }
}

/// A signal costs less than a notification, and that less than two stops of a tracee.
#[test]
fn mechanisms_that_leave_the_guest_are_ordered() {
    let place = Place::new();
    let measured = ["dispatch", "trap", "notify", "ptrace"].map(|name| crossing(&place, name));
    let [Some(dispatch), Some(trap), Some(notify), Some(ptrace)] = measured else {
        return;
    };
    let hypercalls = [dispatch[0], trap[0], notify[0], ptrace[0]];
    assert!(hypercalls.is_sorted(), "{hypercalls:?}");
    assert!(dispatch[0] > 1_000.0, "{hypercalls:?}");
    assert!(trap[1] < ptrace[1], "{trap:?} {ptrace:?}");
}
