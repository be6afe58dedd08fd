//! Processes that a test started, found by their command lines.

use std::path::Path;
use std::time::{Duration, Instant};

/// Returns the command lines of all running processes that name `directory`, the directory of one
/// test. Trapline starts each child by the path of a part.
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

/// Returns the children of `parent`.
pub fn all_children(parent: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let words = lists.iter().flat_map(|list| list.split_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Returns the children of `parent` with the program name `name`.
pub fn children(parent: u32, name: &str) -> Vec<i32> {
    let is_called = |process: &i32| {
        let called = std::fs::read_to_string(format!("/proc/{process}/comm"));
        called.is_ok_and(|called| called.trim() == name)
    };
    all_children(parent).into_iter().filter(is_called).collect()
}

/// Returns the processes below `parent` with the program name `name`.
pub fn descendants(parent: u32, name: &str) -> Vec<i32> {
    let below = all_children(parent).into_iter();
    let below = below.flat_map(|child| descendants(child as u32, name));
    children(parent, name).into_iter().chain(below).collect()
}

/// Returns whether a process exists and is not a zombie.
pub fn is_running(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // proc(5): the state follows the name.
    let state = stat.rsplit_once(") ");
    state.is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Returns the number of processes of a group that are not zombies.
pub fn living_in_group(group: i32) -> usize {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    let stats = entries
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    // proc(5): state, parent and group follow the name.
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

/// Time limit for the start of a process on a busy host. Only a failing test waits for it.
pub const TO_BEGIN: Duration = Duration::from_secs(300);

/// Waits until `condition` holds, at most for `limit`, and returns whether it holds.
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
    // SAFETY: kill(2) accesses no memory of this process. The borrowed child has not been reaped,
    // so its process ID is still its own.
    let sent = unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    assert_eq!(sent, 0, "the child could not be signalled");
}
