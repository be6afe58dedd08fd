//! Names for addresses: of kernels from `/proc/kallsyms`, of programs from their
//! ELF files, and of what has no names from the file that is mapped there.

use crate::page;
use crate::worlds::Space;
use elf::abi::{PF_X, PT_LOAD, SHT_NOTE, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use elf::endian::AnyEndian;
use elf::note::Note;
use elf::segment::ProgramHeader;
use elf::symbol::Symbol;
use elf::ElfBytes;
use std::collections::BTreeMap;

/// A function, or whatever is known in place of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// What it is part of: `guest`, `kernel`, a module, a program, a library.
    pub component: String,
    /// Its name; in brackets where it has none.
    pub name: String,
}

#[derive(Clone, Debug)]
struct Entry {
    /// The address behind it, where that is known.
    end: Option<u64>,
    /// Where it ends at the latest.
    limit: u64,
    function: Function,
}

/// All names that are known.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    entries: BTreeMap<(Space, u64), Entry>,
    /// Whole mappings: what lies in one and in no function has its name.
    ranges: BTreeMap<(Space, u64), Entry>,
    /// Pages of the code of programs, by what they hold: the file's space, and the
    /// page's own address in it.
    pages: BTreeMap<u64, (Space, u64)>,
    files: u16,
}

/// A file that cannot be read as a program.
#[derive(Debug, thiserror::Error)]
#[error("{component} is no ELF file that can be read: {source}")]
pub struct BadProgram {
    component: String,
    source: elf::ParseError,
}

/// Labels of whole sections, which stand before that of their first function.
const SECTION: &str = "_stext";

/// What kernel code has no symbol for.
const UNKNOWN: &str = "[unknown]";

impl Symbols {
    /// The function at `address`.
    pub fn find(&self, space: Space, address: u64) -> Function {
        let named = below(&self.entries, space, address);
        let whole = || below(&self.ranges, space, address);
        named.or_else(whole).cloned().unwrap_or_else(|| Function {
            component: match space {
                Space::Guest => "guest",
                Space::Hypervisor => "hypervisor",
                Space::Kernel => "kernel",
                Space::User | Space::File(_) => "program",
            }
            .to_owned(),
            name: UNKNOWN.to_owned(),
        })
    }

    /// The function of an instruction. What its page holds says more than its
    /// address, where it is told.
    pub fn of_instruction(&self, space: Space, address: u64, page: Option<u64>) -> Function {
        match page.and_then(|page| self.pages.get(&page)) {
            Some((file, start)) => self.find(*file, start + address % page::SIZE as u64),
            None => self.find(space, address),
        }
    }

    /// Whether something that has a name begins at `address`.
    pub fn begins(&self, space: Space, address: u64) -> bool {
        self.entries.contains_key(&(space, address))
    }

    /// Whether any function of a component has a name.
    pub fn names_any_of(&self, component: &str) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| entry.function.component == component)
    }

    /// Where functions of a space begin whose names `wanted` holds for.
    pub fn starts(&self, space: Space, wanted: impl Fn(&str) -> bool) -> Vec<(Space, u64)> {
        let entries = self.entries.range((space, 0)..=(space, u64::MAX));
        let matching = entries.filter(|(_, entry)| wanted(&entry.function.name));
        matching.map(|(at, _)| *at).collect()
    }

    /// Adds the code of a kernel, `component`, and its modules, as `/proc/kallsyms` lists
    /// it: a module's symbols carry its name in brackets.
    pub fn add_kallsyms(&mut self, component: &str, text: &str) {
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            if !matches!(kind, "t" | "T" | "w" | "W") || address == 0 {
                continue;
            }
            let module = words.next().map(|word| word.trim_matches(['[', ']']));
            let function = Function {
                component: module.unwrap_or(component).to_owned(),
                name: name.to_owned(),
            };
            self.name((Space::Kernel, address), None, u64::MAX, function);
        }
    }

    /// Adds the functions of a program or library that is loaded `bias` above the
    /// addresses in its file.
    ///
    /// # Errors
    /// The file is no ELF file.
    pub fn add_elf(
        &mut self,
        space: Space,
        component: &str,
        bytes: &[u8],
        bias: u64,
    ) -> Result<(), BadProgram> {
        let bad = |source| BadProgram {
            component: component.to_owned(),
            source,
        };
        let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).map_err(bad)?;
        for table in [file.symbol_table(), file.dynamic_symbol_table()] {
            let Some((symbols, names)) = table.map_err(bad)? else {
                continue;
            };
            for symbol in symbols.iter().filter(|symbol| symbol.st_shndx != 0) {
                let kind = symbol.st_symtype();
                // Assembly often gives its labels neither type nor size.
                let is_code = kind == STT_FUNC || kind == STT_GNU_IFUNC;
                let is_label = kind == STT_NOTYPE && in_code(&file, &symbol);
                let name = names.get(symbol.st_name as usize).unwrap_or_default();
                if (is_code || is_label) && !name.is_empty() && !name.starts_with(SECTION) {
                    let start = symbol.st_value.wrapping_add(bias);
                    let end = (symbol.st_size != 0).then(|| start + symbol.st_size);
                    let function = Function {
                        component: component.to_owned(),
                        name: format!("{:#}", rustc_demangle::demangle(name)),
                    };
                    let section = section_end(&file, symbol.st_shndx);
                    let limit = section.wrapping_add(bias);
                    self.name((space, start), end, limit, function);
                }
            }
        }
        Ok(())
    }

    /// Adds a program or library that may be anywhere, known by what its pages hold.
    ///
    /// # Errors
    /// The file is no ELF file, or has more code than bytes.
    pub fn add_file(&mut self, component: &str, bytes: &[u8]) -> Result<(), BadProgram> {
        let space = Space::File(self.files);
        self.add_elf(space, component, bytes, 0)?;
        for segment in executable(component, bytes)? {
            let end = segment.p_vaddr.saturating_add(segment.p_memsz);
            self.add_range(space, segment.p_vaddr, end, component);
            // What a page holds before and behind the segment is of the file, too.
            let before = segment.p_offset % page::SIZE as u64;
            let from = (segment.p_offset - before) as usize;
            let to = segment.p_offset.saturating_add(segment.p_filesz);
            let to = (to as usize).next_multiple_of(page::SIZE).min(bytes.len());
            let starts = (segment.p_vaddr - before..).step_by(page::SIZE);
            let pages = page::pages(bytes.get(from..to).unwrap_or_default());
            for (page, start) in pages.zip(starts) {
                let at = self.pages.entry(page::fingerprint(&page));
                at.or_insert((space, start));
            }
        }
        self.files = self.files.saturating_add(1);
        Ok(())
    }

    /// Adds a mapping of `component`, for code in it that has no name.
    pub fn add_range(&mut self, space: Space, start: u64, end: u64, component: &str) {
        let function = Function {
            component: component.to_owned(),
            name: format!("[{component}]"),
        };
        let entry = Entry {
            end: Some(end),
            limit: end,
            function,
        };
        self.ranges.insert((space, start), entry);
    }

    /// Of several names for one address the first by order of letters is kept,
    /// and one that knows its end before one that does not.
    fn name(&mut self, at: (Space, u64), end: Option<u64>, limit: u64, function: Function) {
        let new = Entry {
            end,
            limit,
            function,
        };
        let rank = |entry: &Entry| (entry.end.is_none(), entry.function.clone());
        match self.entries.get(&at) {
            Some(old) if rank(old) <= rank(&new) => {}
            _ => drop(self.entries.insert(at, new)),
        }
    }
}

fn below(entries: &BTreeMap<(Space, u64), Entry>, space: Space, address: u64) -> Option<&Function> {
    let (_, entry) = entries.range((space, 0)..=(space, address)).next_back()?;
    let inside = address < entry.end.unwrap_or(entry.limit);
    inside.then_some(&entry.function)
}

/// Linkers give labels to a section that lie far before it, such as `__ehdr_start`:
/// they are no code, and would take the names of other programs' code.
fn in_code(file: &ElfBytes<'_, AnyEndian>, symbol: &Symbol) -> bool {
    let headers = file.section_headers();
    let header = headers.and_then(|headers| headers.get(symbol.st_shndx.into()).ok());
    header.is_some_and(|header| {
        let is_code = header.sh_flags & u64::from(elf::abi::SHF_EXECINSTR) != 0;
        is_code && symbol.st_value >= header.sh_addr
    })
}

/// The address behind a section.
fn section_end(file: &ElfBytes<'_, AnyEndian>, section: u16) -> u64 {
    let headers = file.section_headers();
    let header = headers.and_then(|headers| headers.get(section.into()).ok());
    header.map_or(u64::MAX, |header| {
        header.sh_addr.wrapping_add(header.sh_size)
    })
}

/// The lowest address that a program's file asks for.
///
/// # Errors
/// The file is no ELF file.
pub fn lowest_address(component: &str, bytes: &[u8]) -> Result<u64, BadProgram> {
    let bad = |source| BadProgram {
        component: component.to_owned(),
        source,
    };
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).map_err(bad)?;
    let segments = file.segments().into_iter().flatten();
    let loaded = segments.filter(|segment| segment.p_type == PT_LOAD);
    Ok(loaded
        .map(|segment| segment.p_vaddr & !0xfff)
        .min()
        .unwrap_or(0))
}

/// What the linker has called a program: those of one build have it in common, with
/// symbols or without.
///
/// # Errors
/// The file is no ELF file.
pub fn build_id(component: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>, BadProgram> {
    let bad = |source| BadProgram {
        component: component.to_owned(),
        source,
    };
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).map_err(bad)?;
    for header in file.section_headers().into_iter().flatten() {
        if header.sh_type != SHT_NOTE {
            continue;
        }
        for note in file.section_data_as_notes(&header).map_err(bad)? {
            if let Note::GnuBuildId(id) = note {
                return Ok(Some(id.0.to_vec()));
            }
        }
    }
    Ok(None)
}

/// Where a program's file has code: first addresses, and the addresses behind.
///
/// # Errors
/// The file is no ELF file.
pub fn code(component: &str, bytes: &[u8]) -> Result<Vec<(u64, u64)>, BadProgram> {
    let end = |segment: &ProgramHeader| segment.p_vaddr.wrapping_add(segment.p_memsz);
    let code = executable(component, bytes)?;
    let code = code.iter().map(|segment| (segment.p_vaddr, end(segment)));
    Ok(code.collect())
}

/// The segments of a program's file that are code.
fn executable(component: &str, bytes: &[u8]) -> Result<Vec<ProgramHeader>, BadProgram> {
    let bad = |source| BadProgram {
        component: component.to_owned(),
        source,
    };
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).map_err(bad)?;
    let segments = file.segments().into_iter().flatten();
    let is_code =
        |segment: &ProgramHeader| segment.p_type == PT_LOAD && segment.p_flags & PF_X != 0;
    Ok(segments.filter(is_code).collect())
}

/// A file in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// The file's path, or the kernel's name for what is no file.
    pub path: String,
}

/// The files in `/proc/PID/maps`, each from its first address to its last.
pub fn mappings(text: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let [range, _, _, _, _, path] = words[..] else {
            continue;
        };
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let parse = |word| u64::from_str_radix(word, 16).ok();
        let (Some(start), Some(end)) = (parse(start), parse(end)) else {
            continue;
        };
        match found.iter_mut().find(|mapping| mapping.path == path) {
            Some(mapping) => mapping.end = mapping.end.max(end),
            None => found.push(Mapping {
                start,
                end,
                path: path.to_owned(),
            }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_and_modules_are_named_from_kallsyms() {
        let mut symbols = Symbols::default();
        symbols.add_kallsyms(
            "kernel",
            "ffffffff81000000 T _text\nffffffff81000000 T _stext\n\
             ffffffff81000100 t do_it\nffffffff81000180 d data\n\
             ffffffffc0000000 t svm_vcpu_run\t[kvm_amd]\n",
        );
        let told = |address| {
            let function = symbols.find(Space::Kernel, address);
            format!("{} {}", function.component, function.name)
        };
        assert_eq!(told(0xffff_ffff_8100_0001), "kernel _stext");
        assert_eq!(told(0xffff_ffff_8100_0190), "kernel do_it");
        assert_eq!(told(0xffff_ffff_c000_0010), "kvm_amd svm_vcpu_run");
        assert_eq!(told(0x1000), "kernel [unknown]");
        let starts = symbols.starts(Space::Kernel, |name| name.starts_with("do_"));
        assert_eq!(starts, [(Space::Kernel, 0xffff_ffff_8100_0100)]);
    }

    #[test]
    fn code_without_a_name_has_that_of_its_file() {
        let mut symbols = Symbols::default();
        symbols.add_range(Space::User, 0x1000, 0x2000, "qemu");
        assert_eq!(symbols.find(Space::User, 0x1fff).name, "[qemu]");
        assert_eq!(symbols.find(Space::User, 0x2000).component, "program");
        assert_eq!(symbols.find(Space::Guest, 0x1fff).component, "guest");
        assert!(!symbols.names_any_of("qemu"));
    }

    #[test]
    fn this_very_program_has_names() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut symbols = Symbols::default();
        let space = Space::User;
        symbols.add_elf(space, "test", &bytes, 0x1000).unwrap();
        let main = symbols.entries.iter();
        let main = main.filter(|(_, entry)| entry.function.name == "main");
        let ((_, start), entry) = main.into_iter().next().unwrap();
        assert!(entry.end.is_some_and(|end| end > *start));
        assert_eq!(symbols.find(space, *start).component, "test");
        assert!(symbols.names_any_of("test"));
        let code = code("test", &bytes).unwrap();
        assert!(code
            .iter()
            .any(|(from, to)| (from..to).contains(&&(start - 0x1000))));
        assert!(symbols.add_elf(space, "text", b"no program", 0).is_err());
    }

    #[test]
    fn code_is_known_by_what_its_page_holds() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut symbols = Symbols::default();
        symbols.add_file("test", &bytes).unwrap();
        let segment = &executable("test", &bytes).unwrap()[0];
        let from = (segment.p_offset as usize).next_multiple_of(page::SIZE);
        let page = page::pages(&bytes[from..]).next().unwrap();
        let page = Some(page::fingerprint(&page));
        let anywhere = 0x5555_5555_4010;
        let function = symbols.of_instruction(Space::User, anywhere, page);
        assert_eq!(function.component, "test");
        let at = segment.p_vaddr - segment.p_offset + from as u64 + 0x10;
        assert_eq!(function, symbols.find(Space::File(0), at));
        let unknown = symbols.of_instruction(Space::User, anywhere, Some(1));
        assert_eq!(unknown.component, "program");
    }

    #[test]
    fn mappings_of_one_file_are_one() {
        let text = "00400000-00401000 r--p 00000000 00:02 7 /usr/bin/x\n\
                    00401000-00405000 r-xp 00001000 00:02 7 /usr/bin/x\n\
                    00405000-00406000 rw-p 00000000 00:00 0\n\
                    7ffff7fc9000-7ffff7fcd000 r-xp 00000000 00:00 0 [vdso]\n";
        let found = mappings(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].start, found[0].end), (0x40_0000, 0x40_5000));
        assert_eq!(found[1].path, "[vdso]");
    }
}
