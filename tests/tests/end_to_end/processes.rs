//! What processes cost, as people measure it: on this host, exact where instructions are
//! counted, explained to the instruction, and with a reason where there are none.

use serde_json::Value;
use trapline_tests::run::Place;
use trapline_tests::{has_qemu, skip};

/// The cell of an operation.
fn cell<'a>(told: &'a Value, environment: &str, operation: &str) -> &'a Value {
    let cells = told["cells"].as_array().expect("a list");
    let its = |cell: &&Value| cell["environment"] == environment && cell["operation"] == operation;
    let found = cells.iter().find(its);
    found.unwrap_or_else(|| panic!("no {operation} in {environment}: {told:#}"))
}

const OPERATIONS: [&str; 7] = [
    "fork",
    "exec",
    "page-fault",
    "page-fault-cow",
    "context-switch",
    "pipe",
    "mmap",
];

/// What holds wherever there is a Linux: of the least that each takes, which a busy host
/// changes least.
fn check_order(told: &Value, environment: &str) {
    let of = |operation| {
        let least = cell(told, environment, operation)["min"].as_f64();
        least.unwrap_or_else(|| panic!("{operation} in {environment} was not measured: {told:#}"))
    };
    assert!(OPERATIONS.into_iter().all(|op| of(op) > 0.0));
    assert!(of("exec") > of("fork"), "an exec is a fork and more");
    assert!(of("fork") > 10.0 * of("pipe"), "{told:#}");
    // A copy is more than a page that is there.
    assert!(of("page-fault-cow") > of("page-fault"), "{told:#}");
    // A write, a read, and a switch are more than a write and a read.
    assert!(of("context-switch") > of("pipe"), "{told:#}");
}

#[test]
fn process_operations_are_measured_on_the_host() {
    let told = Place::new().measure(&["--env", "host", "--workload", "system", "--boots", "2"]);
    check_order(&told, "host");
    assert_eq!(cell(&told, "host", "fork")["ratio"], 1.0);
}

#[test]
fn process_operations_are_exact_or_skipped() {
    let what = "processes on the instruction clock";
    if !has_qemu(what) {
        return;
    }
    let words = [
        "--env",
        "sim,sim/linux",
        "--workload",
        "system,basic/getpid",
    ];
    let told = Place::new().measure(&words);
    if let Some(reason) = cell(&told, "sim/linux", "fork")["skip"].as_str() {
        return skip(what, reason);
    }
    check_order(&told, "sim/linux");
    for operation in OPERATIONS {
        let measured = cell(&told, "sim/linux", operation);
        assert_eq!(measured["flags"], serde_json::json!([]), "{measured:#}");
        assert_eq!(measured["boots"], 2, "two runs, the same digits");
        let skip = cell(&told, "sim", operation)["skip"].as_str().unwrap();
        assert!(skip.contains("operating system"), "{skip}");
    }
}

#[test]
fn profile_of_a_fork_includes_the_child() {
    let what = "a fork's profile";
    if !has_qemu(what) {
        return;
    }
    let place = Place::new();
    let ended = place.run(&["explain", "sim/linux", "system/fork", "--format", "json"]);
    if ended.status != Some(0) && ended.errors.contains("sim/linux:") {
        return skip(what, &ended.errors);
    }
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told: Value = serde_json::from_str(&ended.output).expect("it is JSON");
    assert_eq!(told["residual"], 0, "nothing is left unexplained");
    let functions = told["functions"].as_array().expect("a list");
    let insn = |name: &str| -> f64 {
        let its = functions.iter().filter(|f| f["function"] == name);
        its.filter_map(|f| f["insn"].as_f64()).sum()
    };
    let sum: f64 = functions.iter().filter_map(|f| f["insn"].as_f64()).sum();
    assert!((sum - told["total"].as_f64().unwrap()).abs() < 0.01);
    // The parent's part, and the child's.
    assert!(insn("copy_page_range") > 0.0 && insn("do_exit") > 0.0);
}
