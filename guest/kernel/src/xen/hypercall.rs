//! Calling Xen. A call has a number and up to two arguments here, in the registers of
//! the System V convention; the answer is negative if it is an error.

use core::arch::asm;
use core::arch::x86_64::__cpuid;

/// Numbers of hypercalls (Xen `public/xen.h`).
pub const MEMORY_OP: u64 = 12;
const XEN_VERSION: u64 = 17;
pub const SCHED_OP: u64 = 29;
pub const EVENT_CHANNEL_OP: u64 = 32;
const HVM_OP: u64 = 34;

/// Operations of those (`public/version.h`, `public/hvm/hvm_op.h`).
const VERSION_NUMBER: u64 = 0;
const HVM_SET_PARAM: u64 = 0;
const HVM_GET_PARAM: u64 = 1;

/// The domain that calls.
pub const SELF: u16 = 0x7ff0;

/// Xen, and which of two makers' instructions calls it.
#[derive(Clone, Copy)]
pub struct Xen {
    intel: bool,
}

impl Xen {
    pub fn here() -> Xen {
        Xen {
            intel: __cpuid(0).ebx.to_le_bytes() == *b"Genu",
        }
    }

    /// Makes a call with two arguments; Xen's answer.
    ///
    /// # Safety
    /// `second` is what the operation takes: mostly the address of a structure, which
    /// Xen may read and write.
    #[inline(always)]
    pub unsafe fn call(self, number: u64, first: u64, second: u64) -> i64 {
        let answer: i64;
        // SAFETY: the caller answers for what the call does to memory; of the registers
        // Xen may change those of the arguments.
        unsafe {
            match self.intel {
                true => asm!(
                    "vmcall",
                    inout("rax") number => answer, inout("rdi") first => _,
                    inout("rsi") second => _, options(nostack),
                ),
                false => asm!(
                    "vmmcall",
                    inout("rax") number => answer, inout("rdi") first => _,
                    inout("rsi") second => _, options(nostack),
                ),
            }
        }
        answer
    }

    /// Which version it is: the major number above, the minor in the low 16 bits.
    #[inline(always)]
    pub fn version(self) -> i64 {
        // SAFETY: the operation takes nothing.
        unsafe { self.call(XEN_VERSION, VERSION_NUMBER, 0) }
    }

    /// What the toolstack or Xen left for the domain under `index`, or 0.
    pub fn parameter(self, index: u32) -> u64 {
        let mut asked = Parameter::of(index, 0);
        // SAFETY: the structure that the operation reads, and whose value it writes.
        match unsafe { self.call(HVM_OP, HVM_GET_PARAM, &raw mut asked as u64) } {
            0 => asked.value,
            _ => 0,
        }
    }

    /// Leaves `value` there; whether Xen took it.
    pub fn set_parameter(self, index: u32, value: u64) -> bool {
        let told = Parameter::of(index, value);
        // SAFETY: the structure that the operation reads.
        unsafe { self.call(HVM_OP, HVM_SET_PARAM, &raw const told as u64) == 0 }
    }
}

/// `xen_hvm_param`.
#[repr(C)]
struct Parameter {
    domain: u16,
    reserved: u16,
    index: u32,
    value: u64,
}

impl Parameter {
    fn of(index: u32, value: u64) -> Self {
        Self {
            domain: SELF,
            reserved: 0,
            index,
            value,
        }
    }
}
