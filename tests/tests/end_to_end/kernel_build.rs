//! `trapline kernel-build` as people use it: a real compiler builds real files of a real
//! kernel, twice the same; what cannot be built has a reason, and who is killed leaves
//! nothing behind.
//!
//! The first run on a machine fetches compiler and source and prepares them, which takes
//! a minute or two; they are kept in the user's cache.

use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;
use trapline_tests::processes::{naming, signal, wait_until};
use trapline_tests::run::{Ended, Place};
use trapline_tests::skip;

const WHAT: &str = "building a kernel";

fn kernel_build(place: &Place, words: &str) -> Ended {
    let all: Vec<_> = ["kernel-build"]
        .into_iter()
        .chain(words.split(' '))
        .collect();
    place.run(&all)
}

#[test]
fn invalid_options_are_rejected() {
    let place = Place::new();
    for (words, told) in [
        ("--size huge", "choose from mini, tiny, def"),
        ("--size tni", "did you mean 'tiny'?"),
        ("--cpus 0", "'0'"),
        ("--cpus 9", "'9'"),
        ("--place there", "choose from same, disjoint"),
        ("--env sim/kmv/linux", "did you mean 'sim/kvm/linux'?"),
        ("--boots 0", "--boots"),
    ] {
        let ended = kernel_build(&place, words);
        assert_eq!(ended.status, Some(2), "{words}: {ended:?}");
        assert!(ended.errors.contains(told), "{words}: {}", ended.errors);
    }
}

#[test]
fn environments_that_cannot_build_report_why() {
    let place = Place::new();
    let told = kernel_build(
        &place,
        "--env qemu-tcg,uml,sim/linux --cpus 8 --place disjoint --format json",
    )
    .json();
    let cells = told["cells"].as_array().expect("a list");
    let reason = |environment: &str| {
        let mut cells = cells.iter();
        let cell = cells.find(|cell| cell["environment"] == environment);
        cell.expect("a cell")["skip"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(reason("qemu-tcg").contains("has no processes"), "{told:#}");
    assert!(
        reason("uml").contains("--cpus 8 is not supported by uml"),
        "{told:#}"
    );
    assert!(reason("sim/linux").contains("has one CPU"), "{told:#}");
    let table = kernel_build(&place, "--env qemu-tcg --cpus 1");
    assert_eq!(table.status, Some(0), "{table:?}");
    assert!(
        table
            .output
            .contains("qemu-tcg 1(s), qemu-tcg 1(d) not built: "),
        "{}",
        table.output
    );
}

#[test]
fn repeated_host_builds_have_the_same_proof() {
    let place = Place::new();
    let words = "--env host --size mini --cpus 1 --place same --boots 2";
    let ended = kernel_build(&place, &format!("{words} --format json"));
    let told = ended.json();
    let cell = &told["cells"][0];
    if let Some(reason) = cell["skip"].as_str() {
        return skip(WHAT, reason);
    }
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let builds = cell["builds"].as_array().expect("a list");
    assert_eq!(builds.len(), 2, "{told:#}");
    for build in builds {
        assert_eq!(build["objects"], 30, "{told:#}");
        assert_eq!(build["proof"], builds[0]["proof"], "{told:#}");
        let (took, own) = (build["took"].as_f64(), build["own_ns"].as_f64());
        let (took, own) = (took.expect("a number"), own.expect("a number"));
        assert!(took > 3e8, "30 files in no time: {told:#}");
        // It is the same clock, and hearing takes no hundredth of a second.
        assert!((took - own).abs() < 0.05 * took + 1e8, "{told:#}");
    }
    assert_eq!(told["facts"]["build-size"], "mini");
    let table = kernel_build(&place, &words.replace("--boots 2", "--boots 1"));
    assert!(table.output.contains("\n host  "), "{}", table.output);
    for line in table.output.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
}

/// Its clocks and proof.
fn stored(store: &Path) -> Vec<(i64, i64, String)> {
    let Ok(connection) = Connection::open(store) else {
        return Vec::new();
    };
    let sql = "SELECT took, own_ns, proof FROM builds WHERE outcome = 'done' ORDER BY id";
    let Ok(mut statement) = connection.prepare(sql) else {
        return Vec::new();
    };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.expect("they can be read").flatten().collect()
}

#[test]
#[ignore = "slow: make test-all"]
fn killed_plan_of_builds_is_resumed() {
    let place = Place::new();
    let plan = place.path().join("builds.toml");
    let text = "about = 'a test'\nenvironments = ['host']\nboots = 2\n\
                [kernel-build]\nsize = 'mini'\ncpus = [1]\nplace = ['same']";
    std::fs::write(&plan, text).expect("it can be written");
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
        return skip(WHAT, reason);
    }
    assert_eq!(
        (&checked["boots"], &checked["blocks"]),
        (&2.into(), &2.into())
    );
    let refused = place.run_storing("run", &format!("{plan} --format csv"));
    assert_eq!(refused.status, Some(2), "before anything is built");
    let mut lab = place.trapline(&words);
    let mut lab = lab.spawn().expect("trapline can be started");
    // The first build prepares what is built, if nobody has done so before.
    let begun = wait_until(Duration::from_secs(600), || !stored(&store).is_empty());
    lab.kill().expect("it is ours");
    lab.wait().expect("it is ours");
    assert!(begun, "nothing was built");
    let before = stored(&store);
    let ended = place.run(&words);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let finished = before.len() == 2;
    let told = "resuming run 1: 1 boots are stored";
    assert!(finished || ended.errors.contains(told), "{}", ended.errors);
    let after = stored(&store);
    assert_eq!(after[..before.len()], before[..], "what was built stays");
    let cell = &ended.json()["cells"][0];
    assert_eq!(cell["builds"].as_array().map(Vec::len), Some(2), "{cell:#}");
    let again = place.run_storing("show", "--format json");
    assert_eq!(again.output, ended.output, "the store has all of it");
    let other = place.run_storing("show", "--format csv");
    assert_eq!((other.status, other.output.as_str()), (Some(2), ""));
    assert!(
        other.errors.contains("choose table, json or markdown"),
        "{}",
        other.errors
    );
    let samples = place.path().join("samples.csv");
    let words = samples.to_str().expect("the path is text");
    let export = place.run_storing("export", words);
    let told = "has no samples";
    assert!(export.errors.contains(told), "{}", export.errors);
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
        let mut lab = lab.spawn().expect("trapline can be started");
        let builds = || !naming(&place.parts().join("trapline-agent")).is_empty();
        let begun = wait_until(Duration::from_secs(10), builds);
        if begun {
            // It unpacks, and then make and its children work.
            std::thread::sleep(Duration::from_millis(1500));
        }
        signal(&lab, how);
        let ended = lab.wait().expect("it was not waited for");
        let told = if how == libc::SIGINT { Some(130) } else { None };
        assert!(!begun || ended.code() == told, "signal {how}: {ended}");
        if !begun {
            return skip(WHAT, "nothing was built; another test tells why");
        }
        let gone = wait_until(Duration::from_secs(10), || !builds());
        assert!(gone, "signal {how} left {:?}", naming(&place.parts()));
    }
}
