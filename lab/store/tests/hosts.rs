//! Stores that several hosts use.

use crate::common;

use rusqlite::Connection;
use trapline_model::{Host, Observation};
use trapline_store::{NewRun, Owner, Problem, Store};

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
            store.take_over(left, None, &there).map(drop),
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
