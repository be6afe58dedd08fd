//! Everything that a file system and other programs do to a store.

mod common;

use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::time::Duration;
use trapline_store::{NewRun, Problem, RunId, Store, StoreError, VERSION};

/// What opening says, having checked that it names the file.
fn refusal(path: &Path) -> Problem {
    let error = open(path).err().expect("it was opened");
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    error.problem
}

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open_patiently(path, Duration::from_millis(50))
}

fn filled(path: &Path, boots: u32) -> RunId {
    let mut store = open(path).unwrap();
    let run = store.begin_run(&NewRun::default()).unwrap();
    for replicate in 0..boots {
        let boot = common::full_boot(replicate);
        store.add_observation(run, &boot).unwrap();
    }
    run
}

#[test]
fn a_place_that_cannot_be_written_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    // Not even root can write to the first; the others are no places for a file.
    for path in [
        Path::new("/proc/trapline/runs.db"),
        &file.join("runs.db"),
        folder.path(),
    ] {
        let problem = refusal(path);
        assert!(matches!(problem, Problem::Unwritable(_)), "{problem:?}");
    }
}

#[test]
fn a_file_that_is_no_database_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    let text = "Dear reader, this is a letter. ".repeat(100);
    fs::write(&path, &text).unwrap();
    assert!(matches!(refusal(&path), Problem::Corrupt(_)));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_others_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE recipes (name TEXT)")
        .unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    assert!(matches!(refusal(&path), Problem::Foreign));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn damage_inside_a_store_is_found_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    filled(&path, 3);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    assert!(matches!(refusal(&path), Problem::Corrupt(_)));
}

#[test]
fn a_store_that_was_cut_off_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    filled(&path, 3);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(refusal(&path), Problem::Corrupt(_)));
}

#[test]
fn nonsense_in_a_sound_file_is_named_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    for (nonsense, named) in [
        (
            "UPDATE operations SET operation = 'basic/dance'",
            "basic/dance",
        ),
        ("UPDATE operations SET clock_cost = 'dear'", "clock_cost"),
        (
            "UPDATE operations SET outcome = 'measured', checksum = NULL",
            "checksum",
        ),
        ("UPDATE boots SET environment = 'moon'", "moon"),
        ("UPDATE boots SET facts = '{'", "facts"),
        ("UPDATE boots SET replicate = -1", "out of range"),
        ("UPDATE interrupts SET count = 2", "interrupts"),
        ("UPDATE interrupts SET packed = x'0500'", "interrupts"),
    ] {
        let path = folder.path().join("runs.db");
        let run = filled(&path, 1);
        let boot = common::boot_with_interrupts();
        open(&path).unwrap().add_observation(run, &boot).unwrap();
        Connection::open(&path)
            .unwrap()
            .execute(nonsense, [])
            .unwrap();
        let error = open(&path).unwrap().load(run).unwrap_err();
        assert!(matches!(error.problem, Problem::Corrupt(_)), "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_store_of_a_newer_version_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    filled(&path, 1);
    let newer = Connection::open(&path).unwrap();
    newer
        .pragma_update(None, "user_version", VERSION + 3)
        .unwrap();
    drop(newer);
    let problem = refusal(&path);
    assert!(
        matches!(problem, Problem::Newer { found, known: VERSION } if found == VERSION + 3),
        "{problem:?}"
    );
    assert!(problem.to_string().contains("newer version"), "{problem}");
}

/// A store as version 1 of the format made it.
fn of_format_1(path: &Path) -> RunId {
    let run = filled(path, 2);
    let older = Connection::open(path).unwrap();
    let later = "DROP TABLE interrupts; DROP TABLE requests; DROP TABLE builds;
                 ALTER TABLE boots DROP COLUMN variant; ALTER TABLE skips DROP COLUMN variant;
                 ALTER TABLE runs DROP COLUMN keeper; ALTER TABLE runs DROP COLUMN plan";
    older.execute_batch(later).unwrap();
    older.pragma_update(None, "user_version", 1).unwrap();
    run
}

#[test]
fn a_store_without_interrupts_is_read_as_it_is_and_written_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let run = of_format_1(&path);
    let expected = [common::full_boot(0), common::full_boot(1)];
    let read = Store::open_existing(&path).unwrap().load(run).unwrap();
    assert_eq!(read.observations, expected);
    let version = |path: &Path| -> i64 {
        let connection = Connection::open(path).unwrap();
        let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
        version.unwrap()
    };
    assert_eq!(version(&path), 1, "reading changes nothing");
    let mut store = open(&path).unwrap();
    let boot = common::boot_with_interrupts();
    store.add_observation(run, &boot).unwrap();
    let all = store.load(run).unwrap().observations;
    assert_eq!((all.len(), &all[2], version(&path)), (3, &boot, VERSION));
    assert_eq!(all[..2], expected);
}

#[test]
fn a_lock_that_lasts_is_told_and_one_that_ends_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    filled(&path, 1);
    let mut store = open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = store.begin_run(&NewRun::default()).unwrap_err();
    assert!(matches!(error.problem, Problem::Locked), "{error:?}");
    assert!(matches!(refusal(&path), Problem::Locked));
    let patient = Store::open_patiently;
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        other.execute_batch("COMMIT").unwrap();
    });
    let mut store = patient(&path, Duration::from_secs(20)).unwrap();
    store.begin_run(&NewRun::default()).unwrap();
    ending.join().unwrap();
}

#[test]
fn two_labs_can_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let labs: Vec<_> = (0..3)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut store = Store::open(&path).unwrap();
                let run = store.begin_run(&NewRun::default()).unwrap();
                for replicate in 0..4 {
                    store
                        .add_observation(run, &common::full_boot(replicate))
                        .unwrap();
                }
                store.finish_run(run).unwrap();
            })
        })
        .collect();
    for lab in labs {
        lab.join().unwrap();
    }
    let runs = Store::open_existing(&path).unwrap().runs().unwrap();
    assert_eq!(
        runs.iter().map(|run| run.boots).collect::<Vec<_>>(),
        [4, 4, 4]
    );
}

#[test]
fn reading_never_makes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let error = Store::open_existing(&path).err().unwrap();
    assert!(matches!(error.problem, Problem::Missing));
    assert!(!path.exists());
    fs::write(&path, "").unwrap();
    let error = Store::open_existing(&path).err().unwrap();
    assert!(matches!(error.problem, Problem::Corrupt(_)));
}

#[test]
fn what_is_asked_of_a_run_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("runs.db")).unwrap();
    let none = RunId(3);
    let boot = common::full_boot(0);
    for error in [
        store.load(none).unwrap_err(),
        store.finish_run(none).unwrap_err(),
        store.add_observation(none, &boot).unwrap_err(),
        store.add_skip(none, &boot.contender(), "").unwrap_err(),
    ] {
        assert!(matches!(error.problem, Problem::NoSuchRun(3)), "{error:?}");
    }
}
