//! `trapline irq` as people use it: real timers, real interrupts, a verdict that ends
//! the command, and the same tables again from the store.

use serde_json::Value;
use trapline_tests::has_qemu;
use trapline_tests::run::{Ended, Place};

fn irq(place: &Place, words: &str) -> Ended {
    let store = place.store();
    let store = store.to_str().expect("the path is text");
    let mut all = vec!["irq", "--store", store];
    all.extend(words.split(' '));
    place.run(&all)
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let place = Place::new();
    for (words, told) in [
        ("--period 1us", "from 100us to 1s"),
        ("--threshold 2000insn", "an instruction is 1 ns"),
        ("--require 99", "99.99%"),
        ("--samples 0", "--samples"),
        ("--idle poll --load console", "neither halts nor polls"),
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
fn help_fits_a_terminal_and_tells_how_it_ends() {
    let help = Place::new().run(&["irq", "--help"]);
    assert_eq!(help.status, Some(0), "{}", help.errors);
    for line in help.output.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
    assert!(help.output.contains("4  --require"), "{}", help.output);
}

/// On the bare simulated machine every interrupt is exact, and the timer needs nobody.
#[test]
fn a_verdict_ends_the_command_and_the_store_has_all_of_it() {
    if !has_qemu("interrupts on the simulated machine") {
        return;
    }
    let place = Place::new();
    let usual = "--env sim --timer own --samples 2100 --period 1ms --require 100%";
    let met = irq(&place, &format!("{usual} --format json"));
    assert_eq!(met.status, Some(0), "{met:?}");
    let told = json(&met);
    let own = &told["interrupts"][0];
    assert_eq!(own["summary"]["expiries"], 2100, "{own:#}");
    assert_eq!(own["summary"]["in_time"], 2100, "{own:#}");
    assert_eq!(own["windows"].as_array().map(Vec::len), Some(3));
    assert_eq!(own["period"], 1_000_000.0);
    assert_eq!(
        (&own["met"], own["boots"].as_u64()),
        (&true.into(), Some(2))
    );
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

/// Noise decides how late they are, but not how many there are or whether they add up.
#[test]
fn on_the_host_every_expiry_is_accounted_for_and_stages_add_up() {
    let place = Place::new();
    let ended = irq(
        &place,
        "--env host --samples 600 --period 1ms --format json",
    );
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told = json(&ended);
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

#[test]
fn where_nothing_can_be_measured_there_is_no_verdict() {
    let place = Place::new();
    let words = "--env custom --samples 10 --period 1ms --require 1%";
    let ended = irq(&place, words);
    assert_eq!(ended.status, Some(4), "{ended:?}");
    assert!(ended.output.contains("Not measured"), "{}", ended.output);
}

/// What a plain run measures does not change with what there is besides.
#[test]
fn a_plain_run_leaves_interrupts_out() {
    let place = Place::new();
    let told = place.measure(&["--env", "custom"]);
    let cells = told["cells"].as_array().expect("a list");
    assert!(!cells.is_empty());
    assert!(
        cells.iter().all(|cell| cell["workload"] != "irq"),
        "{cells:?}"
    );
    let asked = place.measure(&["--env", "custom", "--workload", "irq"]);
    let cells = asked["cells"].as_array().expect("a list");
    assert!(
        cells.iter().all(|cell| cell["workload"] == "irq"),
        "{cells:?}"
    );
}
