//! Xen, on both simulated machines: what is said where it cannot be had or does not come
//! up, and settings of its domains that other environments do not have.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trapline_tests::run::{Ended, Place};
use trapline_tests::{has_bochs, has_qemu, on_path, skip};

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

/// Those that this host has the emulator for; of the others is said that `what` is
/// skipped.
fn machines(what: &str) -> Vec<[&'static str; 6]> {
    let qemu = has_qemu(what).then_some(XEN);
    let bochs = has_bochs(what).then_some(XEN_ON_INTEL);
    qemu.into_iter().chain(bochs).collect()
}

/// Runs `trapline WORD...` with what it keeps between runs in the place itself.
fn run(place: &Place, words: &[&str]) -> Ended {
    let store = place.store();
    let store = store.to_str().expect("the path is text");
    let words = [words, &["--store", store]].concat();
    let mut command = place.trapline(&words);
    let output = command.env("XDG_CACHE_HOME", cache(place)).output();
    Ended::from(output.expect("trapline can be started"))
}

fn cache(place: &Place) -> PathBuf {
    place.path().join("cache")
}

/// Puts a program of the test's own before one of the host.
fn replace(place: &Place, program: &str, script: &str) {
    let bin = place.path().join("bin");
    std::fs::create_dir_all(&bin).expect("it is ours");
    let path = bin.join(program);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("it is ours");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}

#[track_caller]
fn assert_says(ended: &Ended, words: &[&str]) {
    let all = [&*ended.output, &*ended.errors].concat();
    let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in words {
        assert!(all.contains(words), "no '{words}' in {ended:?}");
    }
}

#[test]
fn missing_xen_packages_are_a_skip_with_a_remedy() {
    for words in machines("a Xen that is not known") {
        let place = Place::new();
        replace(&place, "apt-cache", "");
        let ended = run(&place, &words);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert_says(
            &ended,
            &[
                "no Xen package (xen-hypervisor-VERSION-amd64) is known",
                "sudo apt-get update",
            ],
        );
    }
}

#[test]
fn failed_download_of_xen_leaves_no_files() {
    let what = "a Xen that cannot be fetched";
    if on_path("apt-cache").is_none() {
        return skip(what, "there is no apt-cache");
    }
    for words in machines(what) {
        let place = Place::new();
        replace(
            &place,
            "apt-get",
            "echo \"E: Temporary failure resolving 'a mirror'\" >&2; exit 100",
        );
        let ended = run(&place, &words);
        if ended.output.contains("no Xen package") {
            return skip(what, "the distribution has no Xen");
        }
        assert_says(
            &ended,
            &["Temporary failure resolving 'a mirror'", "apt-get"],
        );
        let entries = std::fs::read_dir(cache(&place).join("trapline/xen"));
        assert_eq!(entries.map_or(0, Iterator::count), 0);
    }
}

/// The user's Xen with some programs replaced; `None` where there is none.
fn altered(place: &Place, what: &str, replaced: &[(&str, &Path)]) -> Option<()> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let kept = base.or_else(home)?.join("trapline/xen");
    let mut entries = std::fs::read_dir(kept).into_iter().flatten().flatten();
    let is_whole = |path: &PathBuf| path.join("modules").is_file();
    let Some(found) = entries.find_map(|entry| Some(entry.path()).filter(is_whole)) else {
        skip(what, "no Xen was fetched yet");
        return None;
    };
    let copy = cache(place).join("trapline/xen").join(found.file_name()?);
    std::fs::create_dir_all(copy.join("programs")).expect("it is ours");
    for entry in std::fs::read_dir(&found).expect("it is there").flatten() {
        if entry.file_name() != "programs" {
            link(&entry.path(), &copy.join(entry.file_name()));
        }
    }
    for entry in std::fs::read_dir(found.join("programs"))
        .expect("it is there")
        .flatten()
    {
        let name = entry.file_name();
        let other = replaced.iter().find(|(program, _)| *program == name);
        let target = other.map_or(entry.path(), |(_, path)| path.to_path_buf());
        link(&target, &copy.join("programs").join(name));
    }
    Some(())
}

fn link(target: &Path, name: &Path) {
    std::os::unix::fs::symlink(target, name).expect("the link is new");
}

/// The exit status of the failed daemon or toolstack is reported with its name.
#[test]
#[ignore = "slow: make test-all"]
fn failed_daemon_of_dom0_is_reported() {
    let what = "a first domain without a daemon";
    let Some(program) = on_path("false") else {
        return skip(what, "there is no program that only fails");
    };
    for words in machines(what) {
        // What fails is the same on both machines; the second takes long to get there.
        let names: &[&str] = match words {
            XEN => &["xenstored", "xl"],
            _ => &["xl"],
        };
        for name in names {
            let place = Place::new();
            if altered(&place, what, &[(name, &program)]).is_none() {
                return;
            }
            let ended = run(&place, &[&words[..], &["--fresh"]].concat());
            assert_eq!(ended.status, Some(1), "{ended:?}");
            let told = format!("/trapline/xen/{name}: exit status: 1");
            assert_says(&ended, &["line", &told]);
        }
    }
}

/// A machine whose first domain cannot go on ends by itself, and its last words are told.
/// Xen waits for five seconds before that, which takes QEMU's machine minutes.
#[test]
#[ignore = "slow: make test-all"]
fn panic_of_dom0_ends_the_machine_and_is_reported() {
    let what = "a first domain that panics";
    let place = Place::new();
    if !has_bochs(what) || altered(&place, what, &[]).is_none() {
        return;
    }
    // An init that only asks what the processor is, and ends.
    let probe = std::fs::read(place.parts().join("trapline-probe"));
    place.replace("trapline-agent", &probe.expect("it is built"));
    let ended = run(&place, &XEN_ON_INTEL);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert_says(&ended, &["its Linux stopped", "Attempted to kill init"]);
}

#[test]
fn exceeded_deadline_is_reported_with_the_option_to_raise_it() {
    let what = "a Xen that boots too slowly";
    for words in machines(what) {
        let place = Place::new();
        if altered(&place, what, &[]).is_none() {
            return;
        }
        let words = [&words[..], &["--fresh", "--timeout", "1"]].concat();
        let ended = run(&place, &words);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert_says(&ended, &["timed out after 1 s", "--timeout"]);
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
    let ended = place.run(&[&words[..], &["--sched", "credit", "--cap", "25"]].concat());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    for id in ["host", "sim"] {
        let told = format!("--sched credit --cap 25 is not supported by {id}: leave it out");
        assert_says(&ended, &[&told, "choose from sim/xen-pvh"]);
    }
}

/// Nothing is measured for that.
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
        std::fs::write(&file, text).expect("it is ours");
        file
    };
    for (facts, words, told) in [
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
        let file = file.to_str().expect("the path is text");
        let ended = place.run(&[&["check", "-q", "--baseline", file], words].concat());
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert_says(&ended, &[told, "make another with 'trapline baseline'"]);
    }
}
