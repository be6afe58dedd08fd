//! Hypercalls of Xen, with up to two arguments in the registers of the System V calling convention.
//! Negative answers are errors.

use core::arch::asm;
use core::arch::x86_64::__cpuid;

/// Numbers of hypercalls (Xen `public/xen.h`).
pub const MEMORY_OP: u64 = 12;
const XEN_VERSION: u64 = 17;
pub const SCHED_OP: u64 = 29;
pub const EVENT_CHANNEL_OP: u64 = 32;
const HVM_OP: u64 = 34;

/// Operations of these hypercalls (`public/version.h`, `public/hvm/hvm_op.h`).
const VERSION_NUMBER: u64 = 0;
const HVM_SET_PARAM: u64 = 0;
const HVM_GET_PARAM: u64 = 1;

/// Domain id of the caller, `DOMID_SELF`.
pub const SELF: u16 = 0x7ff0;

/// Xen, with the hypercall instruction of the CPU vendor.
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

    /// Makes a hypercall with two arguments. Returns the answer of Xen.
    ///
    /// # Safety
    /// `second` is a valid argument of the operation: mostly the address of a structure, which Xen
    /// may read and write.
    #[inline(always)]
    pub unsafe fn call(self, number: u64, first: u64, second: u64) -> i64 {
        let answer: i64;
        // SAFETY: memory accesses are valid by contract; Xen may change only the argument registers.
        unsafe {
            if self.intel {
                asm!(
                    "vmcall",
                    inout("rax") number => answer, inout("rdi") first => _,
                    inout("rsi") second => _, options(nostack),
                )
            } else {
                asm!(
                    "vmmcall",
                    inout("rax") number => answer, inout("rdi") first => _,
                    inout("rsi") second => _, options(nostack),
                )
            }
        }
        answer
    }

    /// Returns the version: the minor number in the low 16 bits, the major number above.
    #[inline(always)]
    pub fn version(self) -> i64 {
        // SAFETY: the operation has no argument.
        unsafe { self.call(XEN_VERSION, VERSION_NUMBER, 0) }
    }

    /// Returns the HVM parameter `index`, or 0.
    pub fn parameter(self, index: u32) -> u64 {
        let mut parameter = Parameter::new(index, 0);
        // SAFETY: the structure that the operation reads, and whose value it writes.
        match unsafe { self.call(HVM_OP, HVM_GET_PARAM, &raw mut parameter as u64) } {
            0 => parameter.value,
            _ => 0,
        }
    }

    /// Sets the HVM parameter `index`. Returns true on success.
    pub fn set_parameter(self, index: u32, value: u64) -> bool {
        let parameter = Parameter::new(index, value);
        // SAFETY: the structure that the operation reads.
        unsafe { self.call(HVM_OP, HVM_SET_PARAM, &raw const parameter as u64) == 0 }
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
    fn new(index: u32, value: u64) -> Self {
        Self {
            domain: SELF,
            reserved: 0,
            index,
            value,
        }
    }
}
