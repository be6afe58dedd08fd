//! Hypercalls.
//!
//! The instruction depends on the vendor of the CPU, and is undefined without a hypervisor. A probe
//! executes it; vectors.s handles an invalid opcode at the addresses of the probes. An image that is
//! a process makes system calls, or calls code of its VMM, instead.

use crate::cpu::in32;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use trapline_abi::platform::{
    HYPERCALL, HYPERCALL_CALL, HYPERCALL_ENTRY, HYPERCALL_SYSCALL, HYPERCALL_UNKNOWN,
};
use trapline_workloads::Reason;

extern "C" {
    fn trapline_probe_vmcall(number: u64) -> u64;
    fn trapline_probe_vmmcall(number: u64) -> u64;
}

/// Hypercall instruction.
#[derive(Clone, Copy)]
pub enum HypercallInstruction {
    /// `vmcall`, on Intel CPUs.
    Vmcall,
    /// `vmmcall`, on AMD CPUs.
    Vmmcall,
    /// `syscall`, in a process.
    Syscall,
    /// A call of the VMM's code, in a process.
    Call,
}

impl HypercallInstruction {
    /// Probes for a hypervisor that answers. `ports` is true if the VMM is Trapline's.
    ///
    /// # Errors
    /// There is none.
    pub fn find(ports: bool) -> Result<HypercallInstruction, Reason> {
        match if ports { in32(HYPERCALL) } else { 0 } {
            HYPERCALL_SYSCALL => return Ok(HypercallInstruction::Syscall),
            HYPERCALL_CALL => return Ok(HypercallInstruction::Call),
            _ => {}
        }
        let vendor = __cpuid(0);
        let intel = vendor.ebx.to_le_bytes() == *b"Genu";
        // SAFETY: the probes follow the calling convention; an unknown call has no effect, and
        // vectors.s handles an undefined instruction.
        let (instruction, answered) = unsafe {
            if intel {
                (
                    HypercallInstruction::Vmcall,
                    trapline_probe_vmcall(HYPERCALL_UNKNOWN),
                )
            } else {
                (
                    HypercallInstruction::Vmmcall,
                    trapline_probe_vmmcall(HYPERCALL_UNKNOWN),
                )
            }
        };
        match answered {
            0 => Err("no hypervisor: the hypercall instruction is undefined"),
            _ => Ok(instruction),
        }
    }

    /// Makes a hypercall that the hypervisor refuses. Returns its answer.
    #[inline(always)]
    pub fn call(self) -> i64 {
        let mut answer = HYPERCALL_UNKNOWN as i64;
        // SAFETY: the hypervisor refuses the call and changes nothing but rax.
        unsafe {
            match self {
                HypercallInstruction::Vmcall => {
                    asm!("vmcall", inout("rax") answer, options(nomem, nostack))
                }
                HypercallInstruction::Vmmcall => {
                    asm!("vmmcall", inout("rax") answer, options(nomem, nostack))
                }
                HypercallInstruction::Syscall => {
                    // With the bytes of `HYPERCALL_PADDING`.
                    asm!("syscall",
                         ".byte 0x66, 0x0f, 0x1f, 0x84, 0, 0x74, 0x72, 0x61, 0x70",
                         ".byte 0x66, 0x0f, 0x1f, 0x84, 0, 0x6c, 0x69, 0x6e, 0x65",
                         inout("rax") answer, out("rcx") _, out("r11") _,
                         options(nomem, nostack))
                }
                // Code of optimisation calls.
                HypercallInstruction::Call => {
                    asm!("call {}", in(reg) HYPERCALL_ENTRY,
                         inout("rax") answer, out("rcx") _, out("r11") _)
                } // End of optimisation calls.
            }
        }
        answer
    }
}
