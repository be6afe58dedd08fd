//! Durability: a writer is killed at random times.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trapline_store::{NewRun, Store};

/// Environment variable of the child: the path of its store.
const STORE: &str = "TRAPLINE_TEST_STORE";

/// The child process of the test below: writes boots until it is killed.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(STORE).map(PathBuf::from) else {
        return;
    };
    let mut store = Store::open(&path).unwrap();
    let run = store.begin_run(&NewRun::default()).unwrap();
    for replicate in 0.. {
        let boot = common::full_boot(replicate);
        store.add_observation(run, &boot).unwrap();
    }
}

fn start_writer(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::writer"])
        .env(STORE, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn stored_boots(path: &Path) -> u64 {
    let open = Store::open_existing(path).and_then(|mut store| store.latest());
    open.ok().flatten().map_or(0, |run| run.boots)
}

#[test]
fn finished_boots_survive_a_killed_writer() {
    let folder = tempfile::tempdir().unwrap();
    for attempt in 0..6 {
        let path = folder.path().join(format!("{attempt}.db"));
        let mut writer = start_writer(&path);
        let deadline = Instant::now() + Duration::from_secs(60);
        while stored_boots(&path) < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let seen = stored_boots(&path);
        // Another point of a transaction in each attempt.
        std::thread::sleep(Duration::from_millis(attempt));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let mut store = Store::open(&path).unwrap();
        let run = store.latest().unwrap().unwrap();
        let kept = store.load(run.id).unwrap().observations;
        assert!(
            kept.len() as u64 >= seen && seen >= 2,
            "{seen} {}",
            kept.len()
        );
        for (replicate, observation) in kept.iter().enumerate() {
            assert_eq!(*observation, common::full_boot(replicate as u32));
        }
        assert_eq!(run.finished_at, None);
        store.begin_run(&NewRun::default()).unwrap();
    }
}
