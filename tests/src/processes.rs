//! Processes that a test's lab started, found by what they were started with.

use std::path::Path;
use std::time::{Duration, Instant};

/// Command lines of all living processes that name `directory`, which belongs to
/// one test alone. The lab gives every child the path of a part.
pub fn naming(directory: &Path) -> Vec<String> {
    let directory = directory.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten();
    let numbered =
        entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    numbered
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|words| String::from_utf8_lossy(&words).replace('\0', " "))
        .filter(|line| line.contains(&directory))
        .collect()
}

/// The processes that `parent` has started itself and that are called `name`.
pub fn children(parent: u32, name: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let all: Vec<i32> = lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter_map(|word| word.parse().ok())
        .collect();
    let is_called = |process: &i32| {
        let called = std::fs::read_to_string(format!("/proc/{process}/comm"));
        called.is_ok_and(|called| called.trim() == name)
    };
    all.into_iter().filter(is_called).collect()
}

/// Returns the number of living processes of a group.
pub fn living_in_group(group: i32) -> usize {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    let stats = entries
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    // proc(5): behind the name stand the state, the parent and the group.
    let fields = |stat: &String| -> Option<(String, i32)> {
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let state = words.next()?.to_owned();
        Some((state, words.nth(1)?.parse().ok()?))
    };
    let states = stats.filter_map(|stat| fields(&stat));
    states
        .filter(|(state, of)| *of == group && state != "Z")
        .count()
}

/// How long a busy host may take to begin what was asked of it. Only a test that fails waits
/// so long.
pub const TO_BEGIN: Duration = Duration::from_secs(300);

/// Waits until `condition` holds, at most `limit`; whether it came to hold.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    condition()
}

/// Sends a signal to a process that the test itself started.
pub fn signal(child: &std::process::Child, signal: i32) {
    // SAFETY: kill(2) touches no memory of ours, and the child was not reaped:
    // its handle is borrowed, so its number is still its own.
    let sent = unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    assert_eq!(sent, 0, "the child could not be signalled");
}
