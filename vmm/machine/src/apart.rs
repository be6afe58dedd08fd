//! Tests that need a process of their own: one whose heap grows as the VMM's does, so
//! that threads in it can be confined, or one with a network of its own.

use std::process::Command;

/// Set in that process.
const INSIDE: &str = "TRAPLINE_TEST_APART";

/// True in a process in which only the test `name` runs. Elsewhere it starts that, behind the
/// words of `before`, and waits until it has passed.
pub fn is_apart(before: &[&str], name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let mut words = before.iter().copied().chain([program]);
    let inside = Command::new(words.next().unwrap())
        .args(words)
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(INSIDE, "1")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&inside.stdout);
    let errors = String::from_utf8_lossy(&inside.stderr);
    assert!(inside.status.success(), "{}: {told}{errors}", inside.status);
    assert!(told.contains("1 passed"), "{told}");
    false
}
