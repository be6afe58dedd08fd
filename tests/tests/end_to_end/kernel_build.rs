//! `trapline kernel-build`: reproducible builds of kernel files, environments that cannot build, and
//! interrupted builds.
//!
//! The first run on a host downloads and prepares compiler and source into the user's cache, which takes
//! a minute or two.

use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;
use trapline_tests::processes::{descendants, is_running, naming, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{assert_fits_80_columns, CommandOutput, Place};
use trapline_tests::skip;

const FEATURE: &str = "building a kernel";

/// Time limit for the first build, which may prepare the source.
const PREPARED: Duration = Duration::from_secs(600);

fn kernel_build(place: &Place, words: &str) -> CommandOutput {
    let all: Vec<_> = ["kernel-build"]
        .into_iter()
        .chain(words.split(' '))
        .collect();
    place.run(&all)
}

#[test]
fn invalid_options_are_rejected() {
    let place = Place::new();
    for (words, message) in [
        ("--size huge", "choose from mini, tiny, def"),
        ("--size tni", "did you mean 'tiny'?"),
        ("--cpus 0", "'0'"),
        ("--cpus 65", "'65'"),
        ("--place there", "choose from same, disjoint"),
        ("--env sim/kmv/linux", "did you mean 'sim/kvm/linux'?"),
        ("--boots 0", "--boots"),
    ] {
        let result = kernel_build(&place, words);
        assert_eq!(result.status, Some(2), "{words}: {result:?}");
        assert!(
            result.stderr.contains(message),
            "{words}: {}",
            result.stderr
        );
    }
}

#[test]
fn environments_that_cannot_build_report_why() {
    let place = Place::new();
    let json = kernel_build(
        &place,
        "--env qemu-tcg,uml,sim/linux --cpus 8 --place disjoint --format json",
    )
    .json();
    let cells = json["cells"].as_array().expect("list");
    let reason = |environment: &str| {
        let mut cells = cells.iter();
        let cell = cells.find(|cell| cell["environment"] == environment);
        cell.expect("cell")["skip"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(reason("qemu-tcg").contains("is not Linux"), "{json:#}");
    assert!(
        reason("uml").contains("--cpus 8 is not supported by uml"),
        "{json:#}"
    );
    assert!(reason("sim/linux").contains("has one CPU"), "{json:#}");
    let table = kernel_build(&place, "--env qemu-tcg --cpus 1");
    assert_eq!(table.status, Some(4), "{table:?}");
    let reason = "qemu-tcg: a kernel build is not supported by qemu-tcg, as it runs the image";
    assert!(table.stdout.contains(reason), "{}", table.stdout);
}

#[test]
#[ignore = "slow: builds a kernel twice"]
fn repeated_host_builds_have_the_same_proof() {
    let place = Place::new();
    let words = "--env host --size mini --cpus 1 --place same --boots 2 --format json";
    let result = place.run_storing("kernel-build", words);
    let json = result.json();
    let cell = &json["cells"][0];
    if let Some(reason) = cell["skip"].as_str() {
        return skip(FEATURE, reason);
    }
    assert_eq!(result.status, Some(0), "{result:?}");
    assert_eq!(cell["boots"], 2, "{json:#}");
    let builds = stored(&place.store());
    assert_eq!(builds.len(), 2, "{json:#}");
    for (took, own, proof) in &builds {
        assert_eq!(*proof, builds[0].2, "{json:#}");
        // The guest excludes its start and exit; its clock has a calibration of its own.
        let (took, own) = (*took as f64, *own as f64);
        assert!(0.0 < own && own <= 1.01 * took, "{took} and {own}");
    }
    let facts = &json["environments"]["host:jobs=1,place=same"]["facts"];
    assert_eq!(facts["build-size"], "mini", "{json:#}");
    assert_eq!(facts["build-objects"], "30", "{json:#}");
    let table = place.run_storing("show", "--format table");
    assert!(table.stdout.contains("\n host  "), "{}", table.stdout);
    assert_fits_80_columns(&table.stdout);
}

/// Returns clocks and checksum of each stored build.
fn stored(store: &Path) -> Vec<(i64, i64, i64)> {
    let Ok(connection) = Connection::open(store) else {
        return Vec::new();
    };
    let sql = "SELECT elapsed_ns, elapsed_ticks, checksum FROM operations
               WHERE operation = 'kernel-build/mini' AND outcome = 'measured' ORDER BY id";
    let Ok(mut statement) = connection.prepare(sql) else {
        return Vec::new();
    };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.expect("rows").flatten().collect()
}

#[test]
#[ignore = "slow: make test-all"]
fn killed_plan_of_builds_is_resumed() {
    let place = Place::new();
    let plan = place.path().join("builds.toml");
    let text = "about = 'a test'\nenvironments = ['host']\nboots = 2\n\
                [kernel-build]\nsize = 'mini'\ncpus = [1]\nplace = ['same']";
    std::fs::write(&plan, text).expect("write succeeds");
    let (plan, store) = (plan.to_str().expect("text"), place.store());
    let words = [
        "run",
        plan,
        "--quiet",
        "--format",
        "json",
        "--store",
        store.to_str().expect("text"),
    ];
    let checked = place.run(&["plan", "check", plan, "--format", "json"]);
    let checked = checked.json();
    if let Some(reason) = checked["contenders"][0]["skip"].as_str() {
        return skip(FEATURE, reason);
    }
    assert_eq!(
        (&checked["boots"], &checked["blocks"]),
        (&2.into(), &2.into())
    );
    let mut lab = place.trapline(&words);
    let mut lab = lab.spawn().expect("trapline starts");
    let begun = wait_until(PREPARED, || !stored(&store).is_empty());
    lab.kill().expect("file is owned by the test");
    lab.wait().expect("file is owned by the test");
    assert!(begun, "nothing was built");
    let before = stored(&store);
    let result = place.run(&words);
    assert_eq!(result.status, Some(0), "{result:?}");
    let finished = before.len() == 2;
    let json = "resuming run 1: 1 boots are stored";
    assert!(
        finished || result.stderr.contains(json),
        "{}",
        result.stderr
    );
    let after = stored(&store);
    assert_eq!(after[..before.len()], before[..], "stored builds are kept");
    let cell = &result.json()["cells"][0];
    assert_eq!(cell["boots"], 2, "{cell:#}");
    let again = place.run_storing("show", "--format json");
    assert_eq!(again.stdout, result.stdout, "show prints the stored run");
    assert_usable_as_others(&place);
}

/// Stored builds have all formats and commands of other runs.
fn assert_usable_as_others(place: &Place) {
    for format in ["csv", "junit", "openmetrics", "bencher", "markdown"] {
        let shown = place.run_storing("show", &format!("--format {format}"));
        let text = format!("{}{}", shown.stdout, shown.stderr);
        assert!(text.contains("mini"), "{format}: {text}");
    }
    let samples = place.path().join("samples.parquet");
    let export = place.run_storing("export", samples.to_str().expect("path is UTF-8"));
    assert!(export.stdout.contains("2 samples of run 1"), "{export:?}");
    let history = place.run_storing("history", "--format table");
    assert!(history.stdout.contains("of 1 series"), "{history:?}");
    let sides = "1/host:jobs=1,place=same 1/host:jobs=1,place=same";
    let compared = place.run_storing("compare", sides);
    assert!(compared.stdout.contains("kernel-build"), "{compared:?}");
}

#[test]
#[ignore = "slow: make test-all"]
fn interrupted_build_leaves_no_processes() {
    let place = Place::new();
    for how in [libc::SIGKILL, libc::SIGINT] {
        let words = [
            "kernel-build",
            "--env",
            "host",
            "--cpus",
            "1",
            "--boots",
            "50",
        ];
        let mut lab = place.trapline(&words);
        let mut lab = lab.spawn().expect("trapline starts");
        let builds = || !naming(&place.parts().join("trapline-agent")).is_empty();
        // The agent unpacks the source first, and the first one on a host is prepared.
        let make = || descendants(lab.id(), "make");
        let begun = wait_until(PREPARED, || !make().is_empty());
        let make = make();
        signal(&lab, how);
        let result = lab.wait().expect("child can be reaped");
        let status = if how == libc::SIGINT { Some(130) } else { None };
        assert!(begun && result.code() == status, "signal {how}: {result}");
        let gone = wait_until(TO_BEGIN, || {
            !builds() && !make.iter().any(|process| is_running(*process))
        });
        let left = naming(&place.parts());
        assert!(gone, "signal {how} left {left:?} or of {make:?}");
    }
}
