//! Calling the hypervisor, where there is one that answers.
//!
//! Two makers have two instructions, and on a bare machine either is undefined.
//! The instruction itself is asked: vectors.s answers an invalid opcode at the
//! probes' addresses with no.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use trapline_workloads::Reason;

/// A number that no hypervisor of ours gives a meaning to: it is refused.
const UNKNOWN_CALL: u64 = 0x7fff;

extern "C" {
    fn trapline_probe_vmcall(number: u64) -> u64;
    fn trapline_probe_vmmcall(number: u64) -> u64;
}

/// Which instruction calls the hypervisor.
#[derive(Clone, Copy)]
pub enum Gate {
    /// `vmcall`, on Intel's processors.
    Vmcall,
    /// `vmmcall`, on AMD's.
    Vmmcall,
}

impl Gate {
    /// Finds the instruction that a hypervisor answers.
    ///
    /// # Errors
    /// When there is none.
    pub fn find() -> Result<Gate, Reason> {
        let maker = __cpuid(0);
        let intel = maker.ebx.to_le_bytes() == *b"Genu";
        // SAFETY: the probes keep the calling convention; an unknown call has no
        // effect, and an undefined instruction is caught by vectors.s.
        let (gate, answered) = unsafe {
            match intel {
                true => (Gate::Vmcall, trapline_probe_vmcall(UNKNOWN_CALL)),
                false => (Gate::Vmmcall, trapline_probe_vmmcall(UNKNOWN_CALL)),
            }
        };
        match answered {
            0 => Err("no hypervisor takes hypercalls here: the instruction is undefined"),
            _ => Ok(gate),
        }
    }

    /// Makes a call that the hypervisor does not know; its answer.
    #[inline(always)]
    pub fn call(self) -> i64 {
        let mut answer = UNKNOWN_CALL as i64;
        // SAFETY: the hypervisor refuses the call and changes nothing but rax.
        unsafe {
            match self {
                Gate::Vmcall => asm!("vmcall", inout("rax") answer, options(nomem, nostack)),
                Gate::Vmmcall => asm!("vmmcall", inout("rax") answer, options(nomem, nostack)),
            }
        }
        answer
    }
}
