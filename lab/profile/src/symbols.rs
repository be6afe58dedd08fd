//! Names of addresses: of kernels from `/proc/kallsyms`, of programs from their ELF files. Code
//! without a symbol has the name of the file mapped there, and the address of its function if the
//! file has an unwind table.

mod elf_file;
mod unwind;

pub use elf_file::{
    build_id, code_ranges, has_symbol_table, lowest_address, mini_debug_info, ElfError,
};

use crate::address_space::AddressSpace;
use crate::page;
use elf_file::ElfFile;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// A function and the program it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// `guest`, `kernel`, or the name of a module, program or library.
    pub component: String,
    /// Its name; in brackets for code without a symbol.
    pub name: String,
}

impl Function {
    /// Creates the name of code without a symbol: its function's address in the file, or the file.
    fn nameless(component: &str, address: Option<u64>) -> Self {
        let address = address.map(|address| format!("{OFFSET}{address:x}]"));
        Self {
            component: component.to_owned(),
            name: address.unwrap_or_else(|| format!("[{component}]")),
        }
    }

    /// Returns the address in its file of a function without a symbol.
    pub fn file_address(&self) -> Option<u64> {
        let address = self.name.strip_prefix(OFFSET)?.strip_suffix(']')?;
        u64::from_str_radix(address, 16).ok()
    }

    /// Returns true for code without a symbol.
    pub fn is_nameless(&self) -> bool {
        self.name.starts_with('[')
    }

    /// Returns the name without an address, which changes with every build of a file.
    pub fn stable_name(&self) -> Cow<'_, str> {
        if self.name.starts_with(OFFSET) {
            Cow::Owned(format!("[{}]", self.component))
        } else {
            Cow::Borrowed(&self.name)
        }
    }
}

/// Precedes the address of a function without a symbol.
const OFFSET: &str = "[+0x";

#[derive(Clone, Debug)]
struct Entry {
    /// The address after it, if known.
    end: Option<u64>,
    /// Upper bound of its end.
    limit: u64,
    function: Function,
}

/// Symbols of all address spaces.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    entries: BTreeMap<(AddressSpace, u64), Entry>,
    /// Functions of unwind tables, for addresses without a symbol.
    unwound: BTreeMap<(AddressSpace, u64), Entry>,
    /// Mapped files, for addresses without a function. They may overlap: linkers place programs at the same addresses.
    ranges: Vec<(AddressSpace, Range<u64>, Function)>,
    /// Address in its file of each code page, by fingerprint.
    pages: BTreeMap<u64, (AddressSpace, u64)>,
    files: u16,
}

/// Name of kernel code without a symbol.
const UNKNOWN: &str = "[unknown]";

impl Symbols {
    /// Returns the function at `address`.
    pub fn find(&self, space: AddressSpace, address: u64) -> Function {
        let named = lookup(&self.entries, space, address);
        let found = named.or_else(|| lookup(&self.unwound, space, address));
        let found = found.map(|(_, function)| function);
        let found = found.or_else(|| self.file_at(space, address));
        let mut function = found.cloned().unwrap_or_else(|| Function {
            component: match space {
                AddressSpace::Guest => "guest",
                AddressSpace::Hypervisor | AddressSpace::NestedHypervisor(_) => "hypervisor",
                AddressSpace::Kernel | AddressSpace::NestedKernel(_) => "kernel",
                AddressSpace::User | AddressSpace::NestedUser(_) | AddressSpace::File(_) => {
                    "program"
                }
            }
            .to_owned(),
            name: UNKNOWN.to_owned(),
        });
        if let Some(level) = space.nested_level() {
            function.component = nested_component(level, &function.component);
        }
        function
    }

    /// Returns the function of an instruction. The fingerprint of its page, if known, takes
    /// precedence over its address.
    pub fn find_insn(&self, space: AddressSpace, address: u64, page: Option<u64>) -> Function {
        let (found, address) = self.place(space, address, page);
        let mut function = self.find(found, address);
        // Files have no level.
        if let (true, Some(level)) = (found != space, space.nested_level()) {
            function.component = nested_component(level, &function.component);
        }
        function
    }

    /// Returns the shortest range with an address, of several the last one added.
    fn file_at(&self, space: AddressSpace, address: u64) -> Option<&Function> {
        let ranges = self.ranges.iter().rev();
        let around = ranges.filter(|(its, range, _)| *its == space && range.contains(&address));
        let shortest = around.min_by_key(|(_, range, _)| range.end - range.start);
        shortest.map(|(_, _, function)| function)
    }

    fn place(&self, space: AddressSpace, address: u64, page: Option<u64>) -> (AddressSpace, u64) {
        match page.and_then(|page| self.pages.get(&page)) {
            Some((file, start)) => (*file, start + address % page::SIZE as u64),
            None => (space, address),
        }
    }

    /// Returns the first address of the function of an instruction; `None` outside of functions.
    pub fn start(&self, space: AddressSpace, address: u64, page: Option<u64>) -> Option<u64> {
        let (space, in_file) = self.place(space, address, page);
        let tables = [&self.entries, &self.unwound];
        let mut found = tables
            .into_iter()
            .filter_map(|table| lookup(table, space, in_file));
        found.next().map(|(start, _)| address - (in_file - start))
    }

    /// Returns true if a function begins at `address`.
    pub fn begins(&self, space: AddressSpace, address: u64) -> bool {
        let tables = [&self.entries, &self.unwound];
        tables
            .iter()
            .any(|table| table.contains_key(&(space, address)))
    }

    /// Returns true if `component` has a symbol.
    pub fn has_component(&self, component: &str) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| entry.function.component == component)
    }

    /// Returns the first addresses of the functions in a space whose names satisfy `predicate`.
    pub fn starts(
        &self,
        space: AddressSpace,
        predicate: impl Fn(&str) -> bool,
    ) -> Vec<(AddressSpace, u64)> {
        let entries = self.entries.range((space, 0)..=(space, u64::MAX));
        let matching = entries.filter(|(_, entry)| predicate(&entry.function.name));
        matching.map(|(start, _)| *start).collect()
    }

    /// Adds the code symbols of the kernel `component` in `space` and its modules from the text of
    /// `/proc/kallsyms`, which gives modules in brackets.
    pub fn add_kallsyms(&mut self, space: AddressSpace, component: &str, text: &str) {
        for line in text.lines() {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            let [address, "t" | "T" | "w" | "W", name, ref module @ ..] = words[..] else {
                continue;
            };
            let Ok(address @ 1..) = u64::from_str_radix(address, 16) else {
                continue;
            };
            let module = module.first().map(|word| word.trim_matches(['[', ']']));
            let function = Function {
                component: module.unwrap_or(component).to_owned(),
                name: name.to_owned(),
            };
            self.add((space, address), None, u64::MAX, function);
        }
    }

    /// Adds the functions of a program or library loaded `bias` above the addresses in its file.
    ///
    /// # Errors
    /// The file is not ELF.
    pub fn add_elf(
        &mut self,
        space: AddressSpace,
        component: &str,
        bytes: &[u8],
        bias: u64,
    ) -> Result<(), ElfError> {
        let file = ElfFile::parse(component, bytes)?;
        for function in unwind::functions(&file) {
            let start = function.start.wrapping_add(bias);
            let entry = Entry {
                end: Some(function.end.wrapping_add(bias)),
                limit: u64::MAX,
                function: Function::nameless(component, Some(function.start)),
            };
            self.unwound.insert((space, start), entry);
        }
        for symbol in file.code_symbols()? {
            let start = symbol.start.wrapping_add(bias);
            let end = (symbol.size != 0).then(|| start + symbol.size);
            let limit = symbol.section_end.wrapping_add(bias);
            let function = Function {
                component: component.to_owned(),
                name: symbol.name,
            };
            self.add((space, start), end, limit, function);
        }
        Ok(())
    }

    /// Adds a program or library at unknown addresses, identified by its code pages.
    ///
    /// # Errors
    /// The file is not ELF.
    pub fn add_file(&mut self, component: &str, bytes: &[u8]) -> Result<(), ElfError> {
        let space = AddressSpace::File(self.files);
        self.add_elf(space, component, bytes, 0)?;
        for segment in ElfFile::parse(component, bytes)?.code_segments() {
            let end = segment.p_vaddr.saturating_add(segment.p_memsz);
            self.add_range(space, segment.p_vaddr, end, component);
            // The first and last page also contain the file's bytes around the segment.
            let before = segment.p_offset % page::SIZE as u64;
            let from = (segment.p_offset - before) as usize;
            let to = segment.p_offset.saturating_add(segment.p_filesz);
            let to = (to as usize).next_multiple_of(page::SIZE).min(bytes.len());
            let starts = (segment.p_vaddr - before..).step_by(page::SIZE);
            let pages = page::pages(bytes.get(from..to).unwrap_or_default());
            for (page, start) in pages.zip(starts) {
                let known = self.pages.entry(page::fingerprint(&page));
                known.or_insert((space, start));
            }
        }
        self.files = self.files.saturating_add(1);
        Ok(())
    }

    /// Adds a mapping of `component`, for its code without symbols.
    pub fn add_range(&mut self, space: AddressSpace, start: u64, end: u64, component: &str) {
        let function = Function::nameless(component, None);
        self.ranges.push((space, start..end, function));
    }

    /// Adds a function of `component` without a file, for addresses without another name.
    pub fn add_function(
        &mut self,
        space: AddressSpace,
        addresses: Range<u64>,
        component: &str,
        name: &str,
    ) {
        let function = Function {
            component: component.to_owned(),
            name: name.to_owned(),
        };
        self.ranges.push((space, addresses, function));
    }

    /// Adds a symbol. Of several at one address, those with an end take precedence, then the
    /// first in order of names.
    fn add(
        &mut self,
        start: (AddressSpace, u64),
        end: Option<u64>,
        limit: u64,
        function: Function,
    ) {
        let new = Entry {
            end,
            limit,
            function,
        };
        let rank = |entry: &Entry| (entry.end.is_none(), entry.function.clone());
        match self.entries.get(&start) {
            Some(old) if rank(old) <= rank(&new) => {}
            _ => drop(self.entries.insert(start, new)),
        }
    }
}

/// Returns the name of a component of the guest at `level`, counting the system of the machine as
/// L1.
fn nested_component(level: u8, component: &str) -> String {
    format!("L{}/{component}", level + 1)
}

fn lookup(
    entries: &BTreeMap<(AddressSpace, u64), Entry>,
    space: AddressSpace,
    address: u64,
) -> Option<(u64, &Function)> {
    let ((_, start), entry) = entries.range((space, 0)..=(space, address)).next_back()?;
    let is_inside = address < entry.end.unwrap_or(entry.limit);
    is_inside.then_some((*start, &entry.function))
}

/// The address range of a file in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// Path of the file, or the kernel's name such as `[vdso]`.
    pub path: String,
}

/// Parses `/proc/PID/maps` into one mapping per file, from its lowest to its highest address.
pub fn mappings(text: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let [range, _, _, _, _, path] = words[..] else {
            continue;
        };
        let parse = |word| u64::from_str_radix(word, 16).ok();
        let range = range.split_once('-');
        let Some((Some(start), Some(end))) = range.map(|(start, end)| (parse(start), parse(end)))
        else {
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
mod tests;
