//! Source lines of functions and instructions. The caller reads them from debug information.

use crate::address_space::AddressLayout;
use crate::format::Window;
use crate::symbols::{Function, Symbols};
use std::collections::BTreeMap;
use std::fmt;

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// Path of the file, as the compiler recorded it.
    pub file: String,
    /// Number of the line, from 1.
    pub line: u32,
}

impl SourceLine {
    /// Returns `x86.c:10790`.
    pub fn short(&self) -> String {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        format!("{name}:{}", self.line)
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Position of an instruction in its function, which in contrast to an address does not depend on where a
/// program or module is loaded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeOffset {
    /// The function.
    pub function: Function,
    /// First address of the function on the machine, which distinguishes functions of one name; 0 if unknown.
    pub start: u64,
    /// Offset in bytes.
    pub offset: u64,
}

/// Instructions per operation of one source line.
#[derive(Clone, Debug, PartialEq)]
pub struct LineCost {
    /// Component of the functions that contain the line.
    pub component: String,
    /// The line.
    pub source: SourceLine,
    /// Instructions per operation.
    pub insn: f64,
}

/// Source lines of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    /// First line of each function whose debug information is present.
    pub functions: BTreeMap<Function, SourceLine>,
    /// Executed lines by decreasing cost.
    pub lines: Vec<LineCost>,
}

impl Sources {
    /// Creates the source lines of a profile of `operations` from its executed offsets, with the lines that
    /// were found.
    pub fn new(
        executed: &BTreeMap<CodeOffset, u64>,
        operations: u64,
        found: &BTreeMap<CodeOffset, SourceLine>,
    ) -> Self {
        let mut sums: BTreeMap<(&str, &SourceLine), u64> = BTreeMap::new();
        for (offset, count) in executed {
            if let Some(source) = found.get(offset) {
                *sums
                    .entry((&offset.function.component, source))
                    .or_default() += count;
            }
        }
        let mut lines: Vec<_> = sums.into_iter().collect();
        // The sort is stable: equal counts stay in order of components and lines.
        lines.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let lines = lines
            .into_iter()
            .map(|((component, source), count)| LineCost {
                component: component.to_owned(),
                source: source.clone(),
                insn: count as f64 / operations as f64,
            });
        let starts = found.iter().filter(|(at, _)| at.offset == 0);
        Self {
            lines: lines.collect(),
            functions: starts
                .map(|(at, source)| (at.function.clone(), source.clone()))
                .collect(),
        }
    }
}

/// Returns how often the instruction at each offset was executed; without those outside of functions.
pub fn executed(
    window: &Window,
    symbols: &Symbols,
    layout: AddressLayout,
) -> BTreeMap<CodeOffset, u64> {
    let mut executed = BTreeMap::new();
    for insn in &window.insns {
        let space = layout.space(insn.level, insn.address);
        if let Some(start) = symbols.start(space, insn.address, insn.page) {
            let at = CodeOffset {
                function: symbols.find_insn(space, insn.address, insn.page),
                start,
                offset: insn.address - start,
            };
            *executed.entry(at).or_default() += insn.count;
        }
    }
    executed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::AddressSpace;
    use crate::format::InsnCount;

    #[test]
    fn instructions_are_summed_by_line() {
        let mut symbols = Symbols::default();
        let text = "ffffffff81000100 t f\nffffffffc0000000 t g\t[kvm]\n";
        symbols.add_kallsyms(AddressSpace::Kernel, "kernel", text);
        let insns = [
            (0xffff_ffff_8100_0100, 2),
            (0xffff_ffff_8100_0104, 5),
            (0xffff_ffff_c000_0008, 6),
        ];
        let insns = insns.map(|(address, count)| InsnCount {
            address,
            count,
            ..InsnCount::default()
        });
        let window = Window {
            insns: insns.to_vec(),
            ..Window::default()
        };
        let executed = executed(&window, &symbols, AddressLayout::Linux);
        let offsets: Vec<_> = executed
            .iter()
            .map(|(at, n)| (at.function.name.as_str(), at.offset, *n))
            .collect();
        assert_eq!(offsets, [("f", 0, 2), ("f", 4, 5), ("g", 8, 6)]);
        let line = |line| SourceLine {
            file: "virt/kvm/kvm_main.c".to_owned(),
            line,
        };
        let found = executed.keys().map(|key| (key.clone(), line(7))).collect();
        let sources = Sources::new(&executed, 2, &found);
        let costs: Vec<_> = sources
            .lines
            .iter()
            .map(|cost| (cost.component.as_str(), cost.insn))
            .collect();
        assert_eq!(costs, [("kernel", 3.5), ("kvm", 3.0)]);
        let starts: Vec<_> = sources
            .functions
            .keys()
            .map(|function| &function.name[..])
            .collect();
        assert_eq!(starts, ["f"]);
        assert_eq!(line(7).short(), "kvm_main.c:7");
    }
}
