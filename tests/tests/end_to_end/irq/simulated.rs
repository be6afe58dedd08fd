//! Interrupts of simulated machines: exact latencies, stages, loads and co-tenants.

use super::irq;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use trapline_tests::has_qemu;
use trapline_tests::measurements::facts;
use trapline_tests::run::{has, Place};

/// On the bare simulated machine every interrupt is exact.
#[test]
fn verdict_sets_the_exit_status_and_is_stored() {
    if !has_qemu("interrupts on the simulated machine") {
        return;
    }
    let place = Place::new();
    let usual = "--env sim --timer own --samples 2100 --period 1ms --require 100%";
    let met = irq(&place, &format!("{usual} --format json"));
    assert_eq!(met.status, Some(0), "{met:?}");
    let json = met.json();
    let own = &json["interrupts"][0];
    assert_eq!(own["summary"]["expiries"], 2100, "{own:#}");
    assert_eq!(own["summary"]["in_time"], 2100, "{own:#}");
    assert_eq!(own["windows"].as_array().map(Vec::len), Some(3));
    assert_eq!(own["period"], 1_000_000.0);
    assert_eq!(own["met"], true);
    assert_eq!(own["verdict"], "met");
    assert_eq!(own["in_time_interval"], Value::Null);
    assert_eq!(json["cells"][0]["p99"], own["summary"]["p99"]);
    assert_eq!(json["facts"]["irq-period"], "1ms");
    let missed = irq(&place, &format!("{usual} --threshold 1ns"));
    assert_eq!(missed.status, Some(1), "{missed:?}");
    assert!(
        missed.stdout.contains("not met, 0 of 2,100"),
        "{}",
        missed.stdout
    );
    for line in missed.stdout.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
    let store = place.store();
    let store = store.to_str().expect("path is UTF-8");
    let shown = place.run(&["show", "--store", store, "--all"]);
    assert_eq!((shown.status, shown.stdout), (Some(0), missed.stdout));
    let first = place.run(&["show", "--store", store, "--run", "1", "--format", "json"]);
    assert_eq!(first.stdout, met.stdout);
}

/// The handler takes few instructions, and the same number each time.
#[test]
fn handler_only_reads_the_clock() {
    if !has_qemu("the handler of the simulated machine") {
        return;
    }
    let words = "--env sim --timer own --samples 1100 --period 1ms --format json";
    let result = irq(&Place::new(), words);
    assert_eq!(result.status, Some(0), "{result:?}");
    let json = result.json();
    let stages = json["interrupts"][0]["stages"].as_array().expect("list");
    let of_handler = stages.iter().find(|span| span["to"] == "done");
    let of_handler = of_handler.expect("stage of the handler");
    assert_eq!(of_handler["from"], "entered");
    assert_eq!(of_handler["p50"], of_handler["max"], "{of_handler}");
    let longest = of_handler["max"].as_f64().expect("number");
    assert!(longest < 30.0, "{of_handler}");
}

/// Setting a timer takes longer in Xen than a whole interrupt, and is no lateness. Each interrupt of each timer is traced.
#[test]
fn timers_of_a_guest_are_as_late_as_their_interrupts_take() {
    if !has("sim/xen-pvh", "timers of a guest in Xen") {
        return;
    }
    let usual = "--env sim/kvm,sim/xen-pvh --timer all --samples 60 --format json";
    let result = irq(&Place::new(), usual);
    assert_eq!(result.status, Some(0), "{result:?}");
    let json = result.json();
    let timers = json["interrupts"].as_array().expect("list");
    // Xen has no timer of the VMM.
    assert_eq!(timers.len(), 4 + 3, "{json:#}");
    for timer in timers {
        assert_eq!(timer["summary"]["missed"], 0, "{timer:#}");
        assert_eq!(timer["unstamped"], Value::Array(vec![]), "{timer:#}");
        let stage = |to: &str| {
            let all = timer["stages"].as_array().expect("list");
            let found = all.iter().find(|span| span["to"] == to);
            found.expect("a stage")["mean"].as_f64().expect("a number")
        };
        let path = stage("marked") + stage("entered");
        let late = timer["summary"]["mean"].as_f64().expect("a number");
        assert!((500.0..30_000.0).contains(&path), "{timer:#}");
        // A timer of the VMM wakes another thread first.
        let slack = if timer["operation"] == "host-timer" {
            path
        } else {
            0.0
        };
        assert!(late <= path + slack, "{late} of {path}: {timer:#}");
    }
}

/// Two vCPUs that never halt share a CPU.
#[test]
fn busy_co_tenant_delays_interrupts() {
    if !has("sim/kvm", "a second guest on the simulated machine") {
        return;
    }
    let place = Place::new();
    let of = |words: &str| {
        let usual = "--env sim/kvm --timer own --samples 300 --period 1ms --format json";
        let result = irq(&place, &format!("{usual} {words}"));
        assert_eq!(result.status, Some(0), "{result:?}");
        result.json()
    };
    let alone = of("--idle halt-in-guest");
    let of_vmm = |json: &Value| {
        let cpu = &facts(json, "sim/kvm")["irq-vmm-cpu-us"];
        let us = cpu.as_str().expect("the VMM reports its CPU time");
        us.parse::<f64>().expect("a number")
    };
    let busy = of_vmm(&alone);
    let halted = of("--idle halt");
    // The guest that halts without exits uses all of 300 ms.
    assert!(busy > 290e3, "{busy}");
    assert!(of_vmm(&halted) < busy / 10.0, "{halted:#}");
    let late = |json: &Value| {
        let p90 = json["interrupts"][0]["summary"]["p90"].as_f64();
        p90.expect("300 expiries have one")
    };
    assert!(late(&alone) < late(&halted), "a wake-up costs time");
    assert_eq!(alone["interrupts"][0]["between"], "halt-in-guest");
    let shared = of("--idle halt-in-guest --vcpus-per-cpu 2");
    let both = &shared["interrupts"][0];
    assert_eq!(both["vcpus_per_cpu"], 2);
    let missed = both["summary"]["missed"].as_u64();
    assert!(missed > Some(50), "{both:#}");
    let neighbour = &facts(&shared, "sim/kvm")["load-0-neighbour"];
    let neighbour = neighbour.as_str().expect("fact of the load");
    assert!(neighbour.contains(" exits, "), "{neighbour}");
}

/// Does `work` while every CPU of this host is busy.
fn while_busy<T>(work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let burn = || {
        while !over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        (0..cpus).for_each(|_| drop(scope.spawn(burn)));
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// Without `libtrapline_steady.so` a few of these sleeps end late by the instructions between timer
/// and halt.
#[test]
#[ignore = "slow: make test-all"]
fn sleeps_are_reproducible_on_a_loaded_host() {
    if !has_qemu("a machine that sleeps often") {
        return;
    }
    let place = Place::new();
    let words = "--env sim --timer own --samples 300000 --format json";
    let result = while_busy(|| irq(&place, words));
    assert_eq!(result.status, Some(0), "{result:?}");
    let summary = &result.json()["interrupts"][0]["summary"];
    assert_eq!(summary["min"], summary["max"], "{summary}");
}

/// Returns the lateness of each of the latest interrupts, with its time stamps.
fn latest(interrupts: &Value) -> Vec<(f64, Vec<Option<f64>>)> {
    let latest = interrupts["latest"].as_array().expect("list").iter();
    let points = ["woke", "marked", "entered", "done", "resumed"];
    let way = latest.map(|late| {
        let at = points.map(|point| late[point].as_f64()).into();
        (late["lateness"].as_f64().expect("number"), at)
    });
    way.collect()
}

/// Stages of a guest timer on the simulated machine add up for each interrupt. Tracing does not change
/// latencies: they are the same without the plugin, and the report lists the missing stages.
#[expect(clippy::too_many_lines, reason = "one run serves all checks")]
#[test]
fn every_stage_of_a_guest_timer_is_traced() {
    let feature = "interrupts that are followed";
    if !has_qemu(feature) || !has("sim/kvm", feature) {
        return;
    }
    let (place, blind) = (Place::new(), Place::new());
    blind.replace("libtrapline_profile.so", b"no library");
    let words = "--env sim,sim/linux,sim/kvm --timer own --samples 100 --period 1ms --format json";
    let json = |place: &Place| irq(place, words).json();
    let (seen, unseen) = (json(&place), json(&blind));
    let of = |json: &Value| json["interrupts"].as_array().expect("list").clone();
    assert_eq!((of(&seen).len(), of(&unseen).len()), (3, 3), "{seen:#}");
    for (seen, unseen) in of(&seen).iter().zip(of(&unseen)) {
        let environment = seen["environment"].as_str().expect("name");
        assert_eq!(seen["summary"], unseen["summary"], "{environment}");
        assert_eq!(seen["histogram"], unseen["histogram"], "{environment}");
        assert_eq!(unseen["unstamped"], serde_json::json!(["woke", "marked"]));
        if ["sim", "sim/linux"].contains(&environment) {
            assert_eq!(seen["unstamped"], unseen["unstamped"]);
            continue;
        }
        assert_eq!(seen["unstamped"], serde_json::json!([]), "{environment}");
        assert_eq!(seen["disordered"], 0, "{environment}");
        assert_eq!(seen["unexplained"], 0.0, "{environment}");
        for (lateness, points) in latest(seen) {
            let points: Option<Vec<f64>> = points.into_iter().collect();
            let points = points.expect("all time stamps");
            assert!(points.is_sorted(), "{environment}: {points:?}");
            assert_eq!(points[2], lateness, "{environment}: {points:?}");
        }
    }
    let fact = |json: &Value, name: &str| facts(json, "sim/kvm")[name].clone();
    assert_eq!(fact(&seen, "irq-stages"), "counted");
    let entered = fact(&seen, "irq-guest-entered");
    let entered: u64 = entered.as_str().expect("fact").parse().expect("number");
    // Instructions of the handler in vectors.s up to its clock read.
    assert_eq!(entered, 5);
    // KVM's timer expires before that of its guest.
    let ahead = of(&seen)[2]["ahead"].as_u64();
    assert_eq!(ahead, of(&seen)[2]["summary"]["count"].as_u64());
    let why = facts(&unseen, "sim/kvm")["irq-stages"].clone();
    assert!(
        why.as_str().is_some_and(|why| why.contains("plugin")),
        "{why}"
    );
    let other = "--env sim/kvm --samples 50 --period 1ms --load cpu --format json";
    for interrupts in of(&irq(&place, other).json()) {
        assert_eq!(
            interrupts["unstamped"],
            serde_json::json!([]),
            "{interrupts:#}"
        );
        assert_eq!(interrupts["disordered"], 0, "{interrupts:#}");
    }
    let plain = irq(
        &blind,
        "--env sim/kvm --timer own --samples 10 --period 1ms",
    );
    let text: Vec<&str> = plain.stdout.split_whitespace().collect();
    assert!(
        text.join(" ")
            .contains("woke and marked not stamped: sim/kvm own (QEMU "),
        "{}",
        plain.stdout
    );
    for line in plain.stdout.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
}

/// The serial device has a thread, so a flooding guest is interrupted at most 10% later than an idle one.
#[test]
fn buffered_console_does_not_delay_interrupts() {
    if !has("sim/kvm", "a console that floods") {
        return;
    }
    let place = Place::new();
    let p90 = |load: &str| {
        let words = "--env sim/kvm --timer own --samples 200 --period 1ms --format json";
        let result = irq(&place, &format!("{words} --load {load}"));
        assert_eq!(result.status, Some(0), "{result:?}");
        let json = result.json();
        let p90 = json["interrupts"][0]["summary"]["p90"].as_f64();
        p90.expect("200 expiries have one")
    };
    let (quiet, flooded) = (p90("none"), p90("console-buffered"));
    assert!(flooded <= 1.1 * quiet, "{flooded} instead of {quiet}");
}
