use super::*;
use crate::document::{render, Format};
use crate::Style;
use expect_test::expect;
use trapline_model::kernel_build::Place;
use trapline_model::testing::{batch, boot, measured};
use trapline_model::{Observation, OperationResult, Outcome};

fn column(cpus: u32, place: Place) -> Column {
    Column { cpus, place }
}

/// Returns builds in one configuration, each of a round.
fn builds(id: EnvironmentId, column: Column, seconds: &[f64], check: u64) -> Vec<Observation> {
    let of = |(round, seconds): (usize, &f64)| {
        let mut outcome = measured(vec![batch((seconds * 1e9) as u64, 1)]);
        if let Outcome::Measured { check: own, .. } = &mut outcome {
            *own = check;
        }
        let mut boot = boot(column.config(id), round as u32, []);
        let operation = Operation::Build(Size::Tiny);
        boot.operations
            .push(OperationResult::new(operation, outcome));
        let source = "package linux-source-6.1".to_owned();
        boot.facts.insert("build-source".to_owned(), source);
        boot
    };
    seconds.iter().enumerate().map(of).collect()
}

fn report(observations: &[Observation]) -> Report {
    let summary = trapline_stats::summarise(observations);
    Report {
        builds: trapline_stats::builds::over_base(observations, &summary),
        summary,
        ..Report::default()
    }
}

fn table(observations: &[Observation]) -> String {
    let report = report(observations);
    let cells = report.cells();
    let all = Clock::ALL.into_iter();
    let document = crate::Document {
        sections: all
            .flat_map(|clock| sections(&report, &cells, clock))
            .collect(),
        ..crate::Document::default()
    };
    render(&document, Format::Text(Style::default())).unwrap()
}

/// The first row of the source document's machine T420, with a native row.
fn document() -> Vec<Observation> {
    let (same, two) = (column(1, Place::Same), column(2, Place::Same));
    let (host, guest) = (EnvironmentId::HOST, EnvironmentId::QEMU_TCG_LINUX);
    [
        builds(host, same, &[702.0], 7),
        builds(host, Column::BASE, &[700.0], 7),
        builds(host, two, &[352.0], 7),
        builds(guest, same, &[757.0, 755.0, 760.0], 7),
        builds(guest, Column::BASE, &[722.0], 7),
        builds(guest, two, &[394.0], 7),
    ]
    .concat()
}

#[test]
fn the_table_is_the_source_documents_with_computed_percentages() {
    expect![[r#"
        Kernel build, tiny, wall clock: seconds
                                1(s)       1(d)       2(s)
         host                  702.0      700.0      352.0
           over 1(d)           +0.3%                -49.7%
             interval      one build             one build
         qemu-tcg/linux        757.0      722.0      394.0
           min-max       755.0-760.0
           over 1(d)           +4.8%                -45.4%
             interval      one build             one build
           over host           +7.8%      +3.1%     +11.9%
             interval      one build  one build  one build
           median and range of 3 builds each. N(s): virtual CPU i on CPU i, the VMM on
           CPU 0; N(d): on CPU i+1. Over 1(d): against the same environment there; over
           host: against host on the same CPUs; + is slower.
           tiny: bzImage of tinyconfig, from a configured source, package
           linux-source-6.1.
    "#]]
    .assert_eq(&table(&document()));
    let report = report(&document());
    let (title, text) = finding(&report, &report.cells()).unwrap();
    expect!["Building a kernel takes 1.12 times as long in qemu-tcg/linux as in host. on the same CPUs, 2(s)."].assert_eq(&format!("{title} {text}"));
}

/// Three rounds, the second and third on a slower host.
fn rounds() -> Vec<Observation> {
    let same = column(1, Place::Same);
    [
        builds(EnvironmentId::HOST, same, &[100.0, 110.0, 120.0], 7),
        builds(EnvironmentId::HOST, Column::BASE, &[100.0; 3], 7),
        builds(
            EnvironmentId::QEMU_TCG_LINUX,
            same,
            &[200.0, 230.0, 246.0],
            7,
        ),
    ]
    .concat()
}

#[test]
fn percentages_of_several_rounds_have_an_interval_with_its_level() {
    expect![[r#"
        Kernel build, tiny, wall clock: seconds
                                   1(s)   1(d)
         host                     110.0  100.0
           min-max          100.0-120.0
           over 1(d)             +10.0%
             75% interval  +0.0..+20.0%
         qemu-tcg/linux           230.0      –
           min-max          200.0-246.0
           over host              +105%
             75% interval   +100..+109%
           median and range of 3 builds each. N(s): virtual CPU i on CPU i, the VMM on
           CPU 0; N(d): on CPU i+1. Over 1(d): against the same environment there; over
           host: against host on the same CPUs; + is slower. Percentages are medians of
           the ratios of the rounds. Level of the interval: 75%.
           tiny: bzImage of tinyconfig, from a configured source, package
           linux-source-6.1.
    "#]]
    .assert_eq(&table(&rounds()));
}

/// One configuration has three rounds, the other two of them.
#[test]
fn a_lost_build_lowers_the_level() {
    let mut builds = rounds();
    builds.remove(7);
    expect![[r#"
        Kernel build, tiny, wall clock: seconds
                                   1(s)   1(d)
         host                     110.0  100.0
           min-max          100.0-120.0
           over 1(d)             +10.0%
             75% interval  +0.0..+20.0%
         qemu-tcg/linux           223.0      –
           min-max          200.0-246.0
           over host              +102%
             50% interval   +100..+105%
           median and range of 3 builds each. N(s): virtual CPU i on CPU i, the VMM on
           CPU 0; N(d): on CPU i+1. Over 1(d): against the same environment there; over
           host: against host on the same CPUs; + is slower. Percentages are medians of
           the ratios of the rounds. Level of the interval: 50%, 75%.
           tiny: bzImage of tinyconfig, from a configured source, package
           linux-source-6.1.
    "#]]
    .assert_eq(&table(&builds));
    let json = serde_json::to_value(json(&report(&rounds()))).unwrap();
    expect![[r#"[{"environment":"host","high":0.19999999999999996,"level":0.7500000000000012,"low":0.0,"operation":"kernel-build/tiny","over_base":0.10000000000000009,"rounds":3,"settings":"jobs=1,place=same"}]"#]].assert_eq(&json.to_string());
}

#[test]
fn unequal_work_is_a_failure_and_not_a_number() {
    let same = column(1, Place::Same);
    let two = column(2, Place::Same);
    // Also with other settings.
    let all = [
        builds(EnvironmentId::HOST, same, &[702.0], 7),
        builds(EnvironmentId::UML, same, &[701.0], 7),
        builds(EnvironmentId::HOST, two, &[1.0], 8),
    ];
    let report = report(&all.concat());
    let failed = report
        .cells()
        .into_iter()
        .filter(|cell| cell.value.figure().is_none());
    let failed: Vec<String> = failed.map(|cell| cell.config.to_string()).collect();
    assert_eq!(failed, ["host:jobs=2,place=same"]);
}

#[test]
fn clocks_that_disagree_are_flagged() {
    let same = column(1, Place::Same);
    let mut all = builds(EnvironmentId::UML, same, &[100.0], 7);
    let outcome = &mut all[0].operations[0].outcome;
    if let Outcome::Measured { elapsed, .. } = outcome {
        *elapsed = Some((102_000_000_000, 100_000_000_000));
    }
    let text = table(&all);
    assert!(
        text.contains("uml 1(s): the clock of its Linux is off by +2.0%"),
        "{text}"
    );
}

#[test]
fn an_exact_clock_gives_the_same_digits_twice() {
    let one = column(1, Place::Same);
    let all = |second| {
        [
            builds(EnvironmentId::SIM_LINUX, one, &[4.0, 4.0], 7),
            builds(EnvironmentId::SIM_KVM_LINUX, one, &[5.0, second], 7),
        ]
        .concat()
    };
    expect![[r#"
        Kernel build, tiny, instruction clock: million instructions
                               1(s)
         sim/linux         4000.000
         sim/kvm/linux     5000.000
           over sim/linux    +25.0%
           2 builds each. N(s): virtual CPU i on CPU i, the VMM on CPU 0; N(d): on CPU
           i+1. Over 1(d): against the same environment there; over sim/linux: against
           sim/linux on the same CPUs; + is slower.
           tiny: bzImage of tinyconfig, from a configured source, package
           linux-source-6.1.
    "#]]
    .assert_eq(&table(&all(5.0)));
    let summary = report(&all(5.1)).summary;
    assert!(summary.has_failure(trapline_stats::FailureKind::NotDeterministic));
}

#[test]
fn nothing_built_is_no_table() {
    assert_eq!(table(&[]), "");
}
