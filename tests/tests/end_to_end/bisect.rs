//! `trapline bisect` in small repositories. A commit's build copies the built parts with one of two
//! images: the default one, or one with less optimisation. Fast tests replay recordings of both.

mod custom_vmms;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use trapline_tests::processes::{children, living_in_group, signal, wait_until, TO_BEGIN};
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::{has_git, has_qemu, parts, root, slow_image};

/// Returns whether git and QEMU are installed; otherwise records `what` as skipped.
fn can_search(feature: &str) -> bool {
    has_git(feature) && has_qemu(feature)
}

/// Kind of a commit.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Fast,
    Slow,
    Broken,
}

const BUILD: &str = "test ! -e broken || { echo no luck today; exit 7; }
mkdir -p target/dist
cp -L \"$PARTS\"/trapline-* target/dist/
cp -R \"$RECORDINGS\" target/dist/recordings
test ! -e salt || cat salt >> target/dist/trapline-image
if test -e slow; then
    cp \"$SLOW\" target/dist/trapline-image
    cp -R \"$RECORDINGS\"/slow/. target/dist/recordings/
fi
";

/// A repository with a commit of each kind after a first that is fast.
struct Repository {
    place: Place,
    replays: bool,
}

impl Repository {
    fn empty() -> Self {
        let repository = Self {
            place: Place::new(),
            replays: false,
        };
        std::fs::create_dir(repository.path()).expect("path is unused");
        repository.git(&["init", "--quiet"]);
        repository
    }

    fn new(kinds: &[Kind]) -> Self {
        let repository = Self::empty();
        std::fs::write(repository.path().join("build.sh"), BUILD).expect("write succeeds");
        std::fs::write(repository.path().join(".gitignore"), "/target\n").expect("write succeeds");
        repository.commit(0, Kind::Fast);
        for (number, kind) in (1..).zip(kinds) {
            repository.commit(number, *kind);
        }
        repository
    }

    /// Replays recordings instead of booting.
    fn replaying(self) -> Self {
        std::fs::write(self.slow_image(), "another image").expect("write succeeds");
        Self {
            replays: true,
            ..self
        }
    }

    fn slow_image(&self) -> PathBuf {
        self.place.path().join("slow-image")
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("repository")
    }

    fn commit(&self, number: usize, kind: Kind) {
        let is_there = [
            ("slow", kind == Kind::Slow),
            ("broken", kind == Kind::Broken),
        ];
        for (name, there) in is_there {
            let path = self.path().join(name);
            if there {
                std::fs::write(&path, "").expect("write succeeds");
            } else {
                drop(std::fs::remove_file(&path));
            }
        }
        self.commit_all(number);
    }

    fn commit_all(&self, number: usize) {
        self.git(&["add", "--all"]);
        let subject = format!("change {number}");
        self.git(&["commit", "--quiet", "--allow-empty", "--message", &subject]);
    }

    fn git(&self, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=A", "-c", "user.email=a@example.org"])
            .args([
                "-c",
                "commit.gpgSign=false",
                "-c",
                "core.hooksPath=/dev/null",
            ])
            .args(words)
            .current_dir(self.path())
            .output()
            .expect("git starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the command of a search whose commits are built by `build`.
    fn search(&self, build: &str, words: &[&str]) -> Command {
        let path = self.path();
        let path = path.to_str().expect("text");
        let fixed = ["bisect", "--repo", path, "--env", "sim", "--build", build];
        self.place.trapline(&[&fixed[..], words].concat())
    }

    fn bisect(&self, words: &[&str]) -> CommandOutput {
        let workload = ["--workload", "basic"];
        let mut command = self.search("sh build.sh", &[&workload[..], words].concat());
        command.env("PARTS", parts());
        command.env("RECORDINGS", root().join("tests/recordings"));
        if self.replays {
            command.env("SLOW", self.slow_image());
            command.env("TRAPLINE_REPLAY", "recordings");
        } else {
            command.env("SLOW", slow_image());
        }
        CommandOutput::from(command.output().expect("program starts"))
    }

    /// From the first commit to the last.
    fn bisect_all(&self) -> CommandOutput {
        let result = self.bisect(&["--good", "HEAD~16", "--bad", "HEAD"]);
        let places = self.git(&["worktree", "list"]);
        assert_eq!(places.lines().count(), 1, "a checkout was left: {places}");
        assert_eq!(
            self.git(&["status", "--porcelain"]),
            "",
            "the user's files changed"
        );
        result
    }
}

/// Sixteen commits of which the one with this number, from 1, made it slow.
fn sixteen(culprit: usize, broken: &[usize]) -> Vec<Kind> {
    let kind = |number| match number {
        _ if broken.contains(&number) => Kind::Broken,
        _ if number < culprit => Kind::Fast,
        _ => Kind::Slow,
    };
    (1..=16).map(kind).collect()
}

#[track_caller]
fn assert_found(result: &CommandOutput, number: usize) {
    assert_names(result, number);
    assert!(
        result.stdout.contains("\nbasic/"),
        "no figures: {}",
        result.stdout
    );
}

#[track_caller]
fn assert_names(result: &CommandOutput, number: usize) {
    assert_eq!(result.status, Some(0), "{result:?}");
    let found = result
        .stdout
        .lines()
        .find(|line| line.starts_with("found: "));
    let subject = format!("  change {number}");
    assert!(
        found.is_some_and(|line| line.ends_with(&subject)),
        "{}",
        result.stdout
    );
}

fn tried(result: &CommandOutput) -> usize {
    let words = ["good ", "bad ", "skipped "];
    let steps = result.stdout.lines().skip(3);
    steps
        .filter(|line| words.iter().any(|word| line.starts_with(word)))
        .count()
}

#[test]
fn killed_search_ends_its_build_and_the_next_removes_its_directory() {
    if !can_search("a search that is killed") {
        return;
    }
    let repository = Repository::new(&[Kind::Fast]);
    let temporary = repository.place.path().join("temporary");
    std::fs::create_dir(&temporary).expect("path is unused");
    let directories = || {
        let found = std::fs::read_dir(&temporary).expect("it is there");
        found
            .flatten()
            .map(|entry| entry.path())
            .collect::<Vec<_>>()
    };
    let start = |build| {
        let mut command = repository.search(build, &["--good", "HEAD~1", "--bad", "HEAD"]);
        command.env("TMPDIR", &temporary).stdout(Stdio::null());
        command.spawn().expect("program starts")
    };
    let started = repository.place.path().join("started");
    let build = format!("sleep 1000 & touch {}; exec sleep 1001", started.display());
    let [mut killed, mut other] = [(); 2].map(|()| {
        let search = start(&build);
        assert!(wait_until(TO_BEGIN, || started.exists()));
        std::fs::remove_file(&started).expect("it is there");
        search
    });
    assert_eq!(directories().len(), 2, "one for each that runs");
    let group = *children(killed.id(), "sleep").first().expect("the build");
    // Both programs and the guard.
    assert!(wait_until(TO_BEGIN, || living_in_group(group) == 3));
    killed.kill().expect("it runs");
    killed.wait().expect("a child");
    assert!(wait_until(TO_BEGIN, || living_in_group(group) == 0));
    // A new one may not be locked yet.
    for directory in directories() {
        let directory = std::fs::File::open(directory).expect("it is there");
        let aged = directory.set_modified(std::time::SystemTime::now() - TO_BEGIN);
        aged.expect("it is owned by the test");
    }
    start("false").wait().expect("a child");
    assert_eq!(directories().len(), 1, "that of the search that runs");
    let places = repository.git(&["worktree", "list"]);
    assert_eq!(places.lines().count(), 2, "{places}");
    signal(&other, libc::SIGINT);
    other.wait().expect("a child");
    assert_eq!(directories(), Vec::<PathBuf>::new());
}

#[test]
fn bad_commit_among_sixteen_is_found_in_four_trials() {
    if !has_git("a search for a commit") {
        return;
    }
    let repository = Repository::new(&sixteen(11, &[])).replaying();
    let result = repository.bisect_all();
    assert_found(&result, 11);
    assert!(tried(&result) <= 4, "{}", result.stdout);
}

#[test]
#[ignore = "slow: make test-all"]
fn commits_that_do_not_build_are_skipped() {
    if !can_search("a search among commits that do not build") {
        return;
    }
    let result = Repository::new(&sixteen(7, &[3, 8, 12])).bisect_all();
    assert_found(&result, 7);
    assert!(result.stdout.contains("skipped "), "{}", result.stdout);
    assert!(result.stdout.contains("no luck today"), "{}", result.stdout);
    let has_function = |line: &str| line.starts_with("   ") && line.contains("  guest  ");
    assert!(result.stdout.lines().any(has_function), "{result:?}");
}

#[test]
#[ignore = "slow: make test-all"]
fn undecidable_range_is_reported() {
    if !can_search("a search that cannot be decided") {
        return;
    }
    let result = Repository::new(&sixteen(9, &[8, 9, 10])).bisect_all();
    assert_eq!(result.status, Some(1), "{result:?}");
    let (_, range) = result.stdout.split_once("one of these").expect("range");
    for number in 8..=11 {
        assert!(range.contains(&format!("  change {number}\n")), "{range}");
    }
    for number in [7, 12] {
        assert!(!range.contains(&format!("  change {number}\n")), "{range}");
    }
}

#[test]
fn invalid_end_commits_are_rejected() {
    if !has_git("the ends of a search") {
        return;
    }
    let repository = Repository::new(&[Kind::Fast, Kind::Fast]);
    for (words, status, message) in [
        (
            &["--good", "nonsense", "--bad", "HEAD"][..],
            2,
            "no such commit: 'nonsense'",
        ),
        (
            &["--good", "HEAD", "--bad", "HEAD~1"],
            2,
            "is not an ancestor of",
        ),
        (
            &["--good", "HEAD", "--bad", "HEAD"],
            2,
            "is not an ancestor of",
        ),
        (
            &["--good", "HEAD~1", "--bad", "HEAD", "--parts", "../x"],
            2,
            "--parts",
        ),
        (
            &["--good", "HEAD~1", "--bad", "HEAD", "--build", "exit 7"],
            2,
            "--build",
        ),
    ] {
        let result = repository.bisect(words);
        assert_eq!(result.status, Some(status), "{words:?}: {result:?}");
        assert!(
            result.stderr.contains(message),
            "{words:?}: {}",
            result.stderr
        );
    }
}

#[test]
fn unchanged_figures_yield_no_commit() {
    if !has_git("a search for nothing") {
        return;
    }
    let repository = Repository::new(&[Kind::Fast]).replaying();
    let last_two = ["--good", "HEAD~1", "--bad", "HEAD"];
    let same = repository.bisect(&last_two);
    assert_eq!(same.status, Some(2), "{same:?}");
    assert!(same.stderr.contains("are identical"), "{same:?}");
    assert!(same.stderr.contains("help: --build has to"), "{same:?}");
    std::fs::write(repository.path().join("salt"), "other bytes").expect("write succeeds");
    repository.commit(2, Kind::Fast);
    let equal = repository.bisect(&last_two);
    assert_eq!(equal.status, Some(1), "{equal:?}");
    assert!(equal.stdout.contains("nothing to find"), "{equal:?}");
    repository.commit(3, Kind::Broken);
    let broken = repository.bisect(&last_two);
    assert_eq!(broken.status, Some(4), "{broken:?}");
    assert!(broken.stderr.contains("no luck today"), "{broken:?}");
}
