//! Differences between AMD's SVM and Intel's VMX, whose exits NOVA passes on with their own numbers and data: AMD APM
//! volume 2, chapter 15 and appendix C; Intel SDM volume 3, chapters 25 to 28 and appendix C.

use crate::utcb::Utcb;

/// Why a guest exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It has not started yet.
    Start,
    /// An access to a port.
    Port,
    /// An access to memory that it does not have.
    Memory,
    Hypercall,
    Cpuid,
    /// `rdmsr` or `wrmsr`.
    Msr,
    /// `hlt`.
    Halt,
    /// It accepts interrupts now.
    InterruptWindow,
    /// This program asked for the exit.
    Recall,
    /// A triple fault.
    Shutdown,
    /// The CPU refused to enter it.
    InvalidState,
    /// Anything else.
    Other,
}

/// An access to a port.
pub struct PortAccess {
    pub port: u16,
    /// In bytes.
    pub size: u8,
    pub is_read: bool,
    /// It is one of `ins` or `outs`.
    pub is_string: bool,
    /// Length of the instruction, in bytes.
    pub length: u64,
}

/// Numbers of exits of NOVA itself (`include/config.hpp`).
const START: u64 = 0xfe;
const RECALL: u64 = 0xff;

/// A technology of hardware virtualization.
pub trait Technology {
    /// Controls that decide what exits, beyond those that NOVA forces.
    const CONTROLS: [u32; 2];
    /// Bits of the register EFER that the technology needs and that the guest does not see.
    const EFER: u64;

    /// Returns the cause of an exit with this number.
    fn cause(exit: u64) -> Cause;

    /// Returns the port access of the message of an exit.
    fn port(utcb: &Utcb) -> PortAccess;

    /// Returns whether an MSR was to be written.
    fn is_msr_write(utcb: &Utcb) -> bool;
}

/// AMD's.
pub struct Svm;

impl Technology for Svm {
    /// `cpuid`; VMRUN and VMMCALL (VMCB offsets 0xc and 0x10).
    const CONTROLS: [u32; 2] = [1 << 18, 1 << 0 | 1 << 1];
    /// SVM is enabled, as a guest's state requires (AMD APM volume 2, 15.5.1).
    const EFER: u64 = 1 << 12;

    #[inline(always)]
    fn cause(exit: u64) -> Cause {
        match exit {
            0x64 => Cause::InterruptWindow,
            0x72 => Cause::Cpuid,
            0x78 => Cause::Halt,
            0x7b => Cause::Port,
            0x7c => Cause::Msr,
            0x7f => Cause::Shutdown,
            0x81 => Cause::Hypercall,
            // Numbers of NOVA.
            0xfc => Cause::Memory,
            0xfd => Cause::InvalidState,
            START => Cause::Start,
            RECALL => Cause::Recall,
            _ => Cause::Other,
        }
    }

    /// Exit information 1 has the access, exit information 2 the address of the next instruction (AMD APM volume 2,
    /// 15.10.2).
    #[inline(always)]
    fn port(utcb: &Utcb) -> PortAccess {
        let [access, next] = utcb.qualification;
        PortAccess {
            port: (access >> 16) as u16,
            size: (access >> 4) as u8 & 7,
            is_read: access & 1 != 0,
            is_string: access & 1 << 2 != 0,
            length: next.wrapping_sub(utcb.rip),
        }
    }

    fn is_msr_write(utcb: &Utcb) -> bool {
        utcb.qualification[0] & 1 != 0
    }
}

/// Intel's.
pub struct Vmx;

/// Number of the exit of `wrmsr`.
const WRITE_MSR: u64 = 32;

impl Technology for Vmx {
    /// Primary: `mwait`, `rdpmc`, accesses to CR8, `monitor`; secondary: `rdtscp` works (Intel SDM volume 3, 25.6.2).
    const CONTROLS: [u32; 2] = [1 << 10 | 1 << 11 | 1 << 19 | 1 << 20 | 1 << 29, 1 << 3];
    const EFER: u64 = 0;

    #[inline(always)]
    fn cause(exit: u64) -> Cause {
        match exit {
            2 => Cause::Shutdown,
            7 => Cause::InterruptWindow,
            10 => Cause::Cpuid,
            12 => Cause::Halt,
            18 => Cause::Hypercall,
            30 => Cause::Port,
            31 | WRITE_MSR => Cause::Msr,
            33 => Cause::InvalidState,
            48 => Cause::Memory,
            START => Cause::Start,
            RECALL => Cause::Recall,
            _ => Cause::Other,
        }
    }

    /// The exit qualification has the access (Intel SDM volume 3, table 28-5).
    #[inline(always)]
    fn port(utcb: &Utcb) -> PortAccess {
        let [access, _] = utcb.qualification;
        PortAccess {
            port: (access >> 16) as u16,
            size: (access as u8 & 7) + 1,
            is_read: access & 1 << 3 != 0,
            is_string: access & 1 << 4 != 0,
            length: utcb.instruction_length,
        }
    }

    fn is_msr_write(utcb: &Utcb) -> bool {
        utcb.exit == WRITE_MSR
    }
}
