//! What built a part: compilers write their names and versions into `.comment`.
//! On the instruction clock another compiler is another figure.

use elf::endian::LittleEndian;
use elf::ElfBytes;
use std::path::Path;

/// The toolchains that built a part, each once, without the places where they
/// themselves were built; `None` if the file does not say.
pub fn of_part(path: &Path) -> Option<String> {
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

/// What is said of several parts, as one.
pub fn together(known: Option<&str>, of_part: &str) -> String {
    let all = known.into_iter().chain([of_part]);
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

    /// This test is a program that rustc built.
    #[test]
    fn a_program_says_what_built_it() {
        let told = of_part(&std::env::current_exe().unwrap()).unwrap();
        assert!(told.contains("rustc version 1."), "{told}");
        assert!(!told.contains("(/"), "{told}");
        assert_eq!(of_part(Path::new("/proc/self/status")), None);
    }

    #[test]
    fn parts_of_one_toolchain_are_told_once() {
        assert_eq!(together(None, "rustc 1; GCC 2"), "GCC 2; rustc 1");
        assert_eq!(
            together(Some("GCC 2; rustc 1"), "rustc 1"),
            "GCC 2; rustc 1"
        );
        assert_eq!(together(Some("rustc 1"), "rustc 2"), "rustc 1; rustc 2");
    }
}
