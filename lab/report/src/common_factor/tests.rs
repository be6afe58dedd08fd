use super::*;
use crate::fixture::{figure, measured};
use expect_test::expect;
use trapline_abi::Op;

fn cell(environment: EnvironmentId, op: impl Into<Operation>, estimate: f64) -> Cell {
    measured(environment, op, figure(estimate))
}

/// Operations of `exits` in an environment, by their figures.
fn exits(environment: EnvironmentId, figures: [f64; 5]) -> Vec<Cell> {
    let operations = [
        Op::PortOut,
        Op::PortIn,
        Op::Cpuid,
        Op::Hypercall,
        Op::SelfIpi,
    ];
    let both = operations.into_iter().zip(figures);
    both.map(|(op, figure)| cell(environment, op, figure))
        .collect()
}

fn report(kvm: &str) -> Report {
    Report {
        facts: BTreeMap::from([("kvm".to_owned(), kvm.to_owned())]),
        ..Report::default()
    }
}

#[test]
fn only_the_same_stack_on_two_clocks_is_paired() {
    let all = EnvironmentId::all().map(|id| cell(id, Op::PortOut, 1.0));
    let sides = sides(&all.collect::<Vec<_>>());
    let side = |id: EnvironmentId| Side::Measured(id.into());
    let has = |a, b| sides.contains(&(side(a), side(b)));
    assert!(has(EnvironmentId::HOST, EnvironmentId::SIM_LINUX));
    assert!(
        has(EnvironmentId::KVM, EnvironmentId::SIM_KVM)
            && has(EnvironmentId::SIM_KVM, EnvironmentId::SIM_VMX_KVM)
            && has(EnvironmentId::KVM, EnvironmentId::SIM_VMX_KVM)
    );
    assert!(has(EnvironmentId::KVM_LINUX, EnvironmentId::SIM_KVM_LINUX));
    assert!(has(EnvironmentId::SIM, EnvironmentId::SIM_VMX));
    assert!(!has(EnvironmentId::KVM, EnvironmentId::SIM_QEMU_KVM));
    assert!(!has(EnvironmentId::HOST, EnvironmentId::SIM));
}

#[test]
fn two_simulated_machines_have_a_factor_and_errors() {
    let mut cells = exits(
        EnvironmentId::SIM_KVM,
        [3264.0, 3293.0, 2966.0, 3198.0, 9149.0],
    );
    cells.extend(exits(
        EnvironmentId::SIM_VMX_KVM,
        [7400.0, 7444.0, 1097.0, 1064.0, 18079.0],
    ));
    let report = report("no /dev/kvm");
    let pairs = pairs(&report, &cells);
    assert_eq!(pairs.len(), 1, "{pairs:?}");
    assert_eq!(pairs[0].name(&report), "sim/kvm and sim-vmx/kvm");
    expect!["exits: 1.05 insn/insn; typical error 2.71×, worst hypercall 0.32×; 5 operations"]
        .assert_eq(&pairs[0].sentence());
    let json = serde_json::to_value(JsonPair::new(&report, &pairs[0])).unwrap();
    let factors = &json["factors"][0];
    assert_eq!(
        (&factors["workload"], &json["unit"]),
        (&"exits".into(), &"insn/insn".into())
    );
    assert!(
        factors["errors"]["exits/port-out"].as_f64() > Some(2.0),
        "{json}"
    );
}

#[test]
fn emulated_ring_0_is_refused_with_its_reason() {
    let mut cells = exits(EnvironmentId::KVM, [24.0, 24.1, 7.0, 3.5, 50.0]);
    cells.extend(exits(
        EnvironmentId::SIM_KVM,
        [3264.0, 3293.0, 2966.0, 3198.0, 9149.0],
    ));
    let refused = pairs(&report("KVM with ring 0 emulated"), &cells);
    assert_eq!(refused[0].name(&Report::default()), "kvm and sim/kvm");
    expect!["refused: ring 0 is emulated on this host, so an exit there takes the time of the emulation and not that of the hardware"].assert_eq(&refused[0].sentence());
    let real = pairs(&report("KVM on AMD-V"), &cells);
    assert!(real[0].outcome.is_ok());
}

#[test]
fn nested_host_is_a_caveat() {
    let mut cells = exits(EnvironmentId::KVM, [24.0, 24.1, 7.0, 3.5, 50.0]);
    cells.extend(exits(
        EnvironmentId::SIM_KVM,
        [3264.0, 3293.0, 2966.0, 3198.0, 9149.0],
    ));
    cells.extend(exits(
        EnvironmentId::SIM_VMX_KVM,
        [7400.0, 7444.0, 1064.0, 1097.0, 18079.0],
    ));
    let mut nested = report("KVM on AMD-V, nested");
    let outer = ("nested in".to_owned(), "KVM".to_owned());
    nested.facts.extend([outer]);
    let pairs = pairs(&nested, &cells);
    let caveats: Vec<_> = pairs.iter().map(|pair| pair.caveat.is_some()).collect();
    assert_eq!(
        caveats,
        [true, true, false],
        "sim/kvm and sim-vmx/kvm have no host"
    );
}

#[test]
fn stages_of_a_boot_and_few_operations_are_not_compared() {
    let few = |id| exits(id, [1.0, 2.0, 3.0, 4.0, 5.0]).into_iter().take(2);
    let stages = |id| {
        let stages = Workload::Boot.operations();
        stages.map(move |op| cell(id, op, f64::from(op as u32)))
    };
    let mut cells: Vec<Cell> = few(EnvironmentId::SIM_KVM)
        .chain(few(EnvironmentId::SIM_VMX_KVM))
        .collect();
    cells.extend(stages(EnvironmentId::SIM_KVM).chain(stages(EnvironmentId::SIM_VMX_KVM)));
    assert_eq!(pairs(&report("no /dev/kvm"), &cells), []);
}

#[test]
fn kvm_of_a_simulated_machine_stands_beside_published_cycles_of_each_processor() {
    let operations = references::cycles("i7-7920HQ").into_iter();
    let cells: Vec<Cell> = operations
        .map(|(op, cycles)| cell(EnvironmentId::SIM_KVM, op, cycles / 2.0))
        .collect();
    let report = report("no /dev/kvm");
    let pairs = pairs(&report, &cells);
    let names: Vec<_> = pairs.iter().map(|pair| pair.name(&report)).collect();
    let processors = ["Threadripper 1950X", "i5-3570", "i7-7920HQ"];
    let expected = processors.map(|it| format!("sim/kvm and published cycles of KVM, {it}"));
    assert_eq!(names, expected, "of the i5-7300U there are no exits");
    expect![
        "exits: 2.00 cycles/insn; too few operations for an error, worst cpuid 1.00×; 3 operations"
    ]
    .assert_eq(&pairs[2].sentence());
}
