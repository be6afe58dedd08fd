//! System calls rewritten as jumps to a handler in the process.
//!
//! Only calls that the guest marks ([`HYPERCALL_PADDING`]) are rewritten: for others the VMM cannot exclude that
//! something else jumps to the bytes behind them. The jump has the effects of `syscall` on registers, and uses no stack.

// Code of optimisation rewriting.

use crate::delivery::Cpu;
use crate::layout::REWRITTEN;
use crate::memory::Memory;
use trapline_abi::platform::HYPERCALL_PADDING;
use trapline_emulation::decode::Access;
use trapline_emulation::paging::translate;
use trapline_interface::PAGE;

const PADDING: usize = HYPERCALL_PADDING.len();
/// Bytes of a system call.
const CALL: usize = 2;

/// Returns a jump to the handler, with the return address in `rcx`.
fn jump() -> [u8; CALL + PADDING] {
    let mut code = [0; CALL + PADDING];
    code[..2].copy_from_slice(&[0x49, 0xbb]); // mov r11, REWRITTEN
    code[2..10].copy_from_slice(&REWRITTEN.to_le_bytes());
    code[10..17].copy_from_slice(&[0x48, 0x8d, 0x0d, 3, 0, 0, 0]); // lea rcx, [rip + 3]
    code[17..].copy_from_slice(&[0x41, 0xff, 0xe3]); // jmp r11
    code
}

/// Rewrites the system call that ends at `rip`. Returns the address behind it; `None` if it is not marked, or not
/// in one page of writable memory.
pub(crate) fn rewrite(memory: &mut Memory, cpu: &Cpu, rip: u64) -> Option<u64> {
    let start = rip.checked_sub(CALL as u64)?;
    if start as usize % PAGE + CALL + PADDING > PAGE {
        return None;
    }
    let at = translate(memory, &cpu.system, start, Access::Read)
        .ok()?
        .address;
    let mut padding = [0; PADDING];
    memory.read(at + CALL as u64, &mut padding)?;
    if padding != HYPERCALL_PADDING {
        return None;
    }
    memory.write(at, &jump())?;
    Some(rip + PADDING as u64)
}
