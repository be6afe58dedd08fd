//! The instruction that identifies the processor: a read of an identification register.

use core::arch::asm;
use trapline_abi::Op;

/// The operation.
pub const OP: Op = Op::IdRegister;

/// Reason of a failure.
pub const DIFFERS: &str = "ID_AA64ISAR0_EL1 returned different values";

/// Argument of [`identify`]: none.
#[inline(always)]
pub fn argument() {}

/// Reads ID_AA64ISAR0_EL1 (Arm ARM, D23.2.72), which kernels emulate for their programs (Linux,
/// Documentation/arch/arm64/cpu-feature-registers.rst). The barrier begins a block of translated code: QEMU charges an access
/// that traps with the rest of its block.
#[inline(always)]
pub fn identify((): ()) -> u64 {
    let features;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {features}, id_aa64isar0_el1", "isb", features = out(reg) features,
             options(nostack, nomem, preserves_flags));
    }
    features
}
