//! Stores on failing disks, and files of other programs.

use crate::common;

use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::time::Duration;
use trapline_store::{NewRun, Problem, RunId, Store, StoreError, VERSION};

/// Returns the problem of opening `path`, having checked that the message names the file.
fn refusal(path: &Path) -> Problem {
    let error = open(path).err().expect("it was opened");
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    error.problem
}

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open_with_timeout(path, Duration::from_millis(50))
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
fn an_unwritable_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    // Not even root can write to the first; the parent of the second is not a directory.
    for path in [Path::new("/proc/trapline/runs.db"), &file.join("runs.db")] {
        let problem = refusal(path);
        assert!(matches!(problem, Problem::Unwritable(_)), "{problem:?}");
    }
}

#[test]
fn other_kinds_of_files_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    for path in [folder.path(), &fifo, Path::new("/dev/null")] {
        let problem = refusal(path);
        assert!(matches!(problem, Problem::NotAFile), "{problem:?}");
    }
}

/// SQLite would delete the file that such a journal names.
#[test]
fn a_journal_that_names_another_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [path, link, other] = ["runs.db", "link.db", "other"].map(|name| folder.path().join(name));
    filled(&path, 1);
    std::os::unix::fs::symlink(&path, &link).unwrap();
    fs::write(&other, "kept").unwrap();
    let header = fs::read(&path).unwrap();
    let page = u32::from(u16::from_be_bytes([header[16], header[17]]));
    let pages = header.len() as u32 / page;
    let name = other.to_str().unwrap().as_bytes();
    let magic = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    let mut journal = magic.to_vec();
    for word in [0, 0, pages, 512, page] {
        journal.extend(u32::to_be_bytes(word));
    }
    journal.resize(512, 0);
    journal.extend(u32::to_be_bytes(0x4000_0000 / page + 1));
    journal.extend(name);
    journal.extend([name.len() as u32, sum].map(u32::to_be_bytes).concat());
    journal.extend(magic);
    fs::write(folder.path().join("runs.db-journal"), journal).unwrap();
    for path in [&path, &link] {
        let problem = refusal(path);
        assert!(matches!(problem, Problem::ForeignJournal), "{problem:?}");
        let error = Store::open_existing(path).err().expect("it was opened");
        assert!(matches!(error.problem, Problem::ForeignJournal), "{error}");
    }
    assert_eq!(fs::read(&other).unwrap(), b"kept");
}

#[test]
fn other_files_are_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    let text = "Dear reader, this is a letter. ".repeat(100);
    fs::write(&path, &text).unwrap();
    assert!(matches!(refusal(&path), Problem::Corrupt(_)));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn databases_of_other_programs_are_not_changed() {
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
fn damage_is_found_on_opening() {
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
fn a_truncated_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    filled(&path, 3);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(refusal(&path), Problem::Corrupt(_)));
}

#[test]
fn invalid_values_are_reported_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    for (update, named) in [
        (
            "UPDATE operations SET operation = 'basic/dance'",
            "basic/dance",
        ),
        ("UPDATE operations SET clock_cost = 'dear'", "clock_cost"),
        (
            "UPDATE operations SET outcome = 'measured', checksum = NULL",
            "checksum",
        ),
        ("UPDATE boots SET environment = 'the moon'", "the moon"),
        ("UPDATE boots SET facts = '{'", "facts"),
        ("UPDATE boots SET pin = 'everywhere'", "everywhere"),
        ("UPDATE boots SET cpus = 'two'", "cpus"),
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
            .execute(update, [])
            .unwrap();
        let error = open(&path).unwrap().load(run).unwrap_err();
        assert!(matches!(error.problem, Problem::Corrupt(_)), "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_store_of_a_newer_version_is_refused() {
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
    assert!(problem.remedy().unwrap().starts_with("use a newer version"));
}

#[test]
fn a_lock_is_waited_for_until_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    filled(&path, 1);
    let mut store = open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = store.begin_run(&NewRun::default()).unwrap_err();
    assert!(matches!(error.problem, Problem::Locked), "{error:?}");
    assert!(matches!(refusal(&path), Problem::Locked));
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        other.execute_batch("COMMIT").unwrap();
    });
    let mut store = Store::open_with_timeout(&path, Duration::from_secs(20)).unwrap();
    store.begin_run(&NewRun::default()).unwrap();
    ending.join().unwrap();
}

#[test]
fn several_processes_can_write_in_turns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let writers: Vec<_> = (0..3)
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
    for writer in writers {
        writer.join().unwrap();
    }
    let runs = Store::open_existing(&path).unwrap().runs().unwrap();
    assert_eq!(
        runs.iter().map(|run| run.boots).collect::<Vec<_>>(),
        [4, 4, 4]
    );
}

#[test]
fn opening_for_reading_does_not_create_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let error = Store::open_existing(&path).err().unwrap();
    assert!(matches!(error.problem, Problem::Missing));
    assert!(!path.exists());
    // As a program leaves it that is killed at the start of its first run.
    fs::write(&path, "").unwrap();
    let error = Store::open_existing(&path).err().unwrap();
    assert!(matches!(error.problem, Problem::Empty));
    Store::open(&path).unwrap();
    Store::open_existing(&path).unwrap();
}

#[test]
fn an_unknown_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("runs.db")).unwrap();
    let none = RunId(3);
    let boot = common::full_boot(0);
    for error in [
        store.load(none).unwrap_err(),
        store.finish_run(none).unwrap_err(),
        store.add_observation(none, &boot).unwrap_err(),
        store.add_skip(none, &boot.config, "").unwrap_err(),
    ] {
        assert!(matches!(error.problem, Problem::NoSuchRun(3)), "{error:?}");
    }
}
