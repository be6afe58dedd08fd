//! Workload `ipc`: semaphores between two CPUs of the image and of Linux, machines without a second CPU, and run queues and
//! TLB shootdowns of workload `smp`.

use serde_json::Value;
use trapline_tests::measurements::{assert_measured, cell, facts, fastest};
use trapline_tests::run::{has, Place};
use trapline_tests::{has_qemu, skip};

const OPERATIONS: [&str; 3] = ["item", "item-work", "wake"];

fn measure(place: &Place, environments: &str, words: &[&str]) -> Value {
    let all = ["--env", environments, "--workload", "ipc"];
    place.measure(&[&all[..], words].concat())
}

/// Checks that two boots gave the same figures, and that work is added to an item.
fn check_exact(json: &Value, environment: &str) {
    for operation in OPERATIONS {
        let measured = cell(json, environment, operation);
        assert_eq!(measured["boots"], 2, "{measured:#}");
    }
    let of = |operation| fastest(json, environment, operation);
    assert!(of("item-work") > of("item") + 2.0 * 2_000.0, "{json:#}");
}

#[test]
fn semaphores_between_cpus_of_the_bare_image_are_exact_and_polling_is_cheaper() {
    if !has_qemu("semaphores on the instruction clock") {
        return;
    }
    let place = Place::reproducing();
    let halting = measure(&place, "sim", &["--cpus", "2"]);
    check_exact(&halting, "sim");
    let polling = measure(&place, "sim", &["--cpus", "2", "--wake", "poll:50"]);
    check_exact(&polling, "sim");
    let wake = |json| fastest(json, "sim", "wake");
    assert!(wake(&polling) < wake(&halting), "{polling:#}\n{halting:#}");
}

#[test]
fn semaphores_between_virtual_cpus_of_kvm_are_exact() {
    let feature = "semaphores between virtual CPUs on the instruction clock";
    if !has_qemu(feature) {
        return;
    }
    let json = measure(&Place::reproducing(), "sim,sim/kvm", &["--cpus", "2"]);
    if let Some(reason) = cell(&json, "sim/kvm", "item")["skip"].as_str() {
        return skip(feature, reason);
    }
    check_exact(&json, "sim/kvm");
    // Each wake-up of a halted virtual CPU takes exits.
    let of = |environment| fastest(&json, environment, "wake");
    assert!(of("sim/kvm") > 10.0 * of("sim"), "{json:#}");
}

#[test]
fn semaphores_between_threads_are_measured_on_the_host() {
    let json = measure(&Place::new(), "host", &["--boots", "2"]);
    assert_measured(&json, "host", &OPERATIONS);
}

#[test]
fn a_missing_cpu_or_instruction_is_the_reason_of_a_skip() {
    if !has_qemu("semaphores on the instruction clock") {
        return;
    }
    let place = Place::new();
    let reason = |words: &[&str], environment: &str| {
        let json = measure(&place, environment, words);
        let measured = cell(&json, environment, "wake");
        measured["skip"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(reason(&[], "sim"), "the image has one CPU: choose --cpus 2");
    assert_eq!(
        reason(&["--wake", "mwait", "--boots", "1"], "host"),
        "a Linux process cannot execute mwait"
    );
    assert_eq!(
        reason(&["--wake", "haltpoll", "--boots", "1"], "host"),
        "haltpoll and idle-poll are for kernels of Linux guests"
    );
    assert_eq!(
        reason(&["--wake", "idle-poll", "--cpus", "2"], "sim"),
        "haltpoll and idle-poll are for Linux guests: choose poll:50 for the image"
    );
}

/// An idle virtual CPU that polls keeps the only CPU of the machine from the other one.
#[test]
#[ignore = "slow: make test-all"]
fn a_guest_whose_idle_cpus_poll_is_slower_on_one_cpu() {
    let feature = "polling of idle CPUs in Linux guests";
    let environment = "sim/kvm/linux";
    let place = Place::new();
    if !has(environment, feature) {
        return;
    }
    let run = |place: &Place, wake: &str| {
        let words = ["--workload", "ipc/wake", "--cpus", "2", "--wake", wake];
        place.measure(&[&["--env", environment][..], &words].concat())
    };
    let halting = run(&place, "halt");
    let polling = run(&Place::reproducing(), "idle-poll");
    let of = |json| fastest(json, environment, "wake");
    assert!(of(&polling) > 10.0 * of(&halting), "{polling:#}");
    assert_eq!(cell(&polling, environment, "wake")["boots"], 2, "identical");
    let options = |json| facts(json, environment)["guest-command-line"].clone();
    assert!(options(&polling).as_str().unwrap().ends_with(" idle=poll"));
    // Kernels without the governor are a reason of a skip.
    let governed = run(&place, "haltpoll");
    let measured = cell(&governed, environment, "wake");
    match measured["skip"].as_str() {
        Some(reason) => assert!(reason.contains("CONFIG_CPU_IDLE_GOV_HALTPOLL"), "{reason}"),
        None => assert!(of(&governed) > of(&halting), "{governed:#}"),
    }
}

#[test]
fn a_shootdown_is_exact_and_costs_more_with_more_cpus() {
    if !has_qemu("TLB shootdowns on the instruction clock") {
        return;
    }
    let place = Place::reproducing();
    let figures = ["2", "4", "8"].map(|cpus| {
        let words = [
            "--env",
            "sim",
            "--workload",
            "smp/shootdown",
            "--cpus",
            cpus,
        ];
        let json = place.measure(&words);
        let measured = cell(&json, "sim", "shootdown");
        assert_eq!(measured["boots"], 2, "{measured:#}");
        fastest(&json, "sim", "shootdown")
    });
    assert!(
        figures.is_sorted_by(|fewer, more| fewer < more),
        "{figures:?}"
    );
}

/// Bare, the instructions of both CPUs; in a virtual machine an exit for the interrupt at least, and one for the halt.
#[test]
fn an_interrupt_and_the_start_of_a_cpu_are_exact_and_leave_the_guest() {
    if !has_qemu("interrupts between CPUs on the instruction clock") {
        return;
    }
    let place = Place::reproducing();
    let words = ["--env", "sim,sim/kvm", "--workload"];
    let words = [
        &words[..],
        &["smp/ipi,smp/start,exits/cpuid", "--cpus", "3"],
    ]
    .concat();
    let json = place.measure(&words);
    let exit = fastest(&json, "sim/kvm", "cpuid");
    for (operation, bare) in [("ipi", 30.0..100.0), ("start", 100.0..300.0)] {
        let of = |environment| fastest(&json, environment, operation);
        assert!(bare.contains(&of("sim")), "{operation}: {}", of("sim"));
        assert!(of("sim/kvm") > 2.0 * exit, "{operation}: {json:#}");
        let measured = cell(&json, "sim/kvm", operation);
        assert_eq!(measured["boots"], 2, "{measured:#}");
    }
}

/// The producer and the consumer of a CPU take turns, and it halts only when both are blocked.
#[test]
fn two_threads_of_a_cpu_are_exact_and_wake_others_as_rarely_as_one() {
    if !has_qemu("run queues on the instruction clock") {
        return;
    }
    let place = Place::reproducing();
    for cpus in ["2", "3", "8"] {
        let json = place.measure(&[
            "--env",
            "sim",
            "--workload",
            "smp/pairs,smp/threads",
            "--cpus",
            cpus,
        ]);
        let [pairs, threads] = ["pairs", "threads"].map(|operation| {
            let measured = cell(&json, "sim", operation);
            assert_eq!(measured["boots"], 2, "{measured:#}");
            let wakes = &facts(&json, "sim")[format!("wakes-smp-{operation}")];
            let words: Vec<_> = wakes.as_str().expect("fact").split(' ').collect();
            let [wakes, operations] = [words[0], words[2]].map(|it| it.parse::<f64>().unwrap());
            wakes / operations
        });
        assert!(threads < pairs, "{cpus} CPUs: {threads} {pairs}");
    }
    let mwait = place.measure(&[
        "--env",
        "sim",
        "--workload",
        "smp/threads",
        "--cpus",
        "2",
        "--wake",
        "mwait",
    ]);
    let skip = &cell(&mwait, "sim", "threads")["skip"];
    assert!(
        skip.as_str().is_some_and(|reason| reason.contains("mwait")),
        "{skip}"
    );
}

#[test]
fn a_competitor_for_the_cpus_reports_its_time() {
    let words =
        "--env host,sim --workload ipc/wake,smp/shootdown --boots 1 --competitor sched-idle";
    let words: Vec<_> = words.split(' ').collect();
    let json = Place::new().measure(&words);
    let time = facts(&json, "host")["competitor"]
        .as_str()
        .unwrap_or_default();
    assert!(time.contains("% of ") && time.ends_with(" ms"), "{json:#}");
    assert_measured(&json, "host", &["wake"]);
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        assert_measured(&json, "host", &["shootdown"]);
    }
    let reason = json["environments"]["sim"]["skip"].as_str();
    let expected = "--competitor sched-idle is not supported by sim";
    assert!(
        reason.is_some_and(|reason| reason.starts_with(expected)),
        "{json:#}"
    );
}
