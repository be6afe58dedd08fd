//! Stores that several hosts use.

use crate::common;

use rusqlite::Connection;
use trapline_model::{Config, Host, Observation, RecordedRequest};
use trapline_store::{Merged, NewRun, NotMergeable, Owner, Problem, Run, Store, StoreError};

fn owner(text: &str) -> Owner {
    text.parse().unwrap()
}

fn run<'a>(owner: &'a Owner, host: &'a Host) -> NewRun<'a> {
    NewRun {
        owner: Some(owner),
        host: Some(host),
        ..NewRun::default()
    }
}

#[test]
fn another_host_is_refused_while_a_run_has_a_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut first = Store::open(&path).unwrap();
    let (here, there) = (owner("a 1 1 1 here"), owner("b 2 2 1 there"));
    let host = Host::default();
    let live = first.begin_run(&run(&here, &host)).unwrap();
    let mut second = Store::open(&path).unwrap();
    let left = second.begin_run(&NewRun::default()).unwrap();
    let refused = |store: &mut Store| {
        let errors = [
            store.begin_run(&run(&there, &host)).map(drop),
            store.take_over(left, None, (&there, &host)).map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("run 1 of it is being measured on another host (here)"),
                "{error}"
            );
            assert!(matches!(
                error.problem,
                Problem::OtherHost {
                    run: 1,
                    seconds: 0,
                    ..
                }
            ));
        }
    };
    refused(&mut second);
    // Another process of the same kernel is none of another host.
    let neighbour = owner("a 7 7 2 here");
    let beside = second.begin_run(&run(&neighbour, &host)).unwrap();
    second.finish_run(beside).unwrap();
    first.finish_run(live).unwrap();
    let of_other = second.begin_run(&run(&there, &host)).unwrap();
    second.finish_run(of_other).unwrap();
}

#[test]
fn a_run_that_is_dropped_or_silent_for_a_minute_lets_other_hosts_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let (here, there) = (owner("a 1 1 1 here"), owner("b 2 2 1 there"));
    let host = Host::default();
    let begin = |owner: &Owner| {
        let mut store = Store::open(&path).unwrap();
        store.begin_run(&run(owner, &host)).map(drop)
    };
    begin(&here).unwrap();
    begin(&there).unwrap();
    let beat = |ago: &str| {
        let sql = format!("UPDATE runs SET heartbeat = unixepoch() * 1000 - {ago} WHERE id = 1");
        Connection::open(&path).unwrap().execute(&sql, ()).unwrap();
    };
    beat("50000");
    begin(&there).unwrap_err();
    beat("62000");
    begin(&there).unwrap();
}

#[test]
fn a_boot_is_stored_once_for_each_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
    let host = |id: &str| Host {
        id: id.to_owned(),
        name: format!("name of {id}"),
        facts: [("cpu".to_owned(), "a processor".to_owned())].into(),
    };
    let here = owner("a 1 1 1 here");
    let number = store.begin_run(&run(&here, &host("a"))).unwrap();
    let boot = |host: &str| Observation {
        host: host.to_owned(),
        ..common::full_boot(0)
    };
    store.add_observation(number, &boot("a")).unwrap();
    store.add_observation(number, &boot("b")).unwrap();
    let mut with_setting = boot("a");
    with_setting.config.overrides = "memory=1G".parse().unwrap();
    store.add_observation(number, &with_setting).unwrap();
    for again in [boot("a"), boot("b"), with_setting] {
        let problem = store.add_observation(number, &again).unwrap_err().problem;
        assert!(
            matches!(problem, Problem::Repeated { replicate: 0, .. }),
            "{problem:?}"
        );
    }
    let loaded = store.load(number).unwrap();
    let hosts: Vec<_> = loaded.observations.iter().map(|seen| &seen.host).collect();
    assert_eq!(hosts, ["a", "b", "a"]);
    // Nothing is known of b.
    assert_eq!(loaded.hosts, [("a".to_owned(), host("a"))].into());
}

/// A store with one finished run of a slice, which has some boots.
fn slice(slice: Option<&str>, host: &str, boots: &[u32]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
    let host = Host {
        id: host.to_owned(),
        ..Host::default()
    };
    let run = NewRun {
        seed: 7,
        version: "0.2.0",
        facts: [("parts", "x"), ("cpu", &host.id)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        request: RecordedRequest {
            slice: slice.map(str::to_owned),
            ..RecordedRequest::default()
        },
        plan: Some("a plan"),
        host: Some(&host),
        ..NewRun::default()
    };
    let number = store.begin_run(&run).unwrap();
    for replicate in boots {
        let boot = Observation {
            host: host.id.clone(),
            ..common::full_boot(*replicate)
        };
        store.add_observation(number, &boot).unwrap();
    }
    store.finish_run(number).unwrap();
    store.load(number).unwrap()
}

#[derive(Debug, PartialEq)]
enum Error {
    Store(String),
    NotMergeable(String),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<NotMergeable> for Error {
    fn from(error: NotMergeable) -> Self {
        Self::NotMergeable(error.to_string())
    }
}

fn merge(store: &mut Store, runs: &[Run]) -> Result<Merged, Error> {
    let named = runs.iter().enumerate();
    store.merge(named.map(|(number, run)| Ok((format!("{number}.db"), run.clone()))))
}

#[test]
fn slices_of_hosts_are_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
    let mut runs = [
        slice(Some("1/3"), "a", &[0, 3]),
        slice(Some("2/3"), "b", &[1, 4]),
        slice(Some("3/3"), "a", &[2]),
    ];
    let skipped: Config = "qemu-kvm".parse().unwrap();
    let measured = runs[0].observations[0].config.clone();
    let mut skips = vec![(skipped.clone(), "no QEMU".to_owned())];
    runs[0].skips = skips.clone();
    runs[1].skips = vec![
        (skipped, "no /dev/kvm".to_owned()),
        (measured, "no".to_owned()),
    ];
    let merged = merge(&mut store, &runs).unwrap();
    assert_eq!((merged.boots, merged.repeated, merged.hosts), (5, 0, 2));
    assert!(merged.unfinished.is_empty() && merged.missing.is_empty());
    let whole = store.load(merged.run).unwrap();
    let expected: Vec<_> = runs
        .iter()
        .flat_map(|run| run.observations.clone())
        .collect();
    assert_eq!(whole.observations, expected);
    assert_eq!(whole.skips, std::mem::take(&mut skips));
    assert_eq!(whole.hosts.len(), 2);
    let info = whole.info;
    assert_eq!((info.seed, info.plan.as_deref()), (7, Some("a plan")));
    assert_eq!((info.request.slice, info.version.as_str()), (None, "0.2.0"));
    // Those that all hosts have.
    assert_eq!(info.facts, [("parts".to_owned(), "x".to_owned())].into());
    let times = runs.iter().map(|run| &run.info);
    assert_eq!(
        Some(info.started_at),
        times.clone().map(|it| it.started_at).min()
    );
    assert_eq!(
        info.finished_at,
        times.filter_map(|it| it.finished_at).max()
    );
}

#[test]
fn what_is_missing_or_repeated_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
    let mut runs = [
        slice(Some("1/4"), "a", &[0, 3]),
        slice(Some("3/4"), "b", &[1]),
        slice(Some("1/4"), "a", &[0, 3]),
    ];
    runs[1].info.finished_at = None;
    let merged = merge(&mut store, &runs).unwrap();
    assert_eq!((merged.boots, merged.repeated), (3, 2));
    assert_eq!(merged.unfinished, ["1.db"]);
    assert_eq!(merged.missing, ["2/4", "4/4"]);
    assert_eq!(store.load(merged.run).unwrap().info.finished_at, None);
}

#[test]
fn the_same_plan_on_two_hosts_is_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
    let runs = ["a", "b"].map(|host| slice(None, host, &[0, 1]));
    let merged = merge(&mut store, &runs).unwrap();
    assert_eq!((merged.boots, merged.repeated, merged.hosts), (4, 0, 2));
    assert!(store.load(merged.run).unwrap().info.finished_at.is_some());
}

#[test]
fn other_runs_are_refused_by_name_and_nothing_is_added() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("runs.db")).unwrap();
    let first = slice(Some("1/2"), "a", &[0]);
    type Change = fn(&mut Run);
    let changes: [(Change, &str); 9] = [
        (
            |run| {
                let host = run.hosts.values_mut().next().unwrap();
                host.facts.insert("kernel".to_owned(), "6.5".to_owned());
            },
            "its host a had another kernel before",
        ),
        (
            |run| run.info.version = "0.1.0".to_owned(),
            "it is of another version (0.1.0) than 0.db",
        ),
        (
            |run| run.info.plan = None,
            "it is of another plan than 0.db",
        ),
        (
            |run| run.info.request.boots = Some(3),
            "it is of another request than 0.db",
        ),
        (
            |run| run.info.seed = 8,
            "it is of another seed (8) than 0.db",
        ),
        (
            |run| _ = run.info.facts.remove("parts"),
            "its builds under test are others than 0.db",
        ),
        (
            |run| run.info.request.slice = Some("1/3".to_owned()),
            "it is one of 3 slices, which are others than 0.db",
        ),
        (
            |run| run.info.request.slice = None,
            "it is of a whole plan, which is more than 0.db",
        ),
        (
            |run| run.observations[0].log.push('x'),
            "its boot 0 of kvm was measured again on the same host: name one of both runs",
        ),
    ];
    for (change, words) in changes {
        let mut other = first.clone();
        change(&mut other);
        let refused = merge(&mut store, &[first.clone(), other]);
        assert_eq!(refused, Err(Error::NotMergeable(format!("1.db: {words}"))));
    }
    let sources = [
        Ok(("0.db".to_owned(), first)),
        Err(Error::Store("it is gone".to_owned())),
    ];
    assert_eq!(
        store.merge(sources),
        Err(Error::Store("it is gone".to_owned()))
    );
    assert_eq!(store.runs().unwrap(), []);
}

#[test]
fn an_owner_that_was_replaced_writes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let (here, other) = (owner("a 1 1 1 here"), owner("a 2 2 1 here"));
    let host = Host {
        id: "h".to_owned(),
        ..Host::default()
    };
    let mut first = Store::open(&path).unwrap();
    let number = first.begin_run(&run(&here, &host)).unwrap();
    let mut second = Store::open(&path).unwrap();
    let before = here.to_string();
    assert!(second
        .take_over(number, Some(&before), (&other, &host))
        .unwrap());
    for error in [
        first
            .add_observation(number, &common::full_boot(0))
            .unwrap_err(),
        first.finish_run(number).unwrap_err(),
    ] {
        assert!(matches!(error.problem, Problem::TakenOver(1)), "{error}");
    }
    drop(first);
    let info = second.runs().unwrap().remove(0);
    assert!(
        info.has_heartbeat() && info.finished_at.is_none(),
        "{info:?}"
    );
    second
        .add_observation(number, &common::full_boot(0))
        .unwrap();
    second.finish_run(number).unwrap();
    assert_eq!(second.load(number).unwrap().hosts.len(), 1);
}
