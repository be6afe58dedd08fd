//! Announces to the instrumentation of a simulated machine where this system finds the length of intercepted
//! instructions ([`trapline_abi::marker::announcement`]). Without instrumentation that has no effect.

use super::script::LengthCalls;
use crate::arch::announcement::finds_lengths;
use std::fs;

/// Symbols of Xen, as `/proc/kallsyms` has those of Linux.
const XEN_SYMBOLS: &str = "/proc/xen/xensyms";

/// Returns the addresses of calls, or of functions. Systems without files that list them have none.
pub fn addresses(calls: &LengthCalls<'_>) -> Vec<u64> {
    match calls {
        LengthCalls::Module {
            name,
            section,
            offsets,
        } => {
            let start = fs::read_to_string(format!("/sys/module/{name}/sections/{section}"));
            let start = start.ok().and_then(|text| hexadecimal(text.trim()));
            let Some(start) = start.filter(|start| *start != 0) else {
                return Vec::new();
            };
            offsets.iter().map(|offset| start + offset).collect()
        }
        // Processors of others report lengths, and the list takes a second on their simulated machines.
        LengthCalls::Xen { function } if finds_lengths() => {
            let symbols = fs::read_to_string(XEN_SYMBOLS).unwrap_or_default();
            symbols
                .lines()
                .filter_map(|line| address_of(line, function))
                .collect()
        }
        LengthCalls::Xen { .. } => Vec::new(),
    }
}

/// Returns the address of a line `ADDRESS TYPE NAME` of this name.
fn address_of(line: &str, name: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    let (address, _, symbol) = (words.next()?, words.next()?, words.next()?);
    (symbol == name).then(|| hexadecimal(address))?
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_whole_name() {
        let line = "ffff82d040293460 T svm_get_insn_len";
        let found = address_of(line, "svm_get_insn_len");
        assert_eq!(found, Some(0xffff_82d0_4029_3460));
        assert_eq!(address_of(line, "svm_get_insn"), None);
        assert_eq!(address_of("ffff82d040293460", "svm_get_insn_len"), None);
    }

    #[test]
    fn systems_that_tell_nothing_have_no_addresses() {
        let missing = LengthCalls::Module {
            name: "no_such_module",
            section: ".text",
            offsets: vec![1],
        };
        assert_eq!(addresses(&missing), []);
    }
}
