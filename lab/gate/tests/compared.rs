//! Comparison of summaries with a baseline.

use expect_test::expect;
use std::collections::BTreeMap;
use trapline_abi::{Op, OpSet};
use trapline_gate::{compare, Baseline, Outcome, Tolerances, Verdict};
use trapline_model::{Clock, Config, EnvironmentId, Operations};
use trapline_stats::{Cell, Failure, FailureKind, Figure, Summary, Value};

fn measured(estimate: f64) -> Value {
    with_fastest(estimate, estimate)
}

/// Returns a mean with a smaller fastest batch.
fn with_fastest(estimate: f64, min: f64) -> Value {
    Value::Measured(Box::new(Figure {
        estimate,
        interval: None,
        raw: None,
        layouts: None,
        min,
        max: estimate,
        p50: estimate,
        p90: None,
        p99: None,
        samples: 12,
        boots: 2,
        hosts: 1,
        medians: Vec::new(),
        ratio: None,
        exits: None,
        host_cpu_ns: None,
        idle: None,
        components: None,
        flags: Vec::new(),
    }))
}

fn failed(kind: FailureKind) -> Value {
    Value::Failed(Failure {
        kind,
        reason: "batch 3 differs".to_owned(),
    })
}

/// Returns a summary of `sim/kvm` with this version of QEMU.
fn summary(qemu: &str, values: &[(Op, Value)]) -> Summary {
    let facts = [("qemu", qemu), ("cpu", "of the host"), ("vmm-sha256", "12")];
    let facts: BTreeMap<_, _> = facts
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let cell = |(op, value): &(Op, Value)| Cell {
        config: EnvironmentId::SIM_KVM.into(),
        op: (*op).into(),
        clock: Clock::Insn,
        unit: "insn",
        value: value.clone(),
    };
    Summary {
        cells: values.iter().map(cell).collect(),
        facts: BTreeMap::from([(EnvironmentId::SIM_KVM.into(), facts)]),
        ..Summary::default()
    }
}

fn baseline() -> Baseline {
    let values = [
        (Op::PortOut, measured(3182.25)),
        (Op::Cpuid, measured(2835.5)),
    ];
    let kept = Baseline::new(
        &summary("7.2", &values),
        &OpSet::from(Op::PortOut).into(),
        "0.1.0",
    );
    Baseline::parse(&kept.text()).expect("it was just written")
}

/// Returns a summary of a kernel build in `sim/linux` that takes so many instructions.
fn build(instructions: f64) -> Summary {
    let operations: Operations = MINI.parse().expect("an operation");
    let [config] = &operations.configs(&[EnvironmentId::SIM_LINUX])[..] else {
        panic!("one configuration")
    };
    Summary {
        cells: vec![Cell {
            config: config.clone(),
            op: operations.long()[0],
            clock: Clock::Insn,
            unit: "insn",
            value: measured(instructions),
        }],
        facts: BTreeMap::from([(config.clone(), BTreeMap::new())]),
        ..Summary::default()
    }
}

/// Returns a summary of `port-out` in layouts: for each the mean and the fastest batch.
fn in_layouts(figures: &[(f64, f64)]) -> Summary {
    let configs = (0..figures.len()).map(|layout| match layout {
        0 => Config::new(EnvironmentId::SIM_KVM),
        _ => format!("sim/kvm:layout={layout}").parse().expect("valid"),
    });
    let cells = configs
        .clone()
        .zip(figures)
        .map(|(config, (mean, fastest))| Cell {
            config,
            op: Op::PortOut.into(),
            clock: Clock::Insn,
            unit: "insn",
            value: with_fastest(*mean, *fastest),
        });
    Summary {
        cells: cells.collect(),
        facts: configs.map(|config| (config, BTreeMap::new())).collect(),
        ..Summary::default()
    }
}

/// Returns the verdict of each layout.
fn verdicts(old: &[(f64, f64)], new: &[(f64, f64)]) -> Vec<Verdict> {
    let kept = Baseline::new(&in_layouts(old), &OpSet::from(Op::PortOut).into(), "0.2.0");
    let kept = Baseline::parse(&kept.text()).expect("it was just written");
    let compared = compare(&kept, &in_layouts(new), &Tolerances::default());
    compared.rows.iter().map(|row| row.verdict).collect()
}

#[test]
fn figures_of_other_layouts_are_no_change() {
    use Verdict::{Changed, Same, Tolerated};
    let exact = |figures: [f64; 3]| figures.map(|figure| (figure, figure));
    let old = exact([5_495.0, 5_496.0, 5_494.0]);
    assert_eq!(verdicts(&old, &old), [Same; 3]);
    // Code that moved has the figures of other places.
    let moved = exact([5_496.0, 5_494.0, 5_494.0]);
    assert_eq!(verdicts(&old, &moved), [Tolerated, Tolerated, Same]);
    // One instruction more is one in every layout.
    let longer = exact([5_496.0, 5_497.0, 5_495.0]);
    assert_eq!(verdicts(&old, &longer), [Changed; 3]);
    // No layout has that figure.
    let other = exact([5_499.0, 5_496.0, 5_494.0]);
    assert_eq!(verdicts(&old, &other), [Changed, Same, Same]);
    // Without another layout every difference is a change.
    assert_eq!(verdicts(&old[..1], &moved[..1]), [Changed]);
}

/// Returns the verdict of each layout on figures that differ only in what is excluded.
fn verdicts_on_raw(old: [f64; 3], new: [f64; 3]) -> Vec<Verdict> {
    let with_raw = |raw: [f64; 3]| {
        let mut summary = in_layouts(&[(1_231.0, 1_231.0); 3]);
        for (cell, raw) in summary.cells.iter_mut().zip(raw) {
            if let Value::Measured(figure) = &mut cell.value {
                figure.raw = Some(raw);
            }
        }
        summary
    };
    let kept = Baseline::new(&with_raw(old), &OpSet::from(Op::PortOut).into(), "0.2.0");
    let compared = compare(&kept, &with_raw(new), &Tolerances::default());
    compared.rows.iter().map(|row| row.verdict).collect()
}

#[test]
fn what_is_excluded_may_change_as_it_does_between_layouts() {
    use Verdict::{Changed, Same};
    let old = [2_966.0, 2_966.0, 2_965.0];
    assert_eq!(verdicts_on_raw(old, [2_966.0, 2_965.0, 2_965.0]), [Same; 3]);
    assert_eq!(
        verdicts_on_raw(old, [2_967.0, 2_967.0, 2_966.0]),
        [Changed; 3]
    );
    let equal = [2_966.0; 3];
    assert_eq!(
        verdicts_on_raw(equal, [2_966.0, 2_965.0, 2_966.0]),
        [Same, Changed, Same]
    );
}

#[test]
fn interrupts_change_a_mean_by_no_more_than_layouts_do() {
    use Verdict::{Changed, Same, Tolerated};
    let old = [(650.0, 644.0), (652.0, 644.0), (651.0, 644.0)];
    let moved = [(651.5, 644.0), (650.2, 644.0), (653.0, 644.0)];
    assert_eq!(verdicts(&old, &moved), [Tolerated; 3]);
    let slower = [(655.0, 644.0), (652.0, 644.0), (651.0, 644.0)];
    assert_eq!(verdicts(&old, &slower), [Changed, Same, Same]);
    // The fastest batches show one instruction more, which the means hide.
    let longer = [(650.5, 645.0), (651.8, 645.0), (652.9, 645.0)];
    assert_eq!(verdicts(&old, &longer), [Changed; 3]);
}

const MINI: &str = "kernel-build/mini";

#[test]
fn kernel_builds_are_compared_with_a_tolerance() {
    let operations: Operations = MINI.parse().expect("an operation");
    let kept = Baseline::new(&build(28_587e6), &operations, "0.2.0");
    let kept = Baseline::parse(&kept.text()).expect("it was just written");
    assert_eq!(kept.operations(), operations);
    let mut tolerances = Tolerances::default();
    let verdict = |tolerances: &Tolerances, now: f64| {
        let compared = compare(&kept, &build(now), tolerances);
        let [row] = &compared.rows[..] else {
            panic!("{compared:#?}")
        };
        assert_eq!((row.operation.as_str(), row.old), (MINI, Some(28_587e6)));
        row.verdict
    };
    assert_eq!(verdict(&tolerances, 28_587e6), Verdict::Same);
    assert_eq!(verdict(&tolerances, 28_587e6 + 1.0), Verdict::Changed);
    let (allowed, tolerance) = trapline_gate::tolerance::parse("kernel-build=5%").expect("valid");
    tolerances.add(allowed, tolerance);
    assert_eq!(verdict(&tolerances, 29_000e6), Verdict::Tolerated);
    assert_eq!(verdict(&tolerances, 31_000e6), Verdict::Changed);
}

#[test]
fn a_baseline_of_builds_without_their_figures_is_incomplete() {
    let both: Operations = "kernel-build/mini,kernel-build/tiny"
        .parse()
        .expect("operations");
    let kept = Baseline::new(&build(28_587e6), &both, "0.2.0");
    let error = kept.require_figures().unwrap_err().to_string();
    expect!["neither a figure of kernel-build/tiny in sim/linux:jobs=1,place=same, nor the reason why it is skipped"].assert_eq(&error);
}

#[track_caller]
fn assert_became(values: &[(Op, Value)], expected: &[(&str, Verdict)], outcome: Outcome) {
    let compared = compare(&baseline(), &summary("7.2", values), &Tolerances::default());
    let became: Vec<_> = compared
        .rows
        .iter()
        .map(|row| (row.operation.as_str(), row.verdict))
        .collect();
    assert_eq!(became, expected);
    assert_eq!(compared.outcome(), outcome);
    assert!(compared.causes.is_empty(), "nothing but figures differs");
}

const PORT: &str = "exits/port-out";
const CPUID: &str = "exits/cpuid";

#[test]
fn equal_digits_are_the_same() {
    assert_became(
        &[
            (Op::PortOut, measured(3182.25)),
            (Op::Cpuid, measured(2835.5)),
        ],
        &order(Verdict::Same, Verdict::Same),
        Outcome::Same,
    );
}

/// Returns expected verdicts in table order.
fn order(port: Verdict, cpuid: Verdict) -> [(&'static str, Verdict); 2] {
    let position = |op| Op::ALL.iter().position(|other| *other == op);
    if position(Op::PortOut) < position(Op::Cpuid) {
        [(PORT, port), (CPUID, cpuid)]
    } else {
        [(CPUID, cpuid), (PORT, port)]
    }
}

#[test]
fn the_smallest_difference_is_a_change() {
    assert_became(
        &[
            (
                Op::PortOut,
                measured(f64::from_bits(3182.25_f64.to_bits() + 1)),
            ),
            (Op::Cpuid, measured(2835.5)),
        ],
        &order(Verdict::Changed, Verdict::Same),
        Outcome::Changed,
    );
}

#[test]
fn vanished_and_new_figures_are_changes() {
    assert_became(
        &[
            (Op::PortOut, measured(3182.25)),
            (Op::Cpuid, Value::Skip("not here".to_owned())),
        ],
        &order(Verdict::Same, Verdict::Vanished),
        Outcome::Changed,
    );
    let new = [
        (Op::Getpid, measured(9.0)),
        (Op::PortOut, measured(3182.25)),
        (Op::Cpuid, measured(2835.5)),
    ];
    let mut expected = vec![("basic/getpid", Verdict::Appeared)];
    expected.extend(order(Verdict::Same, Verdict::Same));
    assert_became(&new, &expected, Outcome::Changed);
    assert_became(
        &[
            (Op::PortOut, measured(3182.25)),
            (Op::Cpuid, failed(FailureKind::Broken)),
        ],
        &order(Verdict::Same, Verdict::Vanished),
        Outcome::Changed,
    );
}

#[test]
fn a_mean_with_the_same_fastest_batch_is_tolerated() {
    for (estimate, min, verdict) in [
        (3207.5, 3182.25, Verdict::Tolerated),
        (3207.5, 3183.25, Verdict::Changed),
        (3182.3, 3181.25, Verdict::Changed),
        (3282.25, 3182.25, Verdict::Changed),
    ] {
        let now = [
            (Op::PortOut, with_fastest(estimate, min)),
            (Op::Cpuid, measured(2835.5)),
        ];
        let compared = compare(&baseline(), &summary("7.2", &now), &Tolerances::default());
        assert_eq!(compared.rows[0].verdict, verdict, "{estimate} {min}");
    }
}

#[test]
fn a_fastest_batch_other_than_the_figure_is_stored() {
    let values = [
        (Op::PortOut, with_fastest(3207.5, 3182.25)),
        (Op::Cpuid, measured(2835.5)),
    ];
    let kept = Baseline::new(
        &summary("7.2", &values),
        &OpSet::from(Op::PortOut).into(),
        "0.1.0",
    );
    let read = Baseline::parse(&kept.text()).expect("it was written");
    let kept = &read.environments["sim/kvm"];
    assert_eq!(kept.fastest.len(), 1);
    assert_eq!(kept.fastest("exits/port-out"), Some(3182.25));
    assert_eq!(kept.fastest("exits/cpuid"), Some(2835.5));
}

#[test]
fn undetermined_figures_outweigh_changes() {
    assert_became(
        &[
            (Op::PortOut, measured(1.0)),
            (Op::Cpuid, failed(FailureKind::NotDeterministic)),
        ],
        &order(Verdict::Changed, Verdict::Undetermined),
        Outcome::Undetermined,
    );
}

#[test]
fn an_operation_of_another_version_has_vanished() {
    let mut kept = baseline();
    let figures = &mut kept
        .environments
        .get_mut("sim/kvm")
        .expect("it was kept")
        .figures;
    figures
        .get_mut("insn")
        .expect("it has the unit")
        .insert("later/thing".to_owned(), 1.0);
    let now = [
        (Op::PortOut, measured(3182.25)),
        (Op::Cpuid, measured(2835.5)),
    ];
    let compared = compare(&kept, &summary("7.2", &now), &Tolerances::default());
    let last = compared.rows.last().expect("there are rows");
    assert_eq!(
        (last.operation.as_str(), last.verdict),
        ("later/thing", Verdict::Vanished)
    );
    expect!["this version has no such operation"].assert_eq(last.reason.as_deref().unwrap());
}

#[test]
fn the_likeliest_cause_is_first_and_the_host_is_no_cause() {
    let now = [
        (Op::PortOut, measured(3000.0)),
        (Op::Cpuid, measured(2835.5)),
    ];
    let mut summary = summary("9.0", &now);
    let facts = summary
        .facts
        .get_mut(&EnvironmentId::SIM_KVM.into())
        .expect("it has facts");
    facts.insert("vmm-sha256".to_owned(), "34".to_owned());
    facts.insert("cpu".to_owned(), "another".to_owned());
    let causes = compare(&baseline(), &summary, &Tolerances::default()).causes;
    let names: Vec<_> = causes.iter().map(|cause| cause.fact.name).collect();
    assert_eq!(names, ["qemu", "vmm-sha256"]);
    assert!(causes[0].fact.around && !causes[1].fact.around);
    assert_eq!(causes[0].old.as_deref(), Some("7.2"));
}

/// The hash of all files on the machine differs with each of them, and older baselines lack it.
#[test]
fn files_of_the_machine_are_a_cause_where_no_other_part_differs() {
    let now = [(Op::PortOut, measured(3000.0))];
    let with = |files: Option<&str>, vmm: &str| {
        let mut summary = summary("7.2", &now);
        let facts = summary.facts.get_mut(&EnvironmentId::SIM_KVM.into());
        let facts = facts.expect("it has facts");
        facts.insert("vmm-sha256".to_owned(), vmm.to_owned());
        facts.extend(files.map(|hash| ("initramfs-sha256".to_owned(), hash.to_owned())));
        summary
    };
    let causes = |old: &Summary, new: &Summary| -> Vec<&'static str> {
        let baseline = Baseline::new(old, &OpSet::EMPTY.into(), "0");
        let compared = compare(&baseline, new, &Tolerances::default());
        compared
            .causes
            .iter()
            .map(|cause| cause.fact.name)
            .collect()
    };
    let old = with(Some("1"), "12");
    assert_eq!(causes(&old, &with(Some("2"), "12")), ["initramfs-sha256"]);
    assert_eq!(causes(&old, &with(Some("2"), "34")), ["vmm-sha256"]);
    assert!(causes(&with(None, "12"), &with(Some("2"), "12")).is_empty());
}

#[test]
fn tolerated_figures_are_counted() {
    let mut tolerances = Tolerances::default();
    let (operations, tolerance) =
        trapline_gate::tolerance::parse("exits/port-out=1").expect("it is one");
    tolerances.add(operations, tolerance);
    let now = [
        (Op::PortOut, measured(3183.25)),
        (Op::Cpuid, measured(2835.5)),
    ];
    let compared = compare(&baseline(), &summary("7.2", &now), &tolerances);
    assert_eq!(compared.outcome(), Outcome::Same);
    assert_eq!(compared.count(Verdict::Tolerated), 1);
}
