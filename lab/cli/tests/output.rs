//! Output that cannot be written, and texts of others in lines of their own.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the exit status of the program, with a full disk as standard error, and as standard output if `both`.
fn status(words: &[&str], both: bool) -> Option<i32> {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    command.args(words).stdin(Stdio::null()).stderr(full());
    command.stdout(if both { full() } else { Stdio::null() });
    command.status().unwrap().code()
}

#[test]
fn a_full_disk_is_no_panic() {
    for (words, alone, both) in [
        (&[][..], 2, 2),
        (&["--help"], 0, 1),
        (&["run", "--nonsense"], 2, 2),
        (&["show", "--store", "/nonexistent"], 1, 1),
        (&["plan", "schema"], 0, 1),
    ] {
        let found = [false, true].map(|both| status(words, both));
        assert_eq!(found, [Some(alone), Some(both)], "{words:?}");
    }
}

#[test]
fn a_plan_forges_no_line_of_an_error() {
    let place = tempfile::tempdir().unwrap();
    let plan = place.path().join("plan.toml");
    let errors = |text: &str| {
        std::fs::write(&plan, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
        let output = command
            .args([Path::new("plan"), Path::new("check"), &plan])
            .output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    let text = errors("environments = [\"a\\n::error::b\\u202e\"]\n");
    assert!(text.contains("::error::b"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("::")), "{text}");
    assert!(!text.contains('\u{202e}'), "{text}");
}
