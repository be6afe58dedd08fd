//! Compilers of a program, from their names and versions in its `.comment` section. Figures on the
//! instruction clock depend on them.

use elf::endian::LittleEndian;
use elf::ElfBytes;
use std::path::Path;

/// Returns the compilers of a program, each once, without the paths of their sources; `None` if the
/// file has no such section.
pub fn compilers_of(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let file = ElfBytes::<LittleEndian>::minimal_parse(&bytes).ok()?;
    let header = file.section_header_by_name(".comment").ok()??;
    let (comment, _) = file.section_data(&header).ok()?;
    let texts = comment
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy);
    let named = texts.filter_map(|text| Some(text.split(" (/").next()?.trim().to_owned()));
    merge(named)
}

/// Merges the compilers of several programs.
pub fn merge_compilers(known: Option<&str>, further: &str) -> String {
    let all = known.into_iter().chain([further]);
    let names = all.flat_map(|text| text.split("; ")).map(str::to_owned);
    merge(names).unwrap_or_default()
}

fn merge(names: impl Iterator<Item = String>) -> Option<String> {
    let mut names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| names.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_of_this_test_are_found() {
        let compilers = compilers_of(&std::env::current_exe().unwrap()).unwrap();
        assert!(compilers.contains("rustc version 1."), "{compilers}");
        assert!(!compilers.contains("(/"), "{compilers}");
        assert_eq!(compilers_of(Path::new("/proc/self/status")), None);
    }

    #[test]
    fn merged_compilers_are_unique() {
        assert_eq!(merge_compilers(None, "rustc 1; GCC 2"), "GCC 2; rustc 1");
        assert_eq!(
            merge_compilers(Some("GCC 2; rustc 1"), "rustc 1"),
            "GCC 2; rustc 1"
        );
        assert_eq!(
            merge_compilers(Some("rustc 1"), "rustc 2"),
            "rustc 1; rustc 2"
        );
    }
}
