//! Reads symbols and segments of ELF files.

use elf::abi::{PF_X, PT_LOAD, SHF_EXECINSTR, SHT_NOTE, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use elf::endian::AnyEndian;
use elf::note::Note;
use elf::section::SectionHeader;
use elf::segment::ProgramHeader;
use elf::symbol::Symbol;
use elf::{ElfBytes, ParseError};

/// A file that is not a valid ELF file.
#[derive(Debug, thiserror::Error)]
#[error("{component}: cannot be read as ELF file: {source}")]
pub struct ElfError {
    component: String,
    source: ParseError,
}

/// Prefix of labels of whole sections, which precede that of their first function.
const SECTION_LABEL: &str = "_stext";

/// A symbol of code.
pub struct CodeSymbol {
    /// First address in the file.
    pub start: u64,
    /// Bytes; 0 if unknown.
    pub size: u64,
    /// The address after its section.
    pub section_end: u64,
    /// Demangled name.
    pub name: String,
}

/// A parsed ELF file.
pub struct ElfFile<'a> {
    component: &'a str,
    elf: ElfBytes<'a, AnyEndian>,
}

impl<'a> ElfFile<'a> {
    /// Parses the file `bytes`; errors name `component`.
    pub fn parse(component: &'a str, bytes: &'a [u8]) -> Result<Self, ElfError> {
        let elf = ElfBytes::minimal_parse(bytes);
        let elf = elf.map_err(|source| ElfError {
            component: component.to_owned(),
            source,
        })?;
        Ok(Self { component, elf })
    }

    fn check<T>(&self, result: Result<T, ParseError>) -> Result<T, ElfError> {
        result.map_err(|source| ElfError {
            component: self.component.to_owned(),
            source,
        })
    }

    /// Returns the functions and code labels in both symbol tables.
    pub fn code_symbols(&self) -> Result<Vec<CodeSymbol>, ElfError> {
        let mut found = Vec::new();
        for table in [self.elf.symbol_table(), self.elf.dynamic_symbol_table()] {
            let Some((symbols, names)) = self.check(table)? else {
                continue;
            };
            for symbol in symbols.iter().filter(|symbol| symbol.st_shndx != 0) {
                let section = self.section(&symbol);
                let name = names.get(symbol.st_name as usize).unwrap_or_default();
                let is_named = !name.is_empty() && !name.starts_with(SECTION_LABEL);
                if is_named && is_code(&symbol, section.as_ref()) {
                    found.push(CodeSymbol {
                        start: symbol.st_value,
                        size: symbol.st_size,
                        section_end: section.map_or(u64::MAX, |section| {
                            section.sh_addr.wrapping_add(section.sh_size)
                        }),
                        name: demangled(name),
                    });
                }
            }
        }
        Ok(found)
    }

    /// Returns the address and the bytes of a section.
    pub fn section_named(&self, name: &str) -> Option<(u64, &'a [u8])> {
        let header = self.elf.section_header_by_name(name).ok()??;
        let (bytes, _) = self.elf.section_data(&header).ok()?;
        Some((header.sh_addr, bytes))
    }

    fn section(&self, symbol: &Symbol) -> Option<SectionHeader> {
        let headers = self.elf.section_headers()?;
        headers.get(symbol.st_shndx.into()).ok()
    }

    /// Returns the executable segments.
    pub fn code_segments(&self) -> impl Iterator<Item = ProgramHeader> + use<'a> {
        self.loaded_segments()
            .filter(|segment| segment.p_flags & PF_X != 0)
    }

    fn loaded_segments(&self) -> impl Iterator<Item = ProgramHeader> + use<'a> {
        let segments = self.elf.segments().into_iter().flatten();
        segments.filter(|segment| segment.p_type == PT_LOAD)
    }
}

/// Returns true for functions, and for labels of assembly code, which often have neither type
/// nor size. Linkers define labels such as `__ehdr_start` far before the section that they name
/// as theirs; these are not code.
fn is_code(symbol: &Symbol, section: Option<&SectionHeader>) -> bool {
    match symbol.st_symtype() {
        STT_FUNC | STT_GNU_IFUNC => true,
        STT_NOTYPE => section.is_some_and(|section| {
            section.sh_flags & u64::from(SHF_EXECINSTR) != 0 && symbol.st_value >= section.sh_addr
        }),
        _ => false,
    }
}

/// Returns the first address of the lowest page that a program's file maps.
///
/// # Errors
/// The file is not ELF.
pub fn lowest_address(component: &str, bytes: &[u8]) -> Result<u64, ElfError> {
    let file = ElfFile::parse(component, bytes)?;
    let pages = file
        .loaded_segments()
        .map(|segment| segment.p_vaddr & !0xfff);
    Ok(pages.min().unwrap_or(0))
}

/// Returns the linker's build ID, which the stripped and unstripped files of a build share.
///
/// # Errors
/// The file is not ELF.
pub fn build_id(component: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>, ElfError> {
    let file = ElfFile::parse(component, bytes)?;
    let sections = file.elf.section_headers().into_iter().flatten();
    for section in sections.filter(|section| section.sh_type == SHT_NOTE) {
        for note in file.check(file.elf.section_data_as_notes(&section))? {
            if let Note::GnuBuildId(id) = note {
                return Ok(Some(id.0.to_vec()));
            }
        }
    }
    Ok(None)
}

/// Returns true if the file has its full symbol table, which stripped files lack.
///
/// # Errors
/// The file is not ELF.
pub fn has_symbol_table(component: &str, bytes: &[u8]) -> Result<bool, ElfError> {
    let file = ElfFile::parse(component, bytes)?;
    Ok(file.section_named(".symtab").is_some())
}

/// Returns the compressed ELF file with the symbols of functions that some distributions keep in
/// stripped files (MiniDebugInfo), if there is one.
///
/// # Errors
/// The file is not ELF.
pub fn mini_debug_info<'a>(
    component: &'a str,
    bytes: &'a [u8],
) -> Result<Option<&'a [u8]>, ElfError> {
    let file = ElfFile::parse(component, bytes)?;
    Ok(file.section_named(".gnu_debugdata").map(|(_, data)| data))
}

/// Returns the address ranges of a program's code: first addresses, and the addresses after.
///
/// # Errors
/// The file is not ELF.
pub fn code_ranges(component: &str, bytes: &[u8]) -> Result<Vec<(u64, u64)>, ElfError> {
    let segments = ElfFile::parse(component, bytes)?.code_segments();
    let range = |segment: ProgramHeader| {
        (
            segment.p_vaddr,
            segment.p_vaddr.wrapping_add(segment.p_memsz),
        )
    };
    Ok(segments.map(range).collect())
}
/// Returns the name of a function in Rust, C++ (Itanium C++ ABI, 5.1) or C. Of C++ functions parameters are left out.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params();
    let symbol = cpp_demangle::Symbol::new(name).ok();
    let name_of = symbol.and_then(|symbol| symbol.demangle_with_options(&options).ok());
    name_of.unwrap_or_else(|| name.to_owned())
}
