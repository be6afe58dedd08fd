use super::*;
use trapline_plan::kernel_build::{Place, PlannedBuild};

fn column(cpus: u32, place: Place) -> Column {
    Column { cpus, place }
}

fn done(seconds: f64, proof: &str) -> Outcome {
    Outcome::Done(Done {
        own_ns: (seconds * 1e9) as u64,
        took: (seconds * 1e9) as u64,
        objects: 30,
        proof: proof.repeat(64),
    })
}

fn build(environment: EnvironmentId, column: Column, outcome: Outcome) -> Build {
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
    use EnvironmentId::{Host, QemuTcgLinux};
    let (same, disjoint) = (column(1, Place::Same), column(1, Place::Disjoint));
    let two = column(2, Place::Same);
    let skipped = Outcome::Skipped("2(d) needs 3 CPUs".to_owned());
    vec![
        build(Host, same, done(702.0, "a")),
        build(Host, disjoint, done(700.0, "a")),
        build(Host, two, done(352.0, "a")),
        build(QemuTcgLinux, same, done(757.0, "a")),
        build(QemuTcgLinux, same, done(755.0, "a")),
        build(QemuTcgLinux, same, done(760.0, "a")),
        build(QemuTcgLinux, disjoint, done(722.0, "a")),
        build(QemuTcgLinux, two, done(394.0, "a")),
        build(QemuTcgLinux, column(2, Place::Disjoint), skipped),
    ]
}

fn matrix(builds: Vec<Build>) -> Matrix {
    Matrix::new(Size::Tiny, &builds)
}

#[test]
fn the_table_is_the_source_documents_with_computed_percentages() {
    let text = table(&matrix(builds()), 80);
    let expected = "\
Kernel build, tiny, wall clock: seconds
                               1(s)           1(d)           2(s)
 host                         702.0          700.0          352.0
   over 1(d)                  +0.3%                        -49.7%
 qemu-tcg/linux               757.0          722.0          394.0
   min-max              755.0-760.0
   over 1(d)                  +4.8%                        -45.4%
   over host                  +7.8%          +3.1%         +11.9%
";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.contains("qemu-tcg/linux 2(d) not built: 2(d) needs 3 CPUs\n"),
        "{text}"
    );
    assert!(text.contains("range of 3 builds each"), "{text}");
    assert!(text.contains("package linux-source-6.1."), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn unequal_work_is_a_failure_and_not_a_number() {
    let mut builds = builds();
    let cheat = build(EnvironmentId::Uml, column(1, Place::Same), done(1.0, "b"));
    builds.push(cheat);
    let matrix = matrix(builds);
    assert!(!matrix.is_good());
    let text = table(&matrix, 80);
    assert!(
        text.contains("uml 1(s) FAILED: it made something else than host 1(s)"),
        "{text}"
    );
    assert!(!text.contains("1.00"), "{text}");
    let told = json(&matrix, "1");
    let cells = told["cells"].as_array().unwrap();
    let uml = cells
        .iter()
        .find(|cell| cell["environment"] == "uml")
        .unwrap();
    assert!(
        uml["median"].is_null() && uml["failed"].is_string(),
        "{uml}"
    );
    assert_eq!(uml["builds"][0]["took"], 1_000_000_000_u64);
    assert_eq!(told["facts"]["uml kernel"], "6.1");
    assert_eq!(told["facts"]["build-source"], "package linux-source-6.1");
}

#[test]
fn clocks_that_disagree_are_flagged() {
    let mut builds = builds();
    let off = Outcome::Done(Done {
        own_ns: 102_000_000_000,
        took: 100_000_000_000,
        objects: 30,
        proof: "a".repeat(64),
    });
    builds.push(build(EnvironmentId::Uml, column(1, Place::Same), off));
    let matrix = matrix(builds);
    let text = table(&matrix, 80);
    assert!(
        text.contains("uml 1(s): the clock of its Linux is off by +2.0%"),
        "{text}"
    );
    assert!(matrix.is_good() && matrix.has_figures());
}

#[test]
fn an_exact_clock_gives_the_same_digits_twice() {
    use EnvironmentId::{SimKvmLinux, SimLinux};
    let one = column(1, Place::Same);
    let mut builds = vec![
        build(SimLinux, one, done(4.0, "a")),
        build(SimKvmLinux, one, done(5.0, "a")),
        build(SimKvmLinux, one, done(5.0, "a")),
    ];
    let text = table(&matrix(builds.clone()), 80);
    assert!(
        text.contains("sim/kvm/linux             5000.000\n   over sim"),
        "{text}"
    );
    assert!(text.contains("over sim/linux            +25.0%"), "{text}");
    assert!(!matrix(builds.clone()).wavers());
    builds.push(build(SimKvmLinux, one, done(5.1, "a")));
    assert!(matrix(builds.clone()).wavers());
    assert!(table(&matrix(builds), 80).contains("sim/kvm/linux 1(s): not the same twice"));
}

#[test]
fn a_reason_that_several_have_is_told_once() {
    let skipped = || Outcome::Skipped("no /dev/kvm".to_owned());
    let columns = [column(1, Place::Same), Column::BASE];
    let builds = columns.map(|column| build(EnvironmentId::KvmLinux, column, skipped()));
    let text = table(&matrix(builds.into()), 80);
    let told = "kvm/linux 1(s), kvm/linux 1(d) not built: no /dev/kvm\n";
    assert!(text.contains(told), "{text}");
    assert_eq!(text.matches("no /dev/kvm").count(), 1, "{text}");
}

#[test]
fn nothing_built_is_no_table() {
    let skipped = Outcome::Skipped("no compiler".to_owned());
    let matrix = matrix(vec![build(EnvironmentId::Host, Column::BASE, skipped)]);
    assert!(!matrix.has_figures() && matrix.is_good());
    assert!(table(&matrix, 80).contains("host 1(d) not built: no compiler"));
}
