//! A Linux in a virtual machine of ours, as people measure in it: a distribution's kernel
//! gets to our init on KVM on the simulated machine, measures, and is the same twice.

use serde_json::Value;
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, skip};

const WHAT: &str = "a Linux guest of our VMM";

#[test]
fn a_distributions_kernel_measures_in_our_vmm_and_is_the_same_twice() {
    if !has_qemu(WHAT) {
        return;
    }
    let place = Place::new();
    let store = place.store();
    let store = store.to_str().expect("the path is text");
    let ended = place.run(&[
        "run",
        "--env",
        "sim/kvm/linux",
        "--workload",
        "basic/getpid,boot",
        "--store",
        store,
        "--format",
        "json",
    ]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told: Value = serde_json::from_str(&ended.output).expect("it is JSON");
    let cells = told["cells"].as_array().expect("there are cells");
    let cell = |operation: &str| {
        let mut cells = cells.iter();
        cells.find(|cell| cell["operation"] == operation).unwrap()
    };
    if let Some(reason) = cell("getpid")["skip"].as_str() {
        return skip(WHAT, reason);
    }
    let getpid = cell("getpid")["estimate"].as_f64().unwrap();
    assert!(
        (200.0..2_000.0).contains(&getpid),
        "a system call: {getpid}"
    );
    let (main, exit) = (cell("main"), cell("exit"));
    let (main, exit) = (&main["estimate"], &exit["estimate"]);
    assert!(main.as_f64() > Some(1e8) && exit.as_f64() > main.as_f64());
    assert!(cell("first-instruction")["skip"].is_string());
}
