//! Classification of x86 instructions by their bytes (Intel SDM volume 2, appendix A).

use crate::address_space::{AddressLayout, AddressSpace};

/// VMRUN: enters a guest (AMD APM volume 3).
pub const VMRUN: [u8; 3] = [0x0f, 0x01, 0xd8];

/// RDTSC: reads the clock.
pub const RDTSC: [u8; 2] = [0x0f, 0x31];

/// Bytes of the longest instruction (Intel SDM volume 2, 2.3.11).
pub const MAX_LENGTH: usize = 15;

/// Effect of an instruction on the return addresses in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Stores one.
    Call,
    /// Loads one.
    Return,
}

/// Returns the flow of an instruction; `None` for all but near calls and returns.
pub fn flow(bytes: &[u8]) -> Option<Flow> {
    match *opcode(bytes) {
        [0xe8, ..] => Some(Flow::Call),
        [0xff, operand, ..] if extension(operand) == 2 => Some(Flow::Call),
        [0xc3] | [0xc2, ..] => Some(Flow::Return),
        _ => None,
    }
}

/// Returns the bytes after legacy prefixes and REX.
fn opcode(bytes: &[u8]) -> &[u8] {
    let is_prefix = |byte: &&u8| {
        matches!(
            **byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let prefixes = bytes.iter().take_while(is_prefix).count();
    &bytes[prefixes..]
}

/// Returns the opcode extension in a ModRM byte.
fn extension(operand: u8) -> u8 {
    operand >> 3 & 7
}

/// Kind of an instruction whose work a count of 1 does not describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Stops the CPU until an interrupt, during which the clock advances without instructions.
    Halt,
    /// Enters a guest: VMRUN, VMLAUNCH or VMRESUME.
    GuestEntry,
    /// Returns from a system call to its program: SYSRET or SYSEXIT.
    SystemReturn,
    /// Returns from an interrupt or fault: IRET.
    TrapReturn,
    /// Writes a model-specific register: WRMSR.
    MsrWrite,
    /// Replaces the root of the page tables: a move to CR3.
    PageTableRoot,
    /// One iteration of a repeated string instruction, which counts 1 whatever its length.
    StringIteration,
}

impl Event {
    /// All events, in the order of output.
    pub const ALL: [Self; 7] = [
        Self::Halt,
        Self::GuestEntry,
        Self::SystemReturn,
        Self::TrapReturn,
        Self::MsrWrite,
        Self::PageTableRoot,
        Self::StringIteration,
    ];

    /// Returns the name in the plugin's output and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Halt => "halts",
            Self::GuestEntry => "guest_entries",
            Self::SystemReturn => "system_returns",
            Self::TrapReturn => "trap_returns",
            Self::MsrWrite => "msr_writes",
            Self::PageTableRoot => "page_table_roots",
            Self::StringIteration => "string_iterations",
        }
    }

    /// Returns the event of an instruction, if it has one.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let code = opcode(bytes);
        let is_repeated = bytes[..bytes.len() - code.len()]
            .iter()
            .any(|prefix| matches!(prefix, 0xf2 | 0xf3));
        match *code {
            [0xf4, ..] => Some(Self::Halt),
            [0x0f, 0x01, 0xd8 | 0xc2 | 0xc3, ..] => Some(Self::GuestEntry),
            [0x0f, 0x07 | 0x35, ..] => Some(Self::SystemReturn),
            [0xcf, ..] => Some(Self::TrapReturn),
            [0x0f, 0x30, ..] => Some(Self::MsrWrite),
            [0x0f, 0x22, operand, ..] if extension(operand) == 3 => Some(Self::PageTableRoot),
            [0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf, ..] if is_repeated => {
                Some(Self::StringIteration)
            }
            _ => None,
        }
    }
}

/// Set for every instruction. The lowest byte holds the length.
const KNOWN: u64 = 1 << 8;
/// Last instruction of a translation block.
const ENDS_BLOCK: u64 = 1 << 9;
/// Hypervisors intercept it.
const INTERCEPTED: u64 = 1 << 10;
/// Any address may follow.
const JUMP: u64 = 1 << 11;
/// The kernel follows.
const CALLS_KERNEL: u64 = 1 << 12;
/// The interrupted code follows.
const RETURNS: u64 = 1 << 13;
/// Executed at CPL 0 in host mode.
const PRIVILEGED: u64 = 1 << 15;
/// Belongs to a program.
const PROGRAM: u64 = 1 << 16;
/// Faults without privilege.
const REFUSED: u64 = 1 << 17;
/// Lowest bit of the place of its event in [`Event::ALL`], from 1; 0 for none.
const EVENT: u32 = 20;

/// Address and properties of an instruction that decide whether it retired, given its successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsnTraits {
    /// Virtual address.
    pub address: u64,
    bits: u64,
}

impl InsnTraits {
    /// Classifies an instruction; `ends_block` if it is the last of its translation block.
    pub fn new(layout: AddressLayout, address: u64, bytes: &[u8], ends_block: bool) -> Self {
        let privileged = layout.is_privileged(address);
        let program = layout.space(0, address) == AddressSpace::User;
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let event = Event::of(bytes).map_or(0, |event| event as u64 + 1);
        Self {
            address,
            bits: KNOWN
                | bytes.len() as u64
                | classify(bytes)
                | event << EVENT
                | flag(ends_block, ENDS_BLOCK)
                | flag(privileged, PRIVILEGED)
                | flag(program, PROGRAM),
        }
    }

    /// Restores what [`Self::bits`] returned.
    pub const fn from_bits(address: u64, bits: u64) -> Self {
        Self { address, bits }
    }

    /// Returns the properties as a word; 0 for no instruction.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// Returns true unless this is the default value.
    pub fn is_known(self) -> bool {
        self.has(KNOWN)
    }

    /// Returns its event, if it has one. Only privileged code halts.
    pub fn event(self) -> Option<Event> {
        let place = (self.bits >> EVENT) as usize;
        let event = Event::ALL.get(place.checked_sub(1)?).copied();
        event.filter(|event| *event != Event::Halt || self.has(PRIVILEGED))
    }

    /// Returns true if it runs at CPL 0 in host mode.
    pub fn is_privileged(self) -> bool {
        self.has(PRIVILEGED)
    }

    /// Returns true if it belongs to a program.
    pub fn is_program(self) -> bool {
        self.has(PROGRAM)
    }

    /// Returns true if it returns from an interrupt or fault.
    pub fn returns_from_trap(self) -> bool {
        self.has(RETURNS)
    }

    /// Returns true if QEMU refuses it at translation, for lack of privilege.
    pub fn is_refused(self) -> bool {
        self.has(REFUSED) && !self.has(PRIVILEGED)
    }

    fn has(self, bit: u64) -> bool {
        self.bits & bit != 0
    }

    /// Returns true if privileged code at `entry` is a trap handler, entered by a fault in this
    /// instruction or an interrupt after it.
    pub fn traps_to(self, entry: u64) -> bool {
        if self.has(PRIVILEGED) {
            !self.may_continue_at(entry)
        } else {
            !self.has(CALLS_KERNEL)
        }
    }

    fn may_continue_at(self, next: u64) -> bool {
        self.has(JUMP | RETURNS)
            || next == self.address
            || next == self.address.wrapping_add(self.bits & 0xff)
    }

    /// Returns true if only this instruction itself can have caused a trap or exit after it.
    pub fn causes_trap(self) -> bool {
        !self.has(ENDS_BLOCK) || self.has(INTERCEPTED)
    }
}

/// Returns the properties given by the opcode. KVM and Xen on AMD with nested paging intercept
/// ports, hlt, cpuid, model-specific registers, control registers but CR3, hypercalls, and the
/// instructions of a nested hypervisor from VMRUN to CLGI.
fn classify(bytes: &[u8]) -> u64 {
    match *opcode(bytes) {
        [0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef, ..] => INTERCEPTED,
        [0xf4, ..] => INTERCEPTED | REFUSED,
        [0x0f, 0x30 | 0x32, ..] => INTERCEPTED | REFUSED,
        [0x0f, 0xa2, ..] | [0x0f, 0x01, 0xc1 | 0xd8..=0xdd, ..] => INTERCEPTED,
        [0x0f, 0x20 | 0x22, operand, ..] if extension(operand) != 3 => INTERCEPTED | REFUSED,
        [0x0f, 0x06 | 0x08 | 0x09 | 0x20..=0x23, ..] | [0xfa | 0xfb, ..] => REFUSED,
        [0x0f, 0x05 | 0x34, ..] | [0xcd, ..] => CALLS_KERNEL,
        [0xcf, ..] => RETURNS,
        [0x0f, 0x07 | 0x35 | 0x80..=0x8f, ..] => JUMP,
        [0x70..=0x7f | 0xc2 | 0xc3 | 0xca | 0xcb | 0x9a | 0xea, ..] => JUMP,
        [0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb, ..] => JUMP,
        [0xff, operand, ..] if (2..=5).contains(&extension(operand)) => JUMP,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_returns_are_recognized() {
        for (bytes, expected) in [
            (&[0xe8, 0, 0, 0, 0][..], Some(Flow::Call)),
            (&[0xff, 0xd0], Some(Flow::Call)),
            (&[0x41, 0xff, 0x54, 0x24, 8], Some(Flow::Call)),
            (&[0x3e, 0xff, 0xd0], Some(Flow::Call)),
            (&[0x2e, 0xe8, 0, 0, 0, 0], Some(Flow::Call)),
            (&[0xc3], Some(Flow::Return)),
            (&[0xf3, 0xc3], Some(Flow::Return)),
            (&[0xc2, 8, 0], Some(Flow::Return)),
            // jmp, push, inc; an immediate with the opcode of a return.
            (&[0xff, 0xe0], None),
            (&[0xff, 0x75, 0xe8], None),
            (&[0xff, 0xc0], None),
            (&[0xb0, 0xc3], None),
            (&[0x48], None),
        ] {
            assert_eq!(flow(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn events_are_recognized() {
        for (bytes, expected) in [
            (&[0xf4][..], Some(Event::Halt)),
            (&VMRUN, Some(Event::GuestEntry)),
            (&[0x0f, 0x01, 0xc3], Some(Event::GuestEntry)),
            (&[0x48, 0x0f, 0x07], Some(Event::SystemReturn)),
            (&[0x48, 0xcf], Some(Event::TrapReturn)),
            (&[0x0f, 0x30], Some(Event::MsrWrite)),
            (&[0x0f, 0x22, 0xdf], Some(Event::PageTableRoot)),
            (&[0x41, 0x0f, 0x22, 0xdc], Some(Event::PageTableRoot)),
            (&[0xf3, 0x48, 0xab], Some(Event::StringIteration)),
            (&[0xf3, 0xa4], Some(Event::StringIteration)),
            // Without a prefix; a move to CR0; VMCALL; a return and a pause with the prefix.
            (&[0xab], None),
            (&[0x0f, 0x22, 0xc7], None),
            (&[0x0f, 0x01, 0xc1], None),
            (&[0xf3, 0xc3], None),
            (&[0xf3, 0x90], None),
        ] {
            assert_eq!(Event::of(bytes), expected, "{bytes:x?}");
            let kernel = crate::address_space::KERNEL;
            let traits = InsnTraits::new(AddressLayout::Linux, kernel, bytes, false);
            assert_eq!(traits.event(), expected);
            let restored = InsnTraits::from_bits(kernel, traits.bits());
            assert_eq!(restored.event(), expected);
        }
        let program = InsnTraits::new(AddressLayout::Linux, 0x1000, &[0xf4], false);
        assert_eq!(program.event(), None);
    }

    #[test]
    fn opcodes_are_classified() {
        for (bytes, expected) in [
            (&[0xf3, 0x6c][..], INTERCEPTED),
            (&[0x66, 0xed], INTERCEPTED),
            (&[0x0f, 0x20, 0xc0], INTERCEPTED | REFUSED),
            (&[0x0f, 0x22, 0xd8], REFUSED),
            (&[0x41, 0xff, 0xe3], JUMP),
            (&[0xff, 0xc0], 0),
            (&[0x48, 0xcf], RETURNS),
            (&[0x41], 0),
        ] {
            assert_eq!(classify(bytes), expected, "{bytes:x?}");
        }
    }
}
