//! Calls by which hypervisors find the length of an intercepted instruction, which the simulated processor does not report.

use elf::abi::{SHN_UNDEF, SHT_RELA, STT_FUNC};
use elf::endian::AnyEndian;
use elf::ElfBytes;

/// Function of Xen that finds the length of an instruction.
pub const XEN_FUNCTION: &str = "svm_get_insn_len";

/// End of the names of functions of KVM that move on behind an instruction.
const SKIP: &str = "skip_emulated_instruction";

/// Function of KVM that they call to decode it.
const EMULATE: &str = "kvm_emulate_instruction";

/// Section of the code of modules.
pub const SECTION: &str = ".text";

/// Distance of a relocated address from the start of its direct call.
const OPCODE: u64 = 1;

/// Returns the offsets in [`SECTION`] of the calls of KVM's module for a processor that find the length of an instruction.
/// Modules without symbols, and others, have none.
pub fn calls_of_module(bytes: &[u8]) -> Vec<u64> {
    let Ok(file) = ElfBytes::<AnyEndian>::minimal_parse(bytes) else {
        return Vec::new();
    };
    calls(&file).unwrap_or_default()
}

fn calls(file: &ElfBytes<'_, AnyEndian>) -> Option<Vec<u64>> {
    let (headers, names) = file.section_headers_with_strtab().ok()?;
    let (headers, names) = (headers?, names?);
    let name_of = |offset: u32| names.get(offset as usize).ok();
    let code = headers
        .iter()
        .position(|header| name_of(header.sh_name) == Some(SECTION))?;
    let (symbols, symbol_names) = file.symbol_table().ok()??;
    let name_of = |offset: u32| symbol_names.get(offset as usize).ok();
    let functions: Vec<_> = symbols
        .iter()
        .filter(|symbol| symbol.st_symtype() == STT_FUNC && usize::from(symbol.st_shndx) == code)
        .filter(|symbol| name_of(symbol.st_name).is_some_and(|name| name.ends_with(SKIP)))
        .map(|symbol| symbol.st_value..symbol.st_value + symbol.st_size)
        .collect();
    let relocated = headers
        .iter()
        .find(|header| header.sh_type == SHT_RELA && header.sh_info as usize == code)?;
    let relocations = file.section_data_as_relas(&relocated).ok()?;
    let calls = relocations.filter(|relocation| {
        let target = symbols.get(relocation.r_sym as usize).ok();
        let target = target.filter(|symbol| symbol.st_shndx == SHN_UNDEF);
        target.is_some_and(|symbol| name_of(symbol.st_name) == Some(EMULATE))
            && functions.iter().any(|it| it.contains(&relocation.r_offset))
    });
    Some(calls.map(|call| call.r_offset - OPCODE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_have_no_calls() {
        assert!(calls_of_module(b"no module").is_empty());
        let program = std::fs::read("/proc/self/exe").unwrap();
        assert!(calls_of_module(&program).is_empty());
    }
}
