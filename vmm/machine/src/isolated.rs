//! Tests in a separate process: one whose heap grows by `brk`, so that the seccomp filters apply, or one in its
//! own network namespace.

use std::process::Command;

/// Environment variable of the separate process.
const INSIDE: &str = "TRAPLINE_TEST_APART";

/// Returns true in the separate process, in which only test `name` runs. Otherwise starts it with the prefix
/// command `before` and waits until it passes.
pub fn in_separate_process(before: &[&str], name: &str) -> bool {
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
    let output = String::from_utf8_lossy(&inside.stdout);
    let errors = String::from_utf8_lossy(&inside.stderr);
    assert!(
        inside.status.success(),
        "{}: {output}{errors}",
        inside.status
    );
    assert!(output.contains("1 passed"), "{output}");
    false
}
