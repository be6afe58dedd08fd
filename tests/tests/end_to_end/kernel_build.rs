//! `trapline kernel-build`: reproducible builds of kernel files, environments that cannot build, and
//! interrupted builds.
//!
//! The first run on a host downloads and prepares compiler and source into the user's cache, which takes
//! a minute or two.

use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;
use trapline_tests::processes::{naming, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{assert_fits_80_columns, CommandOutput, Place};
use trapline_tests::skip;

const FEATURE: &str = "building a kernel";

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
    assert!(
        table
            .stdout
            .contains("qemu-tcg 1(s), qemu-tcg 1(d) not built: "),
        "{}",
        table.stdout
    );
}

#[test]
#[ignore = "slow: builds a kernel twice"]
fn repeated_host_builds_have_the_same_proof() {
    let place = Place::new();
    let words = "--env host --size mini --cpus 1 --place same --boots 2";
    let result = kernel_build(&place, &format!("{words} --format json"));
    let json = result.json();
    let cell = &json["cells"][0];
    if let Some(reason) = cell["skip"].as_str() {
        return skip(FEATURE, reason);
    }
    assert_eq!(result.status, Some(0), "{result:?}");
    let builds = cell["builds"].as_array().expect("list");
    assert_eq!(builds.len(), 2, "{json:#}");
    for build in builds {
        assert_eq!(build["objects"], 30, "{json:#}");
        assert_eq!(build["proof"], builds[0]["proof"], "{json:#}");
        let (took, own) = (build["took"].as_f64(), build["own_ns"].as_f64());
        let (took, own) = (took.expect("number"), own.expect("number"));
        // The guest excludes its start and exit; its clock has a calibration of its own.
        assert!(0.0 < own && own <= 1.01 * took, "{json:#}");
    }
    assert_eq!(json["facts"]["build-size"], "mini");
    let table = kernel_build(&place, &words.replace("--boots 2", "--boots 1"));
    assert!(table.stdout.contains("\n host  "), "{}", table.stdout);
    assert_fits_80_columns(&table.stdout);
}

/// Returns clocks and proof of each stored build.
fn stored(store: &Path) -> Vec<(i64, i64, String)> {
    let Ok(connection) = Connection::open(store) else {
        return Vec::new();
    };
    let sql = "SELECT took, own_ns, proof FROM builds WHERE outcome = 'done' ORDER BY id";
    let Ok(mut statement) = connection.prepare(sql) else {
        return Vec::new();
    };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.expect("rows").flatten().collect()
}

#[expect(clippy::too_many_lines, reason = "one run serves all checks")]
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
    let refused = place.run_storing("run", &format!("{plan} --format csv"));
    assert_eq!(refused.status, Some(2), "rejected before the first build");
    let mut lab = place.trapline(&words);
    let mut lab = lab.spawn().expect("trapline starts");
    // The first build may prepare the source.
    let begun = wait_until(Duration::from_secs(600), || !stored(&store).is_empty());
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
    assert_eq!(cell["builds"].as_array().map(Vec::len), Some(2), "{cell:#}");
    let again = place.run_storing("show", "--format json");
    assert_eq!(again.stdout, result.stdout, "show prints the stored run");
    let other = place.run_storing("show", "--format csv");
    assert_eq!((other.status, other.stdout.as_str()), (Some(2), ""));
    assert!(
        other.stderr.contains("choose table, json or markdown"),
        "{}",
        other.stderr
    );
    let samples = place.path().join("samples.csv");
    let words = samples.to_str().expect("path is UTF-8");
    let export = place.run_storing("export", words);
    let json = "has no samples";
    assert!(export.stderr.contains(json), "{}", export.stderr);
    assert!(!samples.exists());
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
        let begun = wait_until(TO_BEGIN, builds);
        // It unpacks the source, then runs make.
        std::thread::sleep(Duration::from_millis(1500));
        signal(&lab, how);
        let result = lab.wait().expect("child can be reaped");
        let status = if how == libc::SIGINT { Some(130) } else { None };
        assert!(begun && result.code() == status, "signal {how}: {result}");
        let gone = wait_until(TO_BEGIN, || !builds());
        assert!(gone, "signal {how} left {:?}", naming(&place.parts()));
    }
}
