//! Paths in the words of a command.

use std::path::{Component, Path, PathBuf};

/// Characters between the parts of a word, as in `path=/a/b,readonly=on`.
const SEPARATORS: [char; 3] = ['=', ',', ':'];

/// Returns the parts of a word, of which each may be a path.
pub fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(SEPARATORS)
}

/// Returns a part of a word as a relative path, if it has a slash and leads nowhere out of its directory.
pub fn relative(part: &str) -> Option<PathBuf> {
    let components = Path::new(part).components();
    let components = components.filter(|component| *component != Component::CurDir);
    let is_inside = |component| matches!(component, Component::Normal(_));
    let is_path = part.contains('/') && components.clone().all(is_inside);
    is_path.then(|| components.collect())
}

/// Returns a word with the relative paths of files in `directory` made absolute. The word of a program is a path
/// as a whole, and need not exist.
pub fn resolve(text: &str, directory: &Path, is_program: bool) -> String {
    let absolute = |part: &str| {
        let is_relative = part.contains('/') && !part.starts_with('/');
        let path = directory.join(part).components().collect::<PathBuf>();
        let is_resolved = is_relative && (is_program || path.is_file());
        is_resolved.then(|| path.to_string_lossy().into_owned())
    };
    if is_program {
        return absolute(text).unwrap_or_else(|| text.to_owned());
    }
    let with_separators = text.split_inclusive(SEPARATORS);
    let resolved = with_separators.map(|word| {
        let part = word.trim_end_matches(SEPARATORS);
        let separator = &word[part.len()..];
        absolute(part).map_or_else(|| word.to_owned(), |path| path + separator)
    });
    resolved.collect()
}

/// Returns whether a file exists and is on no filesystem of the kernel.
pub fn is_ordinary_file(path: &Path) -> bool {
    let of_kernel = ["/dev", "/proc", "/sys"];
    path.is_absolute() && path.is_file() && !of_kernel.iter().any(|root| path.starts_with(root))
}

/// Returns a file, or all files of a directory and of those below it, in the order of their names.
pub fn files_below(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return vec![path.to_owned()];
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    // Symbolic links to directories may form loops.
    let followed = |path: &PathBuf| !path.is_symlink() || path.is_file();
    paths
        .iter()
        .filter(|path| followed(path))
        .flat_map(|path| files_below(path))
        .collect()
}
