//! Addresses in the guest's process.
//!
//! Below [`SWITCHER`] are the guest's own addresses, mapped according to its page tables. The switcher has the
//! instructions that the VMM lets the process execute. Above [`ALIAS`] all of guest memory is mapped once, as the
//! source of the other mappings; a guest that goes there sees its own memory.

use std::ops::Range;
use trapline_abi::platform::HYPERCALL_ENTRY;
use trapline_abi::spaces;
use trapline_interface::PAGE;

/// First page of the switcher; the guest's addresses end here.
pub(crate) const SWITCHER: u64 = 0x6fff_0000_0000;
/// Address of the seccomp filter's program.
pub(crate) const FILTER: u64 = SWITCHER + PAGE as u64;
/// Handler of hypercalls that are calls of it.
pub(crate) const ENTRY: u64 = HYPERCALL_ENTRY;
/// Handler of rewritten system calls.
pub(crate) const REWRITTEN: u64 = ENTRY + 0x20;
const _: () = assert!(SWITCHER + 0x100 == ENTRY);
/// Address of the list of calls for [`SWITCHER_LIST`].
pub(crate) const CALLS: u64 = FILTER + 0x200;
/// Two pages that stand in for memory while an instruction is executed alone.
pub(crate) const SCRATCH: u64 = SWITCHER + 2 * PAGE as u64;
/// Control page, which processes that report signals themselves share ([`crate::spaces`]).
pub(crate) const CONTROL: u64 = SCRATCH + 2 * PAGE as u64;
/// Stack of the handler of signals.
pub(crate) const STACK: u64 = CONTROL + PAGE as u64;
/// Size of that stack: a frame with the largest register state (AMX) has 11 KiB.
pub(crate) const STACK_SIZE: u64 = 4 * PAGE as u64 - OWN_SIZE;
/// Words of one process, behind its stack ([`crate::handler`]).
pub(crate) const OWN: u64 = STACK + STACK_SIZE;
/// Bytes of these words.
pub(crate) const OWN_SIZE: u64 = 512;
/// Bytes of stack and words.
pub(crate) const STACK_PAGES: u64 = STACK_SIZE + OWN_SIZE;
/// Code for requests of address spaces ([`crate::handover`]).
pub(crate) const SPACES: u64 = spaces::ENTRY;
const _: () = assert!(SWITCHER + 0x400 == SPACES);
/// Pages of the switcher.
pub(crate) const SWITCHER_PAGES: usize = 9;
/// Address of the handler of signals ([`crate::handler`]).
pub(crate) const SIGNAL_HANDLER: u64 = SWITCHER + 0x200;
/// Address of arguments for the calls that install it.
pub(crate) const HANDLER_SETUP: u64 = FILTER + 0x800;
/// Address of guest-physical address 0.
pub(crate) const ALIAS: u64 = 0x7000_0000_0000;
/// End of the addresses of a process with four levels of page tables.
pub(crate) const END: u64 = 0x7fff_ffff_f000;

/// Makes one system call, then stops the process.
#[rustfmt::skip]
pub(crate) const SWITCHER_CALL: [u8; 3] = [
    0x0f, 0x05,                         // syscall
    0xcc,                               // int3
];

// Code of optimisation calls.

/// Refuses a hypercall (`HYPERCALL_REFUSED`). It reads and writes no memory but the return address.
#[rustfmt::skip]
pub(crate) const HANDLER: [u8; 8] = [
    0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, // mov rax, -1
    0xc3,                               // ret
];

// End of optimisation calls.
// Code of optimisation rewriting.

/// Refuses a hypercall whose return address is in `rcx`.
#[rustfmt::skip]
pub(crate) const REWRITTEN_HANDLER: [u8; 9] = [
    0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, // mov rax, -1
    0xff, 0xe1,                         // jmp rcx
];

// End of optimisation rewriting.

/// Address of [`SWITCHER_LIST`].
pub(crate) const LIST: u64 = SWITCHER + 16;

/// Makes the system calls of a list at `rbx`, until one fails or is 0, then stops the process. An element has a
/// number and five arguments.
#[rustfmt::skip]
pub(crate) const SWITCHER_LIST: [u8; 44] = [
    0x48, 0x8b, 0x03,                   // 0: mov rax, [rbx]
    0x48, 0x8b, 0x7b, 0x08,             // 3: mov rdi, [rbx + 8]
    0x48, 0x8b, 0x73, 0x10,             // 7: mov rsi, [rbx + 16]
    0x48, 0x8b, 0x53, 0x18,             // 11: mov rdx, [rbx + 24]
    0x4c, 0x8b, 0x53, 0x20,             // 15: mov r10, [rbx + 32]
    0x4c, 0x8b, 0x43, 0x28,             // 19: mov r8, [rbx + 40]
    0x0f, 0x05,                         // 23: syscall
    0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, // 25: cmp rax, -4095
    0x73, 0x0a,                         // 31: jae 43
    0x48, 0x83, 0xc3, 0x30,             // 33: add rbx, 48
    0x48, 0x83, 0x3b, 0x00,             // 37: cmp qword [rbx], 0
    0x75, 0xd5,                         // 41: jne 0
    0xcc,                               // 43: int3
];

/// Returns the addresses between the kept ranges, which ascend.
pub(crate) fn complement(kept: &[Range<u64>]) -> Vec<Range<u64>> {
    let starts = [0].into_iter().chain(kept.iter().map(|range| range.end));
    let ends = kept.iter().map(|range| range.start).chain([END]);
    let gaps = starts.zip(ends).map(|(start, end)| start..end);
    gaps.filter(|gap| gap.start < gap.end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_not_kept_is_in_a_gap() {
        let gaps = complement(&[0x1000..0x2000, 0x2000..0x3000, 0x5000..END]);
        assert_eq!(gaps, [0..0x1000, 0x3000..0x5000]);
        assert_eq!(complement(&[]).first(), Some(&(0..END)));
    }
}
