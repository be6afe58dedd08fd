//! `trapline irq` as people use it: real timers, real interrupts, a verdict that ends
//! the command, and the same tables again from the store.

use serde_json::Value;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use trapline_tests::has_qemu;
use trapline_tests::run::{Ended, Place};

fn irq(place: &Place, words: &str) -> Ended {
    place.run_storing("irq", words)
}

#[test]
fn invalid_options_are_rejected() {
    let place = Place::new();
    for (words, told) in [
        ("--period 1us", "from 100us to 1s"),
        ("--threshold 2000insn", "an instruction is 1 ns"),
        ("--require 99", "99.99%"),
        ("--samples 0", "--samples"),
        (
            "--idle poll --load console-direct",
            "--idle is not supported by console loads",
        ),
        ("--load disk", "there is no load 'disk'"),
        ("--load cpu,cpu:2", "named twice"),
        ("--sched deadline:11ms/10ms", "from 1024ns to its period"),
        ("--sched credit3", "or credit or credit2 of Xen"),
        (
            "--sched deadline:3ms/10ms --pin shared",
            "not supported by pinned threads",
        ),
        ("--vcpus-per-cpu 2 --pin free", "must be pinned to one CPU"),
        (
            "--env sim,sim/xen-pvh --sched fifo",
            "--sched fifo:10 is not supported by sim, sim/xen-pvh",
        ),
        ("--env kvm --sched credit", "choose from sim/xen-pvh"),
        ("--env sim/kmv", "did you mean 'sim/kvm'?"),
    ] {
        let ended = irq(&place, words);
        assert_eq!(
            (ended.status, ended.output.as_str()),
            (Some(2), ""),
            "{words}"
        );
        assert!(ended.errors.starts_with("error: "), "{}", ended.errors);
        let whole = ended.errors.replace("\n  help", "");
        assert!(whole.contains(told), "{words}: {}", ended.errors);
    }
}

#[test]
fn scheduling_options_belong_to_irq() {
    let place = Place::new();
    for command in ["run", "list"] {
        let words = [command, "--sched", "fifo"];
        let ended = place.run(&words);
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.errors.contains("use 'trapline irq'"), "{ended:?}");
    }
}

#[test]
fn help_fits_80_columns_and_lists_exit_statuses() {
    let help = Place::new().run(&["irq", "--help"]);
    assert_eq!(help.status, Some(0), "{}", help.errors);
    for line in help.output.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
    for status in ["4  with --require", "5  with --require"] {
        assert!(help.output.contains(status), "{}", help.output);
    }
}

/// On the bare simulated machine every interrupt is exact, and the timer needs nobody.
#[test]
fn verdict_sets_the_exit_status_and_is_stored() {
    if !has_qemu("interrupts on the simulated machine") {
        return;
    }
    let place = Place::new();
    let usual = "--env sim --timer own --samples 2100 --period 1ms --require 100%";
    let met = irq(&place, &format!("{usual} --format json"));
    assert_eq!(met.status, Some(0), "{met:?}");
    let told = met.json();
    let own = &told["interrupts"][0];
    assert_eq!(own["summary"]["expiries"], 2100, "{own:#}");
    assert_eq!(own["summary"]["in_time"], 2100, "{own:#}");
    assert_eq!(own["windows"].as_array().map(Vec::len), Some(3));
    assert_eq!(own["period"], 1_000_000.0);
    assert_eq!(
        (&own["met"], own["boots"].as_u64()),
        (&true.into(), Some(2))
    );
    assert_eq!(own["verdict"], "met");
    assert_eq!(own["in_time_interval"], Value::Null);
    assert_eq!(told["cells"][0]["p99"], own["summary"]["p99"]);
    assert_eq!(told["facts"]["irq-period"], "1ms");
    let missed = irq(&place, &format!("{usual} --threshold 1ns"));
    assert_eq!(missed.status, Some(1), "{missed:?}");
    assert!(
        missed.output.contains("not met, 0 of 2,100"),
        "{}",
        missed.output
    );
    for line in missed.output.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
    let store = place.store();
    let store = store.to_str().expect("the path is text");
    let shown = place.run(&["show", "--store", store]);
    assert_eq!((shown.status, shown.output), (Some(0), missed.output));
    let first = place.run(&["show", "--store", store, "--run", "1", "--format", "json"]);
    assert_eq!(first.output, met.output);
}

/// Its handler reads the clock and nothing else: what takes as few instructions, and as
/// many each time, computes and prints nothing.
#[test]
fn handler_only_reads_the_clock() {
    if !has_qemu("the handler of the simulated machine") {
        return;
    }
    let words = "--env sim --timer own --samples 1100 --period 1ms --format json";
    let ended = irq(&Place::new(), words);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told = ended.json();
    let stages = told["interrupts"][0]["stages"].as_array().expect("a list");
    let of_handler = stages.iter().find(|span| span["to"] == "done");
    let of_handler = of_handler.expect("the handler's stage");
    assert_eq!(of_handler["from"], "entered");
    assert_eq!(of_handler["p50"], of_handler["max"], "{of_handler}");
    assert!(of_handler["max"].as_f64() < Some(30.0), "{of_handler}");
}

/// Two virtual CPUs that never rest share a CPU: none has more than its half.
#[test]
fn busy_co_tenant_delays_interrupts() {
    if !has_qemu("a second guest on the simulated machine") {
        return;
    }
    let place = Place::new();
    let of = |words: &str| {
        let usual = "--env sim/kvm --timer own --samples 300 --period 1ms --format json";
        let ended = irq(&place, &format!("{usual} {words}"));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        ended.json()
    };
    let alone = of("--idle halt-in-guest");
    let of_vmm = |told: &Value| {
        let cpu = &facts(told, "sim/kvm")["irq-vmm-cpu-us"];
        cpu.as_str().and_then(|us| us.parse::<f64>().ok())
    };
    let Some(busy) = of_vmm(&alone) else {
        eprintln!("skipped: sim/kvm is not ready; trapline doctor says why");
        return;
    };
    let halted = of("--idle halt");
    // 300 ms of which a guest that halts without leaving has all.
    assert!(busy > 290e3, "{busy}");
    assert!(of_vmm(&halted) < Some(busy / 10.0), "{halted:#}");
    let late = |told: &Value| told["interrupts"][0]["summary"]["p90"].as_f64();
    assert!(late(&alone) < late(&halted), "nobody has to be woken");
    assert_eq!(alone["interrupts"][0]["between"], "halt-in-guest");
    let shared = of("--idle halt-in-guest --vcpus-per-cpu 2");
    let both = &shared["interrupts"][0];
    assert_eq!(both["vcpus_per_cpu"], 2);
    let missed = both["summary"]["missed"].as_u64();
    assert!(missed > Some(50), "{both:#}");
    let neighbour = &facts(&shared, "sim/kvm")["load-0-neighbour"];
    let neighbour = neighbour.as_str().expect("what it did");
    assert!(neighbour.contains(" exits, "), "{neighbour}");
}

/// The same timer in a second process, on this host.
#[test]
fn co_tenant_on_the_host_reports_its_work() {
    let place = Place::new();
    let words = "--env host --timer own --samples 600 --period 1ms --vcpus-per-cpu 2";
    let ended = irq(&place, &format!("{words} --format json"));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told = ended.json();
    let facts = facts(&told, "host");
    let did = facts["load-0-neighbour"].as_str().expect("what it did");
    assert!(did.contains(" bytes of samples, "), "{did}");
    for name in ["irq-steal-ms", "irq-clocks-apart-us"] {
        let told = facts[name]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok());
        assert!(told.is_some(), "{name}: {facts}");
    }
}

/// Noise decides how late they are, but not how many there are or whether they add up.
#[test]
fn host_expiries_and_stages_add_up() {
    let place = Place::new();
    let ended = irq(
        &place,
        "--env host --samples 600 --period 1ms --format json",
    );
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told = ended.json();
    let all = told["interrupts"].as_array().expect("a list");
    assert!(!all.is_empty(), "{told:#}");
    for interrupts in all {
        let of = |key: &str| interrupts["summary"][key].as_u64().expect("a number");
        assert_eq!(of("expiries"), 600);
        assert_eq!(of("count") + of("missed"), 600);
        assert_eq!(of("in_time") + of("above"), of("count"));
        assert!(of("count") > 100, "{interrupts:#}");
        assert!(
            interrupts["unexplained"].as_f64() < Some(0.01),
            "{interrupts:#}"
        );
        let histogram = interrupts["histogram"].as_array().expect("a list");
        let counts = histogram.iter().filter_map(|bucket| bucket[2].as_u64());
        assert_eq!(counts.sum::<u64>(), of("count"));
        let period = interrupts["period"].as_f64().expect("a number");
        assert!((period - 1e6).abs() < 1.0, "{period}");
    }
}

/// Not even a window: late expiries may come in bursts that are longer.
#[test]
fn short_run_on_the_wall_clock_proves_no_requirement() {
    let place = Place::new();
    let usual = "--env host --timer own --samples 600 --period 1ms --threshold 1s";
    let ended = irq(&place, &format!("{usual} --require 50% --format json"));
    assert_eq!(ended.status, Some(5), "{ended:?}");
    let told = ended.json();
    let own = &told["interrupts"][0];
    assert_eq!(own["verdict"], "not-proven", "{own:#}");
    assert_eq!(own["met"], false);
    assert!(own["windows_to_prove"].as_u64() > Some(1), "{own:#}");
    let store = place.store();
    let store = store.to_str().expect("the path is text");
    let shown = place.run(&["show", "--store", store]).output;
    let words: Vec<_> = shown.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("host own: not proven, "), "{shown}");
    assert!(words.contains("prove it: --samples "), "{shown}");
}

#[test]
fn unmeasurable_environment_has_no_verdict() {
    let place = Place::new();
    let words = "--env custom --samples 10 --period 1ms --require 1%";
    let ended = irq(&place, words);
    assert_eq!(ended.status, Some(4), "{ended:?}");
    assert!(ended.output.contains("Not measured"), "{}", ended.output);
}

/// The default selection does not depend on other workloads.
#[test]
fn default_run_excludes_irq_and_populate() {
    let place = Place::new();
    let told = place.measure(&["--env", "custom"]);
    let cells = told["cells"].as_array().expect("a list");
    assert!(!cells.is_empty());
    assert!(
        cells
            .iter()
            .all(|cell| cell["workload"] != "irq" && cell["workload"] != "populate"),
        "{cells:?}"
    );
    let asked = place.measure(&["--env", "custom", "--workload", "irq"]);
    let cells = asked["cells"].as_array().expect("a list");
    assert!(
        cells.iter().all(|cell| cell["workload"] == "irq"),
        "{cells:?}"
    );
}

/// Facts of an environment, by their names.
fn facts(told: &Value, environment: &str) -> Value {
    told["environments"][environment]["facts"].clone()
}

#[test]
fn loads_report_their_work_and_are_stored() {
    let place = Place::new();
    let words = "--env host --timer own --samples 300 --period 1ms --load cpu,memory";
    let ended = irq(&place, &format!("{words} --format json"));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told = ended.json();
    assert_eq!(told["facts"]["irq-load"], "cpu,memory");
    assert_eq!(told["facts"]["irq-pin"], "shared");
    assert_eq!(told["interrupts"][0]["load"], "cpu,memory");
    let facts = facts(&told, "host");
    for load in ["load-0-cpu", "load-1-memory"] {
        let did = facts[load].as_str().expect("a fact");
        assert!(did.contains(" ms of CPU time"), "{did}");
    }
    let shown = place.run(&["show", "--store", place.store().to_str().expect("text")]);
    assert!(shown
        .output
        .contains("load cpu,memory, guest and loads on one CPU"));
    assert!(shown.output.contains("host: cpu "), "{}", shown.output);
}

/// The bare machine runs the image and nobody else.
#[test]
fn unsupported_conditions_are_skipped_with_a_reason() {
    if !has_qemu("conditions that cannot be had") {
        return;
    }
    let place = Place::new();
    for (words, reason) in [
        ("--env sim --load cpu", "nobody else to run"),
        (
            "--env sim,host --sched fifo",
            "--sched fifo:10 is not supported by sim",
        ),
        (
            "--env sim --idle halt-in-guest",
            "--idle halt-in-guest is not supported by sim",
        ),
        (
            "--env sim/linux --vcpus-per-cpu 2",
            "--vcpus-per-cpu is not supported by sim/linux",
        ),
        ("--env sim/linux --pin exclusive", "has one CPU"),
        ("--env sim/linux --load exits", "measure sim/kvm"),
    ] {
        let ended = irq(&place, &format!("{words} --samples 10 --period 1ms"));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let text: Vec<&str> = ended.output.split_whitespace().collect();
        assert!(text.join(" ").contains(reason), "{words}: {}", ended.output);
    }
}

/// A lab that is killed leaves nothing behind.
#[test]
fn loads_end_with_trapline() {
    let place = Place::new();
    let store = place.store();
    let words = "irq --env host --timer own --samples 10000 --period 10ms --load cpu:2 --store";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.push(store.to_str().expect("the path is text"));
    let mut lab = place.trapline(&words);
    let lab = lab.stdout(Stdio::null()).stderr(Stdio::null());
    let mut lab = lab.spawn().expect("trapline can be started");
    let family = || children_of(lab.id());
    let begun = std::time::Instant::now();
    while family().len() < 3 {
        assert!(
            begun.elapsed().as_secs() < 60,
            "two burners and a guest: {:?}",
            family()
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let orphans = family();
    lab.kill().expect("it runs");
    lab.wait().expect("it is ours");
    let begun = std::time::Instant::now();
    while orphans.iter().any(|pid| is_alive(pid.as_str())) {
        assert!(
            begun.elapsed().as_secs() < 10,
            "{orphans:?} are still there"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn children_of(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let children =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let all = children.iter().flat_map(|list| list.split_whitespace());
    all.map(str::to_owned).collect()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with('Z'));
    state == Some(false)
}

/// Does `work` while every CPU of this host has something better to do.
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

/// The guest sets its timer and sleeps at once. Without what keeps the clock steady, a
/// few of so many come late by the instructions in between, in one boot or the other.
#[test]
#[ignore = "slow: make test-all"]
fn sleeps_are_reproducible_on_a_loaded_host() {
    if !has_qemu("a machine that sleeps often") {
        return;
    }
    let place = Place::new();
    let words = "--env sim --timer own --samples 300000 --format json";
    let ended = while_busy(|| irq(&place, words));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let summary = &ended.json()["interrupts"][0]["summary"];
    assert_eq!(summary["min"], summary["max"], "{summary}");
}

/// Returns the lateness of each of the latest interrupts, with its time stamps.
fn latest(interrupts: &Value) -> Vec<(f64, Vec<Option<f64>>)> {
    let latest = interrupts["latest"].as_array().expect("a list").iter();
    let points = ["woke", "marked", "entered", "done", "resumed"];
    let way = latest.map(|late| {
        let at = points.map(|point| late[point].as_f64()).into();
        (late["lateness"].as_f64().expect("a number"), at)
    });
    way.collect()
}

/// Where a guest's own timer is raised on the simulated machine, every stage is told, and
/// they add up for each interrupt. Nobody who follows them makes them later: without the
/// plugin they are as late, and the report says what is missing.
#[test]
fn every_stage_of_a_guest_timer_is_traced() {
    if !has_qemu("interrupts that are followed") {
        return;
    }
    let (place, blind) = (Place::new(), Place::new());
    blind.replace("libtrapline_profile.so", b"no library");
    let words = "--env sim,sim/linux,sim/kvm --timer own --samples 300 --period 1ms --format json";
    let told = |place: &Place| irq(place, words).json();
    let (seen, again, unseen) = (told(&place), told(&place), told(&blind));
    assert_eq!(seen["interrupts"], again["interrupts"]);
    let of = |told: &Value| told["interrupts"].as_array().expect("a list").clone();
    for (seen, unseen) in of(&seen).iter().zip(of(&unseen)) {
        let environment = seen["environment"].as_str().expect("a name");
        assert_eq!(seen["summary"], unseen["summary"], "{environment}");
        assert_eq!(seen["histogram"], unseen["histogram"], "{environment}");
        assert_eq!(unseen["untold"], serde_json::json!(["woke", "marked"]));
        if ["sim", "sim/linux"].contains(&environment) {
            assert_eq!(seen["untold"], unseen["untold"]);
            continue;
        }
        assert_eq!(seen["untold"], serde_json::json!([]), "{environment}");
        assert_eq!(seen["disordered"], 0, "{environment}");
        assert_eq!(seen["unexplained"], 0.0, "{environment}");
        for (lateness, points) in latest(seen) {
            let points: Option<Vec<f64>> = points.into_iter().collect();
            let points = points.expect("all points");
            assert!(points.is_sorted(), "{environment}: {points:?}");
            assert_eq!(points[2], lateness, "{environment}: {points:?}");
        }
    }
    let fact = |told: &Value, name: &str| facts(told, "sim/kvm")[name].clone();
    if of(&seen).len() == 3 {
        assert_eq!(fact(&seen, "irq-stages"), "counted");
        let entered = fact(&seen, "irq-guest-entered");
        let entered: u64 = entered.as_str().expect("a fact").parse().expect("a number");
        // As many as the handler in vectors.s has until it reads the clock.
        assert_eq!(entered, 5);
        // KVM lets its own timer expire before that of its guest.
        let ahead = of(&seen)[2]["ahead"].as_u64();
        assert_eq!(ahead, of(&seen)[2]["summary"]["count"].as_u64());
    }
    let why = facts(&unseen, "sim/kvm")["irq-stages"].clone();
    assert!(
        why.as_str().is_some_and(|why| why.contains("plugin")),
        "{why}"
    );
    let other = "--env sim/kvm --samples 100 --period 1ms --load cpu --format json";
    for interrupts in of(&irq(&place, other).json()) {
        assert_eq!(
            interrupts["untold"],
            serde_json::json!([]),
            "{interrupts:#}"
        );
        assert_eq!(interrupts["disordered"], 0, "{interrupts:#}");
    }
    let plain = irq(
        &blind,
        "--env sim/kvm --timer own --samples 10 --period 1ms",
    );
    let text: Vec<&str> = plain.output.split_whitespace().collect();
    assert!(
        text.join(" ")
            .contains("woke and marked not stamped: sim/kvm own (QEMU "),
        "{}",
        plain.output
    );
    for line in plain.output.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
}

/// The serial line has a thread of its own for this: a guest that
/// floods it is not interrupted later than one that rests, by 10% at most.
#[test]
fn buffered_console_does_not_delay_interrupts() {
    if !has_qemu("a console that floods") {
        return;
    }
    let place = Place::new();
    let p99 = |load: &str| {
        let words = "--env sim/kvm --timer own --samples 400 --period 1ms --format json";
        let ended = irq(&place, &format!("{words} --load {load}"));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let told = ended.json();
        told["interrupts"][0]["summary"]["p99"].as_f64()
    };
    let Some(quiet) = p99("none") else {
        eprintln!("skipped: sim/kvm is not ready; trapline doctor says why");
        return;
    };
    let flooded = p99("console-buffered");
    assert!(
        flooded <= Some(1.1 * quiet),
        "{flooded:?} instead of {quiet}"
    );
    assert!(flooded.is_some());
}
