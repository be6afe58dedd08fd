//! The cache: missing, unreadable, full, pruned during a run, or left by a killed run. Incomplete entries
//! are not used, foreign files are not removed.

use crate::shared::assert_reproducible;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use trapline_environments::sim::kernel::{self, Maker};
use trapline_tests::measurements::assert_figure;
use trapline_tests::processes::{naming, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{has, CommandOutput, Place};
use trapline_tests::{has_qemu, on_path, settings, write_program};

const MACHINE: &str = "sim/linux";

/// A test directory with a cache of its own.
struct Cached {
    place: Place,
}

impl Cached {
    /// Creates one without a cache.
    fn new() -> Self {
        Self {
            place: Place::new(),
        }
    }

    /// Creates one whose cache has the user's kernels, if the machine is available.
    fn with_kernels(feature: &str) -> Option<Self> {
        if !has_qemu(feature) {
            return None;
        }
        let cached = Self::new();
        if !has(MACHINE, feature) {
            return None;
        }
        // Downloads the kernel into the user's cache if necessary.
        let settings = settings();
        kernel::chosen(&settings, Maker::Amd).expect("a kernel is available");
        let users = settings.cache.directory;
        fs::create_dir_all(cached.directory()).expect("path is unused");
        let kernels = cached.directory().join("kernels");
        std::os::unix::fs::symlink(users.join("kernels"), kernels).expect("path is unused");
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

    fn run(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::from(self.command(words).output().expect("program starts"))
    }

    /// Starts a run on [`MACHINE`].
    fn start(&self, more: &[&str]) -> Child {
        let store = self.place.store();
        let store = store.to_str().expect("path is UTF-8");
        let words = ["run", "-q", "--format", "json", "--store", store];
        let feature = ["--env", MACHINE, "--workload", "basic/getpid"];
        let mut command = self.command(&[&words[..], &feature, more].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("program starts")
    }

    /// Runs on [`MACHINE`] and returns how it started: booted or restored.
    #[track_caller]
    fn measure(&self, more: &[&str]) -> String {
        start_of(self.start(more))
    }
}

/// Waits for a run, which must succeed, and returns how its machine started.
#[track_caller]
fn start_of(run: Child) -> String {
    let result = CommandOutput::from(run.wait_with_output().expect("child is reaped"));
    assert_eq!(result.status, Some(0), "{result:?}");
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON");
    assert_figure(&json["cells"][0]);
    let facts = &json["environments"][MACHINE]["facts"];
    facts["l1-start"].as_str().expect("fact").to_owned()
}

/// Returns the number of names in a directory that begin with `with`.
fn beginning(directory: &Path, with: &str) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(with)).count()
}

#[track_caller]
fn assert_rejected(result: &CommandOutput, status: i32, words: &[&str]) {
    assert_eq!(result.status, Some(status), "{result:?}");
    assert!(result.stderr.contains("\n  help: "), "{result:?}");
    for word in words {
        assert!(result.stderr.contains(word), "no '{word}' in {result:?}");
    }
}

#[test]
fn missing_cache_is_empty() {
    let cached = Cached::new();
    let listed = cached.run(&["cache", "list"]);
    assert_eq!(listed.status, Some(0), "{listed:?}");
    let directory = cached.directory();
    let expected = format!("0 B in {}\n", directory.display());
    assert_eq!(listed.stdout, expected);
    let pruned = cached.run(&["cache", "prune"]);
    assert_eq!(pruned.status, Some(0), "{pruned:?}");
    assert_eq!(pruned.stdout, "nothing to remove\n");
    assert!(!directory.exists(), "listing created the directory");
}

#[test]
fn unreadable_cache_is_named_with_a_remedy() {
    let cached = Cached::new();
    fs::create_dir_all(cached.directory()).expect("path is unused");
    // Not even root can list a file.
    fs::write(cached.snapshots(), "in the way").expect("path is unused");
    for words in [&["cache", "list"][..], &["cache", "prune"]] {
        let messages = ["cache/trapline/snapshots: ", "XDG_CACHE_HOME"];
        assert_rejected(&cached.run(words), 1, &messages);
    }
}

#[test]
fn foreign_files_are_neither_listed_nor_removed() {
    let cached = Cached::new();
    fs::create_dir_all(cached.snapshots()).expect("path is unused");
    let ours = cached.snapshots().join("0a".repeat(32));
    let theirs = cached.snapshots().join("letter.txt");
    fs::write(&ours, "state").expect("path is unused");
    fs::write(&theirs, "Dear cache").expect("path is unused");
    let listed = cached.run(&["cache", "list"]);
    assert!(!listed.stdout.contains("letter"), "{listed:?}");
    // Names are whole in a pipe.
    assert!(listed.stdout.contains(&"0a".repeat(32)), "{listed:?}");
    let pruned = cached.run(&["cache", "prune", "--all"]);
    assert_eq!(pruned.stdout, "removed 1 entry, 5 B\n");
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
        let mistyped = words.last().expect("last argument");
        let messages = [&format!("'{mistyped}'")[..], "500M or 4G"];
        assert_rejected(&cached.run(words), 2, &messages);
    }
    assert_rejected(&cached.run(&["cache"]), 2, &["a command is missing"]);
}

#[test]
#[ignore = "slow: make test-all"]
fn full_or_read_only_cache_is_recorded_as_a_fact() {
    let Some(cached) = Cached::with_kernels("a cache that is full") else {
        return;
    };
    let start = cached.measure(&["--cache-limit", "1M"]);
    assert!(
        start.contains("more than the cache may take: --cache-limit"),
        "{start}"
    );
    fs::remove_dir(cached.snapshots()).expect("directory is empty");
    fs::write(cached.snapshots(), "in the way").expect("path is unused");
    let start = cached.measure(&[]);
    assert!(
        start.starts_with("booted; it could not be kept: "),
        "{start}"
    );
    assert!(start.contains("cache/trapline/snapshots: "), "{start}");
    assert_reproducible(&cached.place, MACHINE);
}

#[test]
#[ignore = "slow: make test-all"]
fn pruning_does_not_disturb_a_run() {
    let Some(cached) = Cached::with_kernels("pruning during a run") else {
        return;
    };
    // The machine boots and creates a snapshot first, and is restored then.
    for _ in 0..2 {
        let mut run = cached.start(&[]);
        while run.try_wait().expect("file is owned by the test").is_none() {
            let pruned = cached.run(&["cache", "prune"]);
            assert_eq!(pruned.status, Some(0), "{pruned:?}");
        }
        let start = start_of(run);
        assert!(["booted", "restored"].contains(&&start[..]), "{start}");
        cached.measure(&[]);
    }
}

/// Sends a signal to a run as soon as `ready` holds for its cache.
#[track_caller]
fn ended_when(cached: &Cached, number: i32, ready: fn(&Path) -> bool) -> CommandOutput {
    let run = cached.start(&[]);
    let snapshots = cached.snapshots();
    assert!(wait_until(TO_BEGIN, || ready(&snapshots)));
    signal(&run, number);
    let result = CommandOutput::from(run.wait_with_output().expect("child is reaped"));
    let place = cached.place.path();
    let gone = wait_until(TO_BEGIN, || naming(place).is_empty());
    assert!(gone, "still running: {:?}", naming(place));
    result
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
        let result = ended_when(&cached, number, ready);
        let status = (number == libc::SIGINT).then_some(128 + number);
        assert_eq!(result.status, status, "{result:?}");
        let listed = cached.run(&["cache", "list", "--format", "json"]);
        assert!(!listed.stdout.contains("\"snapshot\""), "{listed:?}");
        if number == libc::SIGINT {
            assert_eq!(beginning(&cached.snapshots(), ""), 0, "files are left");
        }
    }
    // Files of killed runs are ignored.
    assert_eq!(cached.measure(&[]), "booted");
    assert_eq!(cached.measure(&[]), "restored");
}

/// Puts a script into the search path that records its call in the file `calls`, and starts the installed
/// program of this name.
fn record_calls(place: &Place, program: &str) -> Option<()> {
    let real = on_path(program)?;
    let directory = place.path().join("bin");
    fs::create_dir_all(&directory).expect("directory is created");
    let calls = place.path().join("calls");
    let script = format!(
        "#!/bin/sh\necho {program} >> {}\nexec {} \"$@\"\n",
        calls.display(),
        real.display()
    );
    let path = directory.join(program);
    write_program(&path, script);
    Some(())
}

#[test]
fn list_starts_each_program_once_and_none_with_a_warm_cache() {
    let cached = Cached::new();
    let place = &cached.place;
    let programs = ["apt-cache", "qemu-system-x86_64", "bochs-bin"];
    let has_apt = record_calls(place, programs[0]).is_some();
    for program in &programs[1..] {
        let _installed = record_calls(place, program);
    }
    let calls = || {
        let calls = fs::read_to_string(place.path().join("calls")).unwrap_or_default();
        let count = |program: &&str| calls.lines().filter(|line| line == program).count();
        programs.each_ref().map(count)
    };
    let cold = cached.run(&["list"]);
    assert_eq!(cold.status, Some(0), "{cold:?}");
    let [apt, qemu, bochs] = calls();
    assert_eq!(apt, usize::from(has_apt), "one query for all packages");
    assert!(
        qemu <= 3 && bochs <= 2,
        "version, firmware and capabilities: {:?}",
        calls()
    );
    let warm = cached.run(&["list"]);
    assert_eq!(warm.stdout, cold.stdout);
    assert_eq!(calls(), [apt, qemu, bochs], "everything is cached");
}

#[test]
fn plan_check_downloads_and_boots_nothing() {
    let cached = Cached::new();
    let place = &cached.place;
    let _installed = record_calls(place, "apt-get");
    let plan = trapline_tests::root().join("plans/kernels.toml");
    let plan = plan.to_str().expect("path is UTF-8");
    let checked = cached.run(&["plan", "check", plan]);
    assert_eq!(checked.status, Some(0), "{checked:?}");
    assert!(!place.path().join("calls").exists(), "{checked:?}");
    assert!(!cached.snapshots().exists(), "{checked:?}");
}

#[test]
fn run_checks_only_the_requested_environments() {
    let cached = Cached::new();
    let place = &cached.place;
    let programs = ["apt-cache", "qemu-system-x86_64", "bochs-bin"];
    let _installed = programs.map(|program| record_calls(place, program));
    let store = place.store();
    let store = store.to_str().expect("path is UTF-8");
    let words = [
        "run",
        "--store",
        store,
        "--env",
        "host",
        "--workload",
        "basic/getpid",
    ];
    let result = cached.run(&words);
    assert_eq!(result.status, Some(0), "{result:?}");
    assert!(
        result.stderr.starts_with("0s: checking environments\n"),
        "{result:?}"
    );
    assert!(
        !place.path().join("calls").exists(),
        "the host needs no program"
    );
}
