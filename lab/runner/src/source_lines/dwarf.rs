//! Reads source lines from DWARF. Only sections with lines and addresses are read, and only the line tables of
//! compilation units with a wanted address are parsed: a kernel has hundreds of megabytes.

use addr2line::gimli::{DwarfSections, EndianSlice, LittleEndian, SectionId};
use addr2line::Context;
use object::read::ReadCache;
use object::{Object, ObjectKind, ObjectSection, ObjectSymbol};
use object::{RelocationTarget, SectionIndex, SectionKind, SymbolIndex};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use trapline_profile::source::{CodeOffset, SourceLine};

/// An ELF file, read as needed.
type Elf<'d> = object::File<'d, &'d ReadCache<File>>;

type Error = Box<dyn std::error::Error>;

/// Sections for the lines of addresses.
const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Section with line tables.
const LINES: &str = ".debug_line";

/// Returns true if the ELF file has line tables.
pub fn has_lines(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let bytes = ReadCache::new(file);
    Elf::parse(&bytes).is_ok_and(|elf| elf.section_by_name(LINES).is_some())
}

/// Returns the source lines of code of the file. Of functions with the same name only those at the address
/// in the file have one.
///
/// # Errors
/// The file cannot be read, or its debug information is invalid.
pub fn locate(
    path: &Path,
    offsets: BTreeSet<CodeOffset>,
) -> Result<BTreeMap<CodeOffset, SourceLine>, Error> {
    let bytes = ReadCache::new(File::open(path)?);
    let elf = Elf::parse(&bytes)?;
    let sections = DwarfSections::load(|id| {
        if SECTIONS.contains(&id) {
            section(&elf, id.name())
        } else {
            Ok(Cow::default())
        }
    })?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let context = Context::from_dwarf(dwarf)?;
    let starts = starts(&elf, &offsets);
    let mut found = BTreeMap::new();
    for at in &offsets {
        let start = at.function.file_address();
        let start = start.or_else(|| match &starts.get(at.function.name.as_str())?[..] {
            [start] => Some(*start),
            several => several.contains(&at.start).then_some(at.start),
        });
        let Some(start) = start else { continue };
        let location = context.find_location(start + at.offset)?;
        let Some((file, line @ 1..)) = location.and_then(|at| Some((at.file?, at.line?))) else {
            continue;
        };
        let file = normalized(file);
        found.insert(at.clone(), SourceLine { file, line });
    }
    Ok(found)
}

/// Returns the first addresses of functions by name.
fn starts<'o>(elf: &Elf<'_>, offsets: &'o BTreeSet<CodeOffset>) -> BTreeMap<&'o str, Vec<u64>> {
    let names: BTreeSet<&str> = offsets.iter().map(|at| &at.function.name[..]).collect();
    let mut starts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for symbol in elf.symbols().filter(|symbol| !symbol.is_undefined()) {
        let name = symbol.name().map(demangled).unwrap_or_default();
        if let Some(name) = names.get(&*name) {
            let (of_name, address) = (starts.entry(name).or_default(), address(elf, &symbol));
            if !of_name.contains(&address) {
                of_name.push(address);
            }
        }
    }
    starts
}

fn demangled(name: &str) -> Cow<'_, str> {
    if name.starts_with("_R") || name.starts_with("_ZN") {
        format!("{:#}", rustc_demangle::demangle(name)).into()
    } else {
        name.into()
    }
}

/// Returns the address of a symbol, with sections of relocatable files apart from each other.
fn address<'d>(elf: &Elf<'d>, symbol: &impl ObjectSymbol<'d>) -> u64 {
    let base = symbol.section_index().map_or(0, |index| base(elf, index));
    symbol.address() + base
}

/// Returns the address of a section of code in a relocatable file, such as a kernel module. There all sections
/// are at 0, and code of two sections would have the same addresses.
fn base(elf: &Elf<'_>, index: SectionIndex) -> u64 {
    let section = elf.section_by_index(index).ok();
    let is_code = section.is_some_and(|section| section.kind() == SectionKind::Text);
    if elf.kind() == ObjectKind::Relocatable && is_code {
        (index.0 as u64) << 32
    } else {
        0
    }
}

/// Returns the contents of a section, uncompressed and relocated; empty if there is none.
fn section<'d>(elf: &Elf<'d>, name: &str) -> Result<Cow<'d, [u8]>, Error> {
    let Some(section) = elf.section_by_name(name) else {
        return Ok(Cow::default());
    };
    let data = section.uncompressed_data()?;
    if elf.kind() != ObjectKind::Relocatable {
        return Ok(data);
    }
    let mut data = data.into_owned();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(SymbolIndex(index)) = relocation.target() else {
            continue;
        };
        let symbol = elf.symbol_by_index(SymbolIndex(index))?;
        let value = address(elf, &symbol).wrapping_add_signed(relocation.addend());
        let value = value.to_le_bytes();
        let size = usize::from(relocation.size() / 8).min(value.len());
        let place = data.get_mut(offset as usize..offset as usize + size);
        if let Some(place) = place {
            place.copy_from_slice(&value[..size]);
        }
    }
    Ok(data.into())
}

/// Removes `NAME/..` from a path.
fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match parts.last() {
            Some(last) if part == ".." && !matches!(*last, "" | "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use trapline_profile::Function;

    const ASSEMBLY: &str = ".file 1 \"dir/../first.c\"\n.text\n.globl first\nfirst:\n.loc 1 7\nnop\n.loc 1 9\nret\n\
                            .section .noinstr.text, \"ax\"\n.globl second\nsecond:\n.loc 1 21\nret\n";

    /// Assembles with line tables; `None` where binutils are missing.
    fn assembled(directory: &Path, program: &str) -> Option<std::path::PathBuf> {
        std::fs::write(directory.join("a.s"), ASSEMBLY).unwrap();
        let command = |words: &[&str]| {
            let mut command = Command::new(words[0]);
            let status = command.args(&words[1..]).current_dir(directory).status();
            status.is_ok_and(|status| status.success()).then_some(())
        };
        command(&["as", "--gdwarf-5", "-o", "a.ko", "a.s"])?;
        command(&["ld", "-e", "first", "-o", "linked", "a.ko"])?;
        Some(directory.join(program))
    }

    #[test]
    fn lines_are_found_by_function_and_offset() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str, offset| CodeOffset {
            function: Function {
                component: "kvm".to_owned(),
                name: name.to_owned(),
            },
            start: 0,
            offset,
        };
        let offsets = [("first", 0), ("first", 1), ("second", 0), ("third", 0)];
        for program in ["a.ko", "linked"] {
            let Some(file) = assembled(directory.path(), program) else {
                return;
            };
            assert!(has_lines(&file));
            let wanted = offsets
                .iter()
                .map(|(name, offset)| at(name, *offset))
                .collect();
            let found = locate(&file, wanted).unwrap();
            let lines: Vec<_> = found.values().map(SourceLine::short).collect();
            assert_eq!(lines, ["first.c:7", "first.c:9", "first.c:21"], "{program}");
        }
        assert!(!has_lines(&directory.path().join("a.s")));
    }

    #[test]
    fn paths_are_normalized() {
        assert_eq!(
            normalized("/linux/arch/x86/kvm/../../../virt/a.c"),
            "/linux/virt/a.c"
        );
        assert_eq!(normalized("../a.c"), "../a.c");
    }
}
