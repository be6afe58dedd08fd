//! The conformance suite: its guests leave the same trace of exits on `/dev/kvm` of this host and of the
//! simulated machine, and on NOVA.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use trapline_environments::run_nova_conformance;
use trapline_environments::sim::programs::{self, Output, Program};
use trapline_environments::Limits;
use trapline_interface::conformance::PARTS;
use trapline_model::EnvironmentId;
use trapline_tests::run::{has, Place};
use trapline_tests::{has_kvm, has_qemu, parts, settings, skip};

const PROGRAM: &str = "trapline-conformance";

/// Runs the suite in Linux on the simulated machine, once with each list of arguments.
fn simulate(arguments: &[&[&str]]) -> Vec<Output> {
    let program = |arguments: &&[&str]| Program {
        file: parts().join(PROGRAM),
        arguments: arguments.iter().map(|word| (*word).into()).collect(),
    };
    let programs: Vec<_> = arguments.iter().map(program).collect();
    let watch = Limits::timeout(Duration::from_secs(600));
    let ran = programs::run(&settings(), &programs, &watch);
    ran.unwrap_or_else(|error| panic!("{error}")).0
}

/// Returns the output of the suite on the simulated machine: with KVM's interrupt controller, and with one in the VMM.
fn simulated() -> &'static [Output] {
    static OUTPUTS: OnceLock<Vec<Output>> = OnceLock::new();
    OUTPUTS.get_or_init(|| simulate(&[&[], &["kvm-user-apic"]]))
}

/// Returns the output of each part of the suite. The first line lists capabilities of the kernel.
fn parts_of(output: &[u8]) -> BTreeMap<String, Vec<String>> {
    let text = String::from_utf8_lossy(output).into_owned();
    let mut parts = BTreeMap::new();
    let mut part = String::new();
    for line in text.lines().skip(1) {
        match line.strip_prefix("  ") {
            None => part = line.to_owned(),
            Some(exit) => parts
                .entry(part.clone())
                .or_insert_with(Vec::new)
                .push(exit.to_owned()),
        }
    }
    parts
}

/// Returns the skipped parts, with reasons.
fn skipped(output: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(output).into_owned();
    let split = |line: &str| {
        line.split_once(": skipped: ")
            .map(|(a, b)| (a.into(), b.into()))
    };
    text.lines().filter_map(split).collect()
}

#[test]
fn simulated_machine_and_host_conform() {
    if !has_qemu("conformance on the simulated machine") {
        return;
    }
    let outputs = simulated();
    let [conformance, user_apic] = outputs else {
        panic!("two programs were to be run: {outputs:?}");
    };
    for output in outputs {
        let errors = String::from_utf8_lossy(&output.errors);
        assert!(output.status.success(), "{errors}");
    }
    // The simulated machine supports every part of the suite.
    assert_eq!(skipped(&conformance.console), []);
    let simulated = parts_of(&conformance.console);
    assert_eq!(simulated.len(), 8, "{simulated:?}");
    let left_out = skipped(&user_apic.console)
        .into_iter()
        .map(|(part, _)| part);
    let expected = ["halts in the guest", "interrupt delivery", "processors"];
    assert_eq!(left_out.collect::<Vec<_>>(), expected);
    for (part, trace) in parts_of(&user_apic.console) {
        assert_eq!(Some(&trace), simulated.get(&part), "{part}");
    }
    if !has_kvm("conformance on /dev/kvm of this host") {
        return;
    }
    let here = Command::new(parts().join(PROGRAM))
        .output()
        .expect("program starts");
    assert!(
        here.status.success(),
        "{}",
        String::from_utf8_lossy(&here.stderr)
    );
    for (part, why) in skipped(&here.stdout) {
        skip(&format!("conformance of this host, {part}"), &why);
    }
    for (part, trace) in parts_of(&here.stdout) {
        assert_eq!(Some(&trace), simulated.get(&part), "{part}");
    }
}

/// Part that interrupts a guest that has interrupts disabled. Bochs 2.7 delivers none then, although the exit for them
/// is enabled.
const UNSUPPORTED_BY_BOCHS: &str = "accesses";

/// Returns whether a part runs on the machine of `environment`.
fn is_supported(environment: EnvironmentId, part: &str) -> bool {
    environment != EnvironmentId::SIM_VMX_NOVA || part != UNSUPPORTED_BY_BOCHS
}

/// Returns the traces of the suite on NOVA.
fn on_nova(environment: EnvironmentId) -> BTreeMap<String, Vec<String>> {
    let limits = Limits::timeout(Duration::from_secs(120));
    let mut output = b"\n".to_vec();
    for part in PARTS
        .into_iter()
        .filter(|part| is_supported(environment, part))
    {
        let result = run_nova_conformance(environment, &settings(), part, &limits);
        let result = result.unwrap_or_else(|error| panic!("{environment}, {part}: {error}"));
        let messages = &result.messages;
        assert!(result.has_passed, "{environment}, {part}: {messages}");
        output.extend(result.trace.bytes());
    }
    let expected = [
        (
            "dirty tracking",
            "the kernel does not track a guest's writes",
        ),
        ("halts in the guest", "a guest cannot halt without leaving"),
        ("processors", "a machine has one vCPU"),
    ];
    let expected = expected.map(|(part, why)| (part.to_owned(), why.to_owned()));
    assert_eq!(skipped(&output), expected, "{environment}");
    parts_of(&output)
}

#[test]
fn nova_conforms() {
    let environments = [EnvironmentId::SIM_NOVA, EnvironmentId::SIM_VMX_NOVA];
    let available = environments
        .into_iter()
        .filter(|id| has(id.name(), "conformance"));
    let traces: Vec<_> = available.map(|id| (id, on_nova(id))).collect();
    if traces.is_empty() {
        return;
    }
    let on_kvm = parts_of(&simulated()[0].console);
    for (environment, on_nova) in traces {
        let parts = ["accesses", "memory", "interrupts", "interrupt delivery"];
        for part in parts.into_iter().filter(|it| is_supported(environment, it)) {
            let part = format!("{part}:");
            assert!(on_nova[&part].len() > 5, "{on_nova:?}");
            assert_eq!(on_nova[&part], on_kvm[&part], "{environment}, {part}");
        }
    }
}

#[test]
fn floor_is_measured_with_kvm() {
    if !has_qemu("the floor on the simulated machine") {
        return;
    }
    let result = Place::new().run(&["floor", "--format", "json"]);
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let json: serde_json::Value = serde_json::from_str(&result.stdout).expect("JSON");
    let floors = json["floors"].as_array().expect("list");
    for around in ["unfiltered", "filtered", "vmm"] {
        let fits = |f: &&serde_json::Value| f["environment"] == "sim/kvm" && f["loop"] == around;
        let floor = floors.iter().find(fits).expect("floor of the loop");
        assert!(floor["median"].as_f64() > Some(1000.0), "{floor}");
        assert_eq!(floor["unit"], "insn");
    }
}
