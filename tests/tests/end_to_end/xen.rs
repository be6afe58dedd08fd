//! Xen on both simulated machines: missing packages, failed boots, and settings of its domains.

use std::path::{Path, PathBuf};
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::{has_bochs, has_qemu, on_path, write_program};

/// Command lines that run a Xen domain on QEMU and on Bochs.
const XEN: [&str; 6] = on("sim/xen-pvh");
const XEN_ON_INTEL: [&str; 6] = on("sim-vmx/xen-pvh");

const fn on(environment: &'static str) -> [&'static str; 6] {
    [
        "run",
        "-q",
        "--env",
        environment,
        "--workload",
        "exits/cpuid",
    ]
}

/// Returns the command lines for emulators of this host; records `feature` as skipped for others.
fn machines(feature: &str) -> Vec<[&'static str; 6]> {
    let qemu = has_qemu(feature).then_some(XEN);
    let bochs = has_bochs(feature).then_some(XEN_ON_INTEL);
    qemu.into_iter().chain(bochs).collect()
}

/// Runs `trapline WORD...` with a cache in the test's directory.
fn run(place: &Place, words: &[&str]) -> CommandOutput {
    let store = place.store();
    let store = store.to_str().expect("path is UTF-8");
    let words = [words, &["--store", store]].concat();
    let mut command = place.trapline(&words);
    let output = command.env("XDG_CACHE_HOME", cache(place)).output();
    CommandOutput::from(output.expect("trapline starts"))
}

fn cache(place: &Place) -> PathBuf {
    place.path().join("cache")
}

/// Puts a script before a program of the host in $PATH.
fn replace(place: &Place, program: &str, script: &str) {
    let bin = place.path().join("bin");
    std::fs::create_dir_all(&bin).expect("file is owned by the test");
    let path = bin.join(program);
    write_program(&path, format!("#!/bin/sh\n{script}\n"));
}

#[track_caller]
fn assert_says(result: &CommandOutput, words: &[&str]) {
    let all = [&*result.stdout, &*result.stderr].concat();
    let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in words {
        assert!(all.contains(words), "no '{words}' in {result:?}");
    }
}

#[test]
fn missing_xen_packages_are_a_skip_with_a_remedy() {
    for words in machines("a Xen that is not known") {
        let place = Place::new();
        replace(&place, "apt-cache", "");
        let result = run(&place, &words);
        assert_eq!(result.status, Some(4), "{result:?}");
        assert_says(
            &result,
            &[
                "no Xen package (xen-hypervisor-VERSION-amd64) is known",
                "sudo apt-get update",
            ],
        );
    }
}

/// An apt-cache that lists Xen and a kernel. The real one takes seconds for their dependencies.
const APT_CACHE: &str = "case $1 in
depends)
    echo xen-hypervisor-4.17-amd64
    echo linux-image-amd64
    echo '  Depends: linux-image-6.1.0-1-amd64' ;;
*) exit 100 ;;
esac";

#[test]
fn failed_download_of_xen_leaves_no_files() {
    for words in machines("a Xen that cannot be downloaded") {
        let place = Place::new();
        replace(&place, "apt-cache", APT_CACHE);
        replace(
            &place,
            "apt-get",
            "echo \"E: Temporary failure resolving 'a mirror'\" >&2; exit 100",
        );
        let result = run(&place, &words);
        assert_says(
            &result,
            &["Temporary failure resolving 'a mirror'", "apt-get"],
        );
        let entries = std::fs::read_dir(cache(&place).join("trapline/xen"));
        assert_eq!(entries.map_or(0, Iterator::count), 0);
    }
}

/// Links the user's Xen with some programs replaced. If it is not downloaded yet, `words` do that.
fn alter(place: &Place, words: &[&str], replaced: &[(&str, &Path)]) {
    let home = || PathBuf::from(std::env::var_os("HOME").expect("$HOME")).join(".cache");
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let kept = base.unwrap_or_else(home).join("trapline/xen");
    let is_whole = |path: &PathBuf| path.join("modules").is_file();
    let find = || {
        let mut entries = std::fs::read_dir(&kept).into_iter().flatten().flatten();
        entries.find_map(|entry| Some(entry.path()).filter(is_whole))
    };
    let found = find().or_else(|| {
        let result = Place::new().run(words);
        assert_eq!(result.status, Some(0), "{result:?}");
        find()
    });
    let found = found.expect("Xen is downloaded");
    let copy = cache(place)
        .join("trapline/xen")
        .join(found.file_name().expect("name"));
    std::fs::create_dir_all(copy.join("programs")).expect("file is owned by the test");
    for entry in std::fs::read_dir(&found).expect("file exists").flatten() {
        if entry.file_name() != "programs" {
            link(&entry.path(), &copy.join(entry.file_name()));
        }
    }
    for entry in std::fs::read_dir(found.join("programs"))
        .expect("file exists")
        .flatten()
    {
        let name = entry.file_name();
        let other = replaced.iter().find(|(program, _)| *program == name);
        let target = other.map_or(entry.path(), |(_, path)| path.to_path_buf());
        link(&target, &copy.join("programs").join(name));
    }
}

fn link(target: &Path, name: &Path) {
    std::os::unix::fs::symlink(target, name).expect("path is unused");
}

#[test]
#[ignore = "slow: make test-all"]
fn failed_daemon_of_dom0_is_reported() {
    let feature = "a first domain without a daemon";
    let program = on_path("false").expect("false(1) is everywhere");
    for words in machines(feature) {
        // The daemons are the same on both machines; one suffices on the slower.
        let names: &[&str] = match words {
            XEN => &["xenstored", "xl"],
            _ => &["xl"],
        };
        for name in names {
            let place = Place::new();
            alter(&place, &words, &[(name, &program)]);
            let result = run(&place, &[&words[..], &["--fresh"]].concat());
            assert_eq!(result.status, Some(1), "{result:?}");
            let reason = format!("/trapline/xen/{name}: exit status: 1");
            assert_says(&result, &["line", &reason]);
        }
    }
}

/// Xen would wait for five seconds before it resets the machine, which takes minutes in Bochs.
#[test]
#[ignore = "slow: make test-all"]
fn panic_of_dom0_ends_the_machine_and_is_reported() {
    let feature = "a first domain that panics";
    let place = Place::new();
    if !has_bochs(feature) {
        return;
    }
    alter(&place, &XEN_ON_INTEL, &[]);
    // An init that exits at once.
    let probe = std::fs::read(place.parts().join("trapline-probe"));
    place.replace("trapline-agent", &probe.expect("part is built"));
    let result = run(&place, &XEN_ON_INTEL);
    assert_eq!(result.status, Some(1), "{result:?}");
    assert_says(&result, &["its Linux stopped", "Attempted to kill init"]);
}

#[test]
fn exceeded_deadline_is_reported_with_the_option_to_raise_it() {
    let feature = "a Xen that boots too slowly";
    for words in machines(feature) {
        let place = Place::new();
        alter(&place, &words, &[]);
        let words = [&words[..], &["--fresh", "--timeout", "1"]].concat();
        let result = run(&place, &words);
        assert_eq!(result.status, Some(1), "{result:?}");
        assert_says(&result, &["timed out after 1 s", "--timeout"]);
    }
}

#[test]
fn xen_settings_are_a_skip_elsewhere() {
    let place = Place::new();
    let words = [
        "run",
        "-q",
        "--env",
        "host,sim",
        "--workload",
        "basic/getpid",
    ];
    let result = place.run(&[&words[..], &["--sched", "credit", "--cap", "25"]].concat());
    assert_eq!(result.status, Some(4), "{result:?}");
    for id in ["host", "sim"] {
        let reason = format!(
            "--sched credit --cap 25 is not supported by {id}, as Xen does not schedule it: leave it out"
        );
        assert_says(&result, &[&reason, "choose from sim/xen-pvh"]);
    }
}

#[test]
fn figures_of_other_settings_are_not_compared() {
    let place = Place::new();
    let kept = |facts: &str| {
        let text = format!(
            "{{\"trapline-baseline\": 2, \"trapline\": \"0\", \"workload\": \"exits/cpuid\", \
             \"environments\": {{\"sim/xen-pvh\": {{\"facts\": {{{facts}}}, \
             \"figures\": {{\"insn\": {{\"exits/cpuid\": 1.0}}}}}}}}}}"
        );
        let file = place.path().join("baseline.json");
        std::fs::write(&file, text).expect("file is owned by the test");
        file
    };
    for (facts, words, message) in [
        (
            "",
            &["--cap", "25"][..],
            "was measured without --sched, --cap and --weight, not with --cap 25",
        ),
        (
            "\"scheduler\": \"credit\", \"scheduler-cap\": \"25\"",
            &[],
            "was measured with --sched credit --cap 25, not without",
        ),
    ] {
        let file = kept(facts);
        let file = file.to_str().expect("path is UTF-8");
        let result = place.run(&[&["check", "-q", "--baseline", file], words].concat());
        assert_eq!(result.status, Some(2), "{result:?}");
        assert_says(&result, &[message, "make another with 'trapline baseline'"]);
    }
}
