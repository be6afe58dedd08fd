use super::*;
use crate::breakdown::{FunctionCost, StageProfile};
use expect_test::expect;
use std::collections::BTreeMap;
use trapline_abi::Stage;

fn profile(functions: usize) -> Profile {
    let items = (0..functions).map(|index| FunctionCost {
        function: Function {
            component: "a_component_with_a_long_name".to_owned(),
            name: format!("{}{index}", "function_".repeat(12)),
        },
        insn: 1000.5,
    });
    Profile {
        total: 1000.5 * functions as f64,
        residual: 0,
        operations: 4,
        counted: 4002 * functions as u64,
        items: items.collect(),
        ..Profile::default()
    }
}

#[test]
fn tables_fit_the_width_and_sum_up_the_rest() {
    let text = table("exits/port-out in sim/kvm", &profile(40), 80);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 80), "{text}");
    assert!(text.contains("  10,005   25.0%"), "{text}");
    assert!(text.contains("10 more (--format json"), "{text}");
    assert!(text.ends_with("Residual: 0\n"), "{text}");
    let text = changes(("a", "b"), (&profile(1), &profile(40)), 80);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 80), "{text}");
    assert!(text.contains("b: 40,020 insn, 39,019.50 more"), "{text}");
}

#[test]
fn levels_of_nested_guests_are_summed() {
    let mut nested = profile(3);
    let components = ["kvm", "L2/kvm", "guest"];
    for (item, component) in nested.items.iter_mut().zip(components) {
        component.clone_into(&mut item.function.component);
    }
    let levels: Vec<_> = nested.levels().into_iter().map(|(name, _)| name).collect();
    assert_eq!(levels, ["L1", "L2", "guest"]);
    let text = table("exits/port-out in sim/kvm/kvm", &nested, 80);
    expect![[r#"
        exits/port-out in sim/kvm/kvm: 3,001.50 insn

        level                     insn   share
        L1                    1,000.50   33.3%
        L2                    1,000.50   33.3%
        guest                 1,000.50   33.3%

        component                 insn   share
        kvm                   1,000.50   33.3%
        L2/kvm                1,000.50   33.3%
        guest                 1,000.50   33.3%

               insn   share  component          function
           1,000.50   33.3%  kvm                function_function_function_function_fu…
           1,000.50   33.3%  L2/kvm             function_function_function_function_fu…
           1,000.50   33.3%  guest              function_function_function_function_fu…

        4 operations, 12,006 instructions counted, 0 exits, 0 faults.
        Residual: 0
    "#]]
    .assert_eq(&text);
    assert!(profile(3).levels().is_empty());
}

#[test]
fn launches_are_listed_by_stage_with_halts() {
    let stage = |from, to, residual| StageProfile {
        from,
        to,
        profile: Profile {
            residual,
            operations: 1,
            ..profile(100_000)
        },
    };
    let launch = Profile {
        stages: vec![
            stage(Stage::Exec, Stage::GuestEntry, 0),
            stage(Stage::FirstSample, Stage::GuestExit, 8_657_291),
        ],
        residual: 8_657_291,
        operations: 1,
        events: BTreeMap::from([
            (Event::Halt, 3),
            (Event::GuestEntry, 7),
            (Event::MsrWrite, 21),
        ]),
        ..profile(200_000)
    };
    let text = table("boot/exit in sim/kvm", &launch, 80);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 80), "{text}");
    let others = text.lines().filter(|line| !line.contains("function_"));
    expect![[r#"
        boot/exit in sim/kvm: 200,100,000 insn

        stage                               insn   share    residual
        exec to guest-entry          100,050,000   50.0%           0
        first-sample to guest-exit   100,050,000   50.0%   8,657,291

        component                 insn   share
        a_component_with_… 200,100,000  100.0%

               insn   share  component          function
        200,069,985  100.0%                     199970 more (--format json lists all)

        Once, 800,400,000 instructions counted, 0 exits, 0 faults.
        By operation: guest entries 7, writes of MSRs 21
        Residual: 8,657,291, while the CPU was halted 3 times"#]]
    .assert_eq(&others.collect::<Vec<_>>().join("\n"));
}

#[test]
fn events_of_an_operation_fit_80_columns() {
    let others = Event::ALL.into_iter().skip(1);
    let profile = Profile {
        operations: 4,
        events: others.zip([4, 400_000, 2, 6_000, 8, 402]).collect(),
        ..profile(1)
    };
    let text = table("exits/cpuid in sim/kvm", &profile, 80);
    let lines: Vec<_> = text.lines().rev().take(4).collect();
    expect![[r#"
        Residual: 0
         string iterations 100.50
         returns from interrupts 0.50, writes of MSRs 1,500, page-table roots 2,
        By operation: guest entries 1, returns from system calls 100,000,"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn long_paths_keep_their_end() {
    assert_eq!(clip_path("a_long_name", 6), "a_lon…");
    assert_eq!(clip_path("machine::Machine::run", 13), "…Machine::run");
    assert_eq!(clip_path("a::b", 4), "a::b");
}

#[test]
fn numbers_are_grouped() {
    let formatted = [3320.0, -1.0, 26.5, 1_234_567.891, 0.0].map(number);
    assert_eq!(formatted, ["3,320", "-1", "26.50", "1,234,567.89", "0"]);
}

#[test]
fn functions_and_lines_have_their_source() {
    let source = |line| SourceLine {
        file: "/build/linux/arch/x86/kvm/a_file_with_a_long_name/x86.c".to_owned(),
        line,
    };
    let mut profile = profile(2);
    let function = profile.items[0].function.clone();
    let cost = LineCost {
        component: "kvm".to_owned(),
        source: source(11_260),
        insn: 1000.5,
    };
    profile.sources = Some(Sources {
        functions: [(function, source(11_254))].into(),
        lines: vec![cost],
    });
    let text = table("exits/port-out in sim/kvm", &profile, 80);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 80), "{text}");
    expect![[r#"
        exits/port-out in sim/kvm: 2,001 insn

        component                 insn   share
        a_component_with_…       2,001  100.0%

               insn   share  component          source             function
           1,000.50   50.0%  a_component_with_… x86.c:11254        function_function_f…
           1,000.50   50.0%  a_component_with_…                    function_function_f…

               insn   share  component          line
           1,000.50   50.0%  kvm                …vm/a_file_with_a_long_name/x86.c:11260
           1,000.50   50.0%                     no debug information

        4 operations, 8,004 instructions counted, 0 exits, 0 faults.
        Residual: 0
    "#]]
    .assert_eq(&text);
}
