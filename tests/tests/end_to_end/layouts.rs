//! Several layouts of the simulated machine's memory, and its mitigations.

use serde_json::Value;
use trapline_tests::measurements::{cell, estimate};
use trapline_tests::run::{has, Place};

const OPERATIONS: &str = "exits/port-out,exits/cpuid,basic/first-touch-4k";

#[test]
#[ignore = "slow: boots two more machines; make test-all"]
fn figures_of_several_layouts_are_measured_and_compared() {
    let place = Place::new();
    if !has("sim/kvm", "layouts") {
        return;
    }
    let words = ["--layouts", "2", "--workload", OPERATIONS];
    let run = place.measure(&[&["--env", "sim,sim/kvm"][..], &words].concat());
    for operation in ["port-out", "cpuid"] {
        let measured = cell(&run, "sim/kvm", operation);
        assert_eq!(measured["layouts"], 2, "{measured:#}");
        for end in ["layouts_min", "layouts_max"] {
            assert_eq!(measured[end], measured["estimate"], "{measured:#}");
        }
    }
    let touch = cell(&run, "sim/kvm", "first-touch-4k");
    let [min, max] = ["layouts_min", "layouts_max"].map(|end| touch[end].as_f64());
    assert!(min <= max && max < min.map(|min| min * 1.01), "{touch:#}");
    // The image without a system has one layout.
    assert!(cell(&run, "sim", "port-out")["layouts"].is_null());

    let made = place.run(&[&["baseline", "-q", "--env", "sim/kvm"][..], &words].concat());
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let file = place.path().join("baseline.json");
    // One instruction less in every layout. All else is as it was.
    let mut earlier: Value = serde_json::from_str(&made.stdout).expect("JSON");
    for layout in ["sim/kvm", "sim/kvm:layout=1"] {
        let figures = &mut earlier["environments"][layout]["figures"]["insn"];
        let figure = &mut figures["exits/port-out"];
        *figure = (figure.as_f64().expect("a figure") - 1.0).into();
    }
    std::fs::write(&file, earlier.to_string()).expect("write succeeds");
    let file = file.to_str().expect("path is UTF-8");
    let changed = place.run(&["check", "-q", "--baseline", file, "--format", "json"]);
    assert_eq!(changed.status, Some(1), "{changed:?}");
    let json = changed.json();
    let figures = json["figures"].as_array().expect("list").iter();
    let changed: Vec<_> = figures.filter(|it| it["verdict"] == "changed").collect();
    assert_eq!(changed.len(), 2, "{json:#}");
    assert!(
        changed.iter().all(|it| it["operation"] == "exits/port-out"),
        "{json:#}"
    );
}

#[test]
#[ignore = "slow: boots a machine once more; make test-all"]
fn exits_cost_less_without_mitigations() {
    let place = Place::new();
    if !has("sim/kvm", "mitigations") {
        return;
    }
    let measured = |words: &[&str]| {
        let all = [&["--env", "sim/kvm", "--workload", "exits/port-out"], words];
        estimate(&place.measure(&all.concat()), "sim/kvm", "port-out")
    };
    let (with, without) = (measured(&[]), measured(&["--mitigations", "off"]));
    assert!(
        (0.9 * with..0.99 * with).contains(&without),
        "{with}, {without} without"
    );
}
