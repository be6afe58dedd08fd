//! The cache under a run: missing, unreadable, full, pruned meanwhile, or left by a
//! lab that was killed. A run is at most slower for it, and nothing that is half
//! written, or not ours, is used or removed.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trapline_environments::Settings;
use trapline_tests::processes::{naming, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{Ended, Place};
use trapline_tests::{has_qemu, skip};

const MACHINE: &str = "sim/linux";

/// A place with a cache of its own.
struct Cached {
    place: Place,
}

impl Cached {
    /// One whose cache is not there yet.
    fn new() -> Self {
        Self {
            place: Place::new(),
        }
    }

    /// One that has the user's kernels, so that none is fetched again, and has a
    /// machine to run; `None` where there is none.
    fn with_kernels(what: &str) -> Option<Self> {
        if !has_qemu(what) {
            return None;
        }
        // Somebody may have to fetch the kernel; in the user's cache it serves all.
        let words = ["-q", "--env", MACHINE, "--workload", "basic/getpid"];
        let json = Place::new().measure(&words);
        if let Some(reason) = json["environments"][MACHINE]["skip"].as_str() {
            skip(what, reason);
            return None;
        }
        let cached = Self::new();
        let users = Settings::find().expect("it is found").cache.directory;
        fs::create_dir_all(cached.directory()).expect("it is new");
        let kernels = cached.directory().join("kernels");
        std::os::unix::fs::symlink(users.join("kernels"), kernels).expect("it is new");
        Some(cached)
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("cache/trapline")
    }

    fn snapshots(&self) -> PathBuf {
        self.directory().join("snapshots")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.place.trapline(words);
        command.env("XDG_CACHE_HOME", self.place.path().join("cache"));
        command
    }

    fn run(&self, words: &[&str]) -> Ended {
        Ended::from(self.command(words).output().expect("it starts"))
    }

    /// Starts a run of a machine that has to be booted, or restored.
    fn start(&self, more: &[&str]) -> Child {
        let store = self.place.store();
        let store = store.to_str().expect("a plain name");
        let words = ["run", "-q", "--format", "json", "--store", store];
        let what = ["--env", MACHINE, "--workload", "basic/getpid"];
        let mut command = self.command(&[&words[..], &what, more].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    }

    /// Lets such a run end well; how the machine got to where it works.
    #[track_caller]
    fn measure(&self, more: &[&str]) -> String {
        start_of(self.start(more))
    }
}

/// Awaits the end of a run, which has to be a good one.
#[track_caller]
fn start_of(run: Child) -> String {
    let ended = Ended::from(run.wait_with_output().expect("it ends"));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let json: Value = serde_json::from_str(&ended.output).expect("JSON");
    assert!(json["cells"][0]["estimate"].is_number(), "{json}");
    let facts = &json["environments"][MACHINE]["facts"];
    facts["l1-start"].as_str().expect("a fact").to_owned()
}

/// Names in a directory that begin so.
fn beginning(directory: &Path, with: &str) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(with)).count()
}

#[track_caller]
fn assert_told(ended: &Ended, status: i32, words: &[&str]) {
    assert_eq!(ended.status, Some(status), "{ended:?}");
    assert!(ended.errors.contains("\n  help: "), "{ended:?}");
    for word in words {
        assert!(ended.errors.contains(word), "no '{word}' in {ended:?}");
    }
}

#[test]
fn missing_cache_is_empty() {
    let cached = Cached::new();
    let listed = cached.run(&["cache", "list"]);
    assert_eq!(listed.status, Some(0), "{listed:?}");
    let directory = cached.directory();
    let expected = format!("0 B in {}\n", directory.display());
    assert_eq!(listed.output, expected);
    let pruned = cached.run(&["cache", "prune"]);
    assert_eq!(pruned.status, Some(0), "{pruned:?}");
    assert_eq!(pruned.output, "nothing to remove\n");
    assert!(!directory.exists(), "looking made it");
}

#[test]
fn unreadable_cache_is_named_with_a_remedy() {
    let cached = Cached::new();
    fs::create_dir_all(cached.directory()).expect("it is new");
    // Not even root can list a file.
    fs::write(cached.snapshots(), "in the way").expect("it is new");
    for words in [&["cache", "list"][..], &["cache", "prune"]] {
        let told = ["cache/trapline/snapshots: ", "XDG_CACHE_HOME"];
        assert_told(&cached.run(words), 1, &told);
    }
}

#[test]
fn foreign_files_are_neither_listed_nor_removed() {
    let cached = Cached::new();
    fs::create_dir_all(cached.snapshots()).expect("it is new");
    let ours = cached.snapshots().join("0a".repeat(32));
    let theirs = cached.snapshots().join("letter.txt");
    fs::write(&ours, "state").expect("it is new");
    fs::write(&theirs, "Dear cache").expect("it is new");
    let listed = cached.run(&["cache", "list"]);
    assert!(!listed.output.contains("letter"), "{listed:?}");
    let pruned = cached.run(&["cache", "prune", "--all"]);
    assert_eq!(pruned.output, "removed 1 entry, 5 B\n");
    assert!(!ours.exists() && theirs.exists());
}

#[test]
fn invalid_sizes_are_rejected_with_an_example() {
    let cached = Cached::new();
    for words in [
        &["cache", "prune", "--to", "4X"][..],
        &["cache", "prune", "--to", "1.5G"],
        &["run", "--cache-limit", "lots"],
    ] {
        let mistyped = words.last().expect("a word");
        let told = [&format!("'{mistyped}'")[..], "500M or 4G"];
        assert_told(&cached.run(words), 2, &told);
    }
    assert_told(&cached.run(&["cache"]), 2, &["a command is missing"]);
}

#[test]
fn full_or_read_only_cache_is_recorded_as_a_fact() {
    let Some(cached) = Cached::with_kernels("a cache that is full") else {
        return;
    };
    let start = cached.measure(&["--cache-limit", "1M"]);
    assert!(
        start.contains("more than the cache may take: --cache-limit"),
        "{start}"
    );
    fs::remove_dir(cached.snapshots()).expect("nothing is in it");
    fs::write(cached.snapshots(), "in the way").expect("it is gone");
    let start = cached.measure(&[]);
    assert!(
        start.starts_with("booted; it could not be kept: "),
        "{start}"
    );
    assert!(start.contains("cache/trapline/snapshots: "), "{start}");
}

#[test]
#[ignore = "slow: make test-all"]
fn pruning_does_not_disturb_a_run() {
    let Some(cached) = Cached::with_kernels("pruning during a run") else {
        return;
    };
    // Once while it boots and keeps a snapshot, once while it is restored.
    for _ in 0..2 {
        let mut run = cached.start(&[]);
        while run.try_wait().expect("it is ours").is_none() {
            let pruned = cached.run(&["cache", "prune"]);
            assert_eq!(pruned.status, Some(0), "{pruned:?}");
        }
        let start = start_of(run);
        assert!(["booted", "restored"].contains(&&start[..]), "{start}");
        cached.measure(&[]);
    }
}

/// Ends a run as soon as `ready` holds for its cache, with a signal.
#[track_caller]
fn ended_when(cached: &Cached, number: i32, ready: fn(&Path) -> bool) -> Ended {
    let run = cached.start(&[]);
    let snapshots = cached.snapshots();
    assert!(wait_until(TO_BEGIN, || ready(&snapshots)));
    signal(&run, number);
    let ended = Ended::from(run.wait_with_output().expect("it ends"));
    let place = cached.place.path();
    let gone = wait_until(Duration::from_secs(5), || naming(place).is_empty());
    assert!(gone, "still running: {:?}", naming(place));
    ended
}

#[test]
#[ignore = "slow: make test-all"]
fn interrupted_snapshot_is_not_used() {
    let Some(cached) = Cached::with_kernels("ending a lab that makes a snapshot") else {
        return;
    };
    let boots: fn(&Path) -> bool = |snapshots| beginning(snapshots, "") > 0;
    let saves: fn(&Path) -> bool = |snapshots| beginning(snapshots, ".making-") > 0;
    for (number, ready) in [
        (libc::SIGINT, boots),
        (libc::SIGINT, saves),
        (libc::SIGKILL, boots),
        (libc::SIGKILL, saves),
    ] {
        let ended = ended_when(&cached, number, ready);
        let status = (number == libc::SIGINT).then_some(128 + number);
        assert_eq!(ended.status, status, "{ended:?}");
        let listed = cached.run(&["cache", "list", "--format", "json"]);
        assert!(!listed.output.contains("\"snapshot\""), "{listed:?}");
        if number == libc::SIGINT {
            assert_eq!(beginning(&cached.snapshots(), ""), 0, "something is left");
        }
    }
    // What the killed ones have left is in nobody's way.
    assert_eq!(cached.measure(&[]), "booted");
    assert_eq!(cached.measure(&[]), "restored");
}
