//! Several hosts. Another one is played by this one in a mount namespace with another boot id of its kernel.

use serde_json::{json, Value};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trapline_store::Store;
use trapline_tests::measurements::{cell, cells};
use trapline_tests::processes::{signal, wait_until};
use trapline_tests::run::{assert_fits_80_columns, CommandOutput, Place};
use trapline_tests::skip;

/// A plan that is measured longer than a test takes, if nothing ends it.
const PLAN: &str = "environments = ['host']\nworkloads = ['basic/getpid']\nboots = 10000";

/// Returns the words of a command that measures the plan.
fn words(place: &Place) -> [String; 4] {
    let (plan, store) = (place.path().join("plan.toml"), place.store());
    fs::write(&plan, PLAN).expect("file can be written");
    let [plan, store] = [plan, store].map(|path| path.to_str().expect("path is UTF-8").to_owned());
    ["run".to_owned(), plan, "--store".to_owned(), store]
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
    let words = words(&place);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
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
    let words = words(&place);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    end(start(&place, &mut place.trapline(&words)), libc::SIGINT);
    let mut second = on_another(&place, "there", &words);
    let second = end(start(&place, &mut second), libc::SIGINT);
    let text = "run 1 of the same request is unfinished and of other hosts: starting another";
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

/// Plans whose exact figures, and whose blocks of the wall clock, are divided.
const SLICED: &str =
    "environments = ['host', 'process', 'sim']\nworkloads = ['basic/getpid', 'basic/yield']\n\
                      boots = 6\nexact-boots = 2\nseed = 3";

/// Measures every slice on a host of its own, and returns the stores.
fn sliced(place: &Place, plan: &str, of: usize) -> Vec<String> {
    let slices = 1..=of;
    let stores = slices.map(|number| {
        let store = place.path().join(format!("slice-{number}.db"));
        let store = store.to_str().expect("path is UTF-8").to_owned();
        let slice = format!("{number}/{of}");
        let words = ["run", "-q", plan, "--slice", &slice, "--store", &store];
        let mut command = place.trapline(&words);
        let done = output(command.env("TRAPLINE_HOST", format!("host-{number}")));
        assert_eq!(done.status, Some(0), "{done:?}");
        store
    });
    stores.collect()
}

fn exact_rows(run: &Value) -> Vec<&Value> {
    let rows = cells(run).iter().filter(|cell| cell["clock"] == "insn");
    rows.collect()
}

#[test]
fn slices_of_four_hosts_are_the_serial_run() {
    let place = Place::reproducing();
    let plan = place.path().join("plan.toml");
    fs::write(&plan, SLICED).expect("file can be written");
    let plan = plan.to_str().expect("path is UTF-8");
    let stores = sliced(&place, plan, 4);
    let merged = place.path().join("merged.db");
    let merged = merged.to_str().expect("path is UTF-8");
    let mut words = vec!["store", "merge", merged];
    words.extend(stores.iter().map(String::as_str));
    let merging = place.run(&words);
    // Six blocks of two configurations, and figure and proof of one.
    let expected = format!("Run 1: 14 boots of 4 hosts.\ntrapline show --store {merged} --run 1\n");
    assert_eq!(
        (merging.status, merging.stdout.as_str()),
        (Some(0), expected.as_str())
    );
    let show = |store: &str, words: &[&str]| {
        let fixed = ["show", "--store", store, "--format", "json"];
        place.run(&[&fixed[..], words].concat())
    };
    let whole = show(merged, &[]).json();
    let serial = place.path().join("serial.db");
    let serial = serial.to_str().expect("path is UTF-8");
    let serial_run = place.run(&["run", "-q", plan, "--store", serial, "--format", "json"]);
    let serial_run = serial_run.json();
    let rows = exact_rows(&whole);
    assert_eq!((rows.len(), rows), (2, exact_rows(&serial_run)));
    let hosts = whole["hosts"].as_array().into_iter().flatten();
    let mut hosts: Vec<_> = hosts
        .map(|host| json!([host["name"], host["boots"]]))
        .collect();
    hosts.sort_by_key(Value::to_string);
    let expected = [("host-1", 5), ("host-2", 5), ("host-3", 2), ("host-4", 2)];
    assert_eq!(hosts, expected.map(|(name, boots)| json!([name, boots])));
    let text = place.run(&["show", "--store", merged]);
    for words in ["Wall clock: median over hosts", "4 hosts of 1 kind"] {
        assert!(text.stdout.contains(words), "{words}: {}", text.stdout);
    }
    assert_fits_80_columns(&text.stdout);
    let of_one = show(merged, &["--host", "host-2"]).json();
    assert_eq!(of_one["hosts"].as_array().map(Vec::len), Some(1));
    let boots = |run: &Value| cell(run, "host", "basic/getpid")["boots"].clone();
    assert_eq!((boots(&of_one), boots(&whole)), (json!(2), json!(6)));
    let unknown = show(merged, &["--host", "host-9"]);
    assert_eq!(unknown.status, Some(2));
    assert!(
        unknown.stderr.contains("its hosts are host-"),
        "{unknown:?}"
    );
    assert_merging_says_what_is_missing(&place, [merged, serial], &stores);
}

/// A slice is not finished by another one, and is not taken for another run.
fn assert_merging_says_what_is_missing(
    place: &Place,
    [merged, serial]: [&str; 2],
    stores: &[String],
) {
    let again = place.run(&["store", "merge", serial, &stores[0], &stores[0], &stores[2]]);
    assert!(
        again.stdout.contains("5 boots of several of the runs"),
        "{again:?}"
    );
    assert!(
        again.stdout.contains("Missing slices: 2/4, 4/4."),
        "{again:?}"
    );
    let itself = place.run(&["store", "merge", merged, &format!("{merged}#1")]);
    assert!(
        itself
            .stderr
            .contains("is in the file to which the run is added"),
        "{itself:?}"
    );
    let refused = place.run(&["store", "merge", merged, &format!("{serial}#1"), &stores[0]]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let reason = format!(
        "{}: it is one of 4 slices, which are others than {serial}#1",
        stores[0]
    );
    assert!(refused.stderr.contains(&reason), "{refused:?}");
}
