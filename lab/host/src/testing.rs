//! Support for the tests of several crates.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program by another process. This one never has the file open for writing: a process that another thread
/// starts meanwhile would inherit it, and until its own `exec` no process could execute the file (`ETXTBSY`).
///
/// # Panics
/// The file cannot be written.
pub fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("'install' of coreutils starts");
    let mut input = install.stdin.take().expect("input is a pipe");
    let written = input.write_all(content.as_ref());
    drop(input);
    let status = install.wait().expect("'install' ends");
    assert!(
        written.is_ok() && status.success(),
        "cannot write {}: {status}",
        path.display()
    );
}
