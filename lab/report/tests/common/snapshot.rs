//! Snapshots of texts in `tests/expected`.

use std::path::PathBuf;

/// Compares a text with its snapshot, or replaces the snapshot if `TRAPLINE_BLESS` is set.
pub fn assert_snapshot(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/expected");
    let path = folder.join(name);
    if std::env::var_os("TRAPLINE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(
        text == expected,
        "{name} differs from its snapshot (TRAPLINE_BLESS=1 replaces it):\n{text}"
    );
}
