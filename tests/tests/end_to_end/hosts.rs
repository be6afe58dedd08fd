//! Several hosts. Another one is played by this one in a mount namespace with another boot id of its kernel.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trapline_store::Store;
use trapline_tests::processes::{signal, wait_until};
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::skip;

/// A plan that is measured longer than a test takes, if nothing ends it.
const PLAN: &str = "environments = ['host']\nworkloads = ['basic/getpid']\nboots = 10000";

fn plan(place: &Place) -> String {
    let file = place.path().join("plan.toml");
    fs::write(&file, PLAN).expect("file can be written");
    file.to_str().expect("path is UTF-8").to_owned()
}

/// Returns whether a mount namespace can be made; otherwise records that `subject` was skipped.
fn can_play(subject: &str) -> bool {
    let made = Command::new("unshare").args(["--mount", "true"]).output();
    let can = made.is_ok_and(|made| made.status.success());
    if !can {
        skip(subject, "unshare --mount fails: it needs root");
    }
    can
}

/// Returns a command of trapline on another host of this name.
fn on_another(place: &Place, host: &str, words: &[&str]) -> Command {
    let boot = place.path().join("boot");
    fs::write(&boot, host).expect("file can be written");
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let trapline = place.trapline(words);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(boot);
    command
        .arg(trapline.get_program())
        .args(trapline.get_args());
    for (name, value) in trapline.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("TRAPLINE_HOST", host).stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> CommandOutput {
    CommandOutput::from(command.output().expect("trapline starts"))
}

/// Number of boots in the store.
fn boots(place: &Place) -> u64 {
    let store = Store::open_existing(&place.store()).ok();
    let runs = store.and_then(|mut store| store.runs().ok());
    runs.unwrap_or_default().iter().map(|run| run.boots).sum()
}

/// Starts a command and waits until it has stored a boot.
fn start(place: &Place, command: &mut Command) -> Child {
    let before = boots(place);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let has_boot = wait_until(Duration::from_secs(600), || boots(place) > before);
    assert!(has_boot, "no boot");
    child.expect("trapline starts")
}

/// Sends a signal to a command, and returns its output.
fn end(child: Child, number: i32) -> CommandOutput {
    signal(&child, number);
    CommandOutput::from(child.wait_with_output().expect("a child"))
}

#[test]
fn second_host_is_refused_while_the_first_one_measures() {
    if !can_play("a second host") {
        return;
    }
    let place = Place::new();
    let (plan, store) = (plan(&place), place.store());
    let store = store.to_str().expect("path is UTF-8");
    let words = ["run", &plan, "--store", store];
    let first = start(&place, &mut place.trapline(&words));
    let refused = output(&mut on_another(&place, "there", &words));
    assert_eq!(end(first, libc::SIGKILL).status, None);
    // Nothing says so on another host.
    let refused_still = output(&mut on_another(&place, "there", &words));
    for output in [&refused, &refused_still] {
        assert_eq!(output.status, Some(2), "{output:?}");
        for text in [
            "run 1 of it is being measured on another host (",
            "s ago",
            "\n  help: wait until that run ends, or give each host a store of its own: --store FILE",
        ] {
            assert!(output.stderr.contains(text), "{text}: {output:?}");
        }
    }
    // Here the process can be seen to have ended.
    let again = end(start(&place, &mut place.trapline(&words)), libc::SIGINT);
    assert!(again.stderr.contains("resuming run 1: "), "{again:?}");
    let mut store = Store::open_existing(&place.store()).expect("store exists");
    let runs = store.runs().expect("readable store");
    assert_eq!(runs.len(), 1, "{runs:?}");
    let mut booted = store.booted(runs[0].id).expect("readable run");
    let all = booted.len();
    booted.sort();
    booted.dedup();
    assert_eq!(booted.len(), all, "a boot was stored twice");
}

#[test]
fn run_that_was_interrupted_elsewhere_is_not_resumed() {
    if !can_play("a second host") {
        return;
    }
    let place = Place::new();
    let (plan, store) = (plan(&place), place.store());
    let store = store.to_str().expect("path is UTF-8");
    let words = ["run", &plan, "--store", store];
    end(start(&place, &mut place.trapline(&words)), libc::SIGINT);
    let mut second = on_another(&place, "there", &words);
    let second = end(start(&place, &mut second), libc::SIGINT);
    let text = "run 1 of the same request was left unfinished on another host: starting another";
    assert!(second.stderr.contains(text), "{second:?}");
    let mut store = Store::open_existing(&place.store()).expect("store exists");
    let runs = store.runs().expect("readable store");
    let hosts = runs
        .iter()
        .map(|run| store.load(run.id).expect("readable run").hosts);
    let hosts: Vec<_> = hosts.collect();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    let names = |of: usize| {
        hosts[of]
            .values()
            .map(|host| host.label())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(1), ["there"]);
    assert_ne!(names(0), names(1));
    let facts = |of: usize| hosts[of].values().next().map(|host| &host.facts);
    assert_eq!(facts(0), facts(1), "both are this machine");
}
