//! Reports skipped tests. Crates that tests/ depends on include this file by its path.

use std::io::Write;

/// Reports a skipped test with its reason, on standard error and in the file `$TRAPLINE_SKIPS`,
/// which `make test` prints at its end.
pub fn skip(feature: &str, why: &str) {
    let line = format!("{feature}: {why}\n");
    eprint!("skipped: {line}");
    let Some(file) = std::env::var_os("TRAPLINE_SKIPS") else {
        return;
    };
    let mut options = std::fs::OpenOptions::new();
    let opened = options.create(true).append(true).open(&file);
    opened
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("cannot note a skip in {file:?}: {error}"));
}
