use super::*;
use crate::document::{render, Format};
use crate::Style;
use expect_test::expect;
use trapline_model::kernel_build::{Place, PlannedBuild};

fn column(cpus: u32, place: Place) -> Column {
    Column { cpus, place }
}

fn done(seconds: f64, proof: &str) -> BuildOutcome {
    BuildOutcome::Done(BuildFigures {
        own_ns: (seconds * 1e9) as u64,
        took: (seconds * 1e9) as u64,
        objects: 30,
        proof: proof.repeat(64),
    })
}

fn build(environment: EnvironmentId, column: Column, outcome: BuildOutcome) -> Build {
    let facts = [
        ("build-source", "package linux-source-6.1"),
        ("kernel", "6.1"),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Build {
        planned: PlannedBuild {
            round: 0,
            environment,
            column,
        },
        outcome,
        facts: facts.into(),
    }
}

/// The first row of the source document's machine T420, with a native row.
fn builds() -> Vec<Build> {
    let (same, disjoint) = (column(1, Place::Same), column(1, Place::Disjoint));
    let two = column(2, Place::Same);
    let skipped = BuildOutcome::Skipped("2(d) needs 3 CPUs".to_owned());
    vec![
        build(EnvironmentId::HOST, same, done(702.0, "a")),
        build(EnvironmentId::HOST, disjoint, done(700.0, "a")),
        build(EnvironmentId::HOST, two, done(352.0, "a")),
        build(EnvironmentId::QEMU_TCG_LINUX, same, done(757.0, "a")),
        build(EnvironmentId::QEMU_TCG_LINUX, same, done(755.0, "a")),
        build(EnvironmentId::QEMU_TCG_LINUX, same, done(760.0, "a")),
        build(EnvironmentId::QEMU_TCG_LINUX, disjoint, done(722.0, "a")),
        build(EnvironmentId::QEMU_TCG_LINUX, two, done(394.0, "a")),
        build(
            EnvironmentId::QEMU_TCG_LINUX,
            column(2, Place::Disjoint),
            skipped,
        ),
    ]
}

/// The builds of a cell are of one round each, in order.
fn numbered(mut builds: Vec<Build>) -> Vec<Build> {
    let mut rounds: BTreeMap<(EnvironmentId, Column), u32> = BTreeMap::new();
    for build in &mut builds {
        let place = (build.planned.environment, build.planned.column);
        let next = rounds.entry(place).or_default();
        build.planned.round = *next;
        *next += 1;
    }
    builds
}

fn matrix(builds: Vec<Build>) -> Matrix {
    Matrix::new(Size::Tiny, &numbered(builds))
}

fn table(matrix: &Matrix, width: usize) -> String {
    let style = Style {
        width,
        ..Style::default()
    };
    render(&matrix.document("1"), Format::Text(style)).unwrap()
}

/// Returns the lines of the table after its legend.
fn remarks(matrix: &Matrix) -> String {
    let text = table(matrix, 80);
    text.split_once("+ is slower.\n").unwrap().1.to_owned()
}

fn json(matrix: &Matrix) -> serde_json::Value {
    let text = render(&matrix.document("1"), Format::Json).unwrap();
    serde_json::from_str(&text).unwrap()
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
           qemu-tcg/linux 2(d) not built: 2(d) needs 3 CPUs

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&table(&matrix(builds()), 80));
}

/// Three rounds, the second and third on a slower host.
fn rounds() -> Vec<Build> {
    let same = column(1, Place::Same);
    let seconds = [
        (EnvironmentId::HOST, same, [100.0, 110.0, 120.0]),
        (EnvironmentId::HOST, Column::BASE, [100.0, 100.0, 100.0]),
        (EnvironmentId::QEMU_TCG_LINUX, same, [200.0, 230.0, 246.0]),
    ];
    let cells = seconds
        .into_iter()
        .flat_map(|(id, column, all)| all.map(|seconds| build(id, column, done(seconds, "a"))));
    cells.collect()
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
           the ratios of the rounds. Level of the interval: 75% (3 rounds).

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&table(&matrix(rounds()), 80));
}

/// One cell has three rounds, the other two of them.
#[test]
fn a_lost_build_lowers_the_level() {
    let mut builds = numbered(rounds());
    builds.remove(7);
    let matrix = Matrix::new(Size::Tiny, &builds);
    let text = table(&matrix, 80);
    expect![[r#"
         qemu-tcg/linux           223.0      –
           min-max          200.0-246.0
           over host              +102%
             50% interval   +100..+105%
           median and range of 3 builds each. N(s): virtual CPU i on CPU i, the VMM on
           CPU 0; N(d): on CPU i+1. Over 1(d): against the same environment there; over
           host: against host on the same CPUs; + is slower. Percentages are medians of
           the ratios of the rounds. Level of the interval: 50% (2 rounds), 75% (3
           rounds).

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&text[text.find(" qemu-tcg").unwrap()..]);
    let json = json(&matrix);
    let cells = json["cells"].as_array().unwrap();
    let cell = cells
        .iter()
        .find(|cell| cell["environment"] == "qemu-tcg/linux");
    let interval = &cell.unwrap()["over_native_interval"];
    let level = interval["level"].as_f64().unwrap();
    assert!((level - 0.5).abs() < 1e-12, "{interval}");
    assert_eq!(interval["rounds"], 2);
    assert_eq!(interval["low"], 1.0);
    assert!(cell.unwrap()["over_base_interval"].is_null());
}

#[test]
fn unequal_work_is_a_failure_and_not_a_number() {
    let same = column(1, Place::Same);
    let matrix = matrix(vec![
        build(EnvironmentId::HOST, same, done(702.0, "a")),
        build(EnvironmentId::UML, same, done(1.0, "b")),
    ]);
    assert!(!matrix.is_good());
    expect![[r#"
        Kernel build, tiny, wall clock: seconds
                1(s)
         host  702.0
           one build each: no interval. N(s): virtual CPU i on CPU i, the VMM on CPU 0;
           N(d): on CPU i+1. Over 1(d): against the same environment there; over host:
           against host on the same CPUs; + is slower.
         ! uml 1(s) FAILED: object files differ from those of host 1(s): 30 object files
           with symbols bbbbbbbbbbbb, not 30 with aaaaaaaaaaaa

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&table(&matrix, 80));
    let value = json(&matrix);
    let cells = value["cells"].as_array().unwrap();
    let uml = cells
        .iter()
        .find(|cell| cell["environment"] == "uml")
        .unwrap();
    assert!(
        uml["median"].is_null() && uml["failed"].is_string(),
        "{uml}"
    );
    assert_eq!(uml["builds"][0]["took"], 1_000_000_000_u64);
    assert_eq!(value["facts"]["uml kernel"], "6.1");
    assert_eq!(value["facts"]["build-source"], "package linux-source-6.1");
}

#[test]
fn clocks_that_disagree_are_flagged() {
    let mut builds = builds();
    let off = BuildOutcome::Done(BuildFigures {
        own_ns: 102_000_000_000,
        took: 100_000_000_000,
        objects: 30,
        proof: "a".repeat(64),
    });
    builds.push(build(EnvironmentId::UML, column(1, Place::Same), off));
    let matrix = matrix(builds);
    expect![[r#"
         ! uml 1(s): the clock of its Linux is off by +2.0%
           qemu-tcg/linux 2(d) not built: 2(d) needs 3 CPUs

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&remarks(&matrix));
    assert!(matrix.is_good() && matrix.has_figures());
}

#[test]
fn an_exact_clock_gives_the_same_digits_twice() {
    let one = column(1, Place::Same);
    let mut builds = vec![
        build(EnvironmentId::SIM_LINUX, one, done(4.0, "a")),
        build(EnvironmentId::SIM_KVM_LINUX, one, done(5.0, "a")),
        build(EnvironmentId::SIM_KVM_LINUX, one, done(5.0, "a")),
    ];
    expect![[r#"
        Kernel build, tiny, instruction clock: million instructions
                               1(s)
         sim/linux         4000.000
         sim/kvm/linux     5000.000
           over sim/linux    +25.0%
           2 builds each. N(s): virtual CPU i on CPU i, the VMM on CPU 0; N(d): on CPU
           i+1. Over 1(d): against the same environment there; over sim/linux: against
           sim/linux on the same CPUs; + is slower.

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&table(&matrix(builds.clone()), 80));
    let cells = json(&matrix(builds.clone()));
    assert!(
        cells["cells"][1]["over_native_interval"].is_null(),
        "{cells}"
    );
    assert!(!matrix(builds.clone()).wavers());
    builds.push(build(EnvironmentId::SIM_KVM_LINUX, one, done(5.1, "a")));
    assert!(matrix(builds.clone()).wavers());
    expect![[r#"
         ! sim/kvm/linux 1(s): not the same twice

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&remarks(&matrix(builds)));
}

#[test]
fn equal_reasons_are_reported_once() {
    let skipped = || BuildOutcome::Skipped("no /dev/kvm".to_owned());
    let columns = [column(1, Place::Same), Column::BASE];
    let builds = columns.map(|column| build(EnvironmentId::KVM_LINUX, column, skipped()));
    expect![[r#"
           kvm/linux 1(s), kvm/linux 1(d) not built: no /dev/kvm

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&remarks(&matrix(builds.into())));
}

#[test]
fn nothing_built_is_no_table() {
    let skipped = BuildOutcome::Skipped("no compiler".to_owned());
    let matrix = matrix(vec![build(EnvironmentId::HOST, Column::BASE, skipped)]);
    assert!(!matrix.has_figures() && matrix.is_good());
    expect![[r#"
        Kernel build, tiny, wall clock: seconds
           one build each: no interval. N(s): virtual CPU i on CPU i, the VMM on CPU 0;
           N(d): on CPU i+1. Over 1(d): against the same environment there; over host:
           against host on the same CPUs; + is slower.
           host 1(d) not built: no compiler

        tiny: bzImage of tinyconfig, from a configured source, package linux-source-6.1.
    "#]]
    .assert_eq(&table(&matrix, 80));
}
