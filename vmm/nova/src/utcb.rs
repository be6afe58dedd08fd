//! The message of a VM exit (`Utcb_data` in `include/utcb.hpp`): parts of the vCPU's state, selected by a message
//! transfer descriptor (`include/mtd.hpp`).

use trapline_emulation::paging::Paging;
use trapline_emulation::{merge, GuestRegisters};
use trapline_interface::{General, Segment, System, Table};

/// A set of parts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(pub u64);

impl Parts {
    pub const NONE: Self = Self(0);
    /// rax, rcx, rdx, rbx.
    pub const ACDB: Self = Self(1);
    /// rbp, rsi, rdi.
    pub const BSD: Self = Self(1 << 1);
    pub const RSP: Self = Self(1 << 2);
    pub const RIP: Self = Self(1 << 3);
    pub const FLAGS: Self = Self(1 << 4);
    pub const DS_ES: Self = Self(1 << 5);
    pub const FS_GS: Self = Self(1 << 6);
    pub const CS_SS: Self = Self(1 << 7);
    pub const TR: Self = Self(1 << 8);
    pub const LDTR: Self = Self(1 << 9);
    pub const GDTR: Self = Self(1 << 10);
    pub const IDTR: Self = Self(1 << 11);
    pub const CR: Self = Self(1 << 12);
    pub const DR: Self = Self(1 << 13);
    pub const SYSENTER: Self = Self(1 << 14);
    /// Exit qualification.
    pub const QUALIFICATION: Self = Self(1 << 15);
    /// Intercepts.
    pub const CONTROL: Self = Self(1 << 16);
    pub const INJECTION: Self = Self(1 << 17);
    /// Interrupt shadow.
    pub const SHADOW: Self = Self(1 << 18);
    pub const TSC: Self = Self(1 << 19);
    pub const EFER: Self = Self(1 << 20);
    pub const R8_R15: Self = Self(1 << 22);
    /// MSRs of `syscall` and `swapgs`.
    pub const SYSCALL: Self = Self(1 << 23);
    pub const TSC_AUX: Self = Self(1 << 25);
    pub const XSAVE: Self = Self(1 << 26);

    /// All general registers, `rip` and `rflags`.
    pub const GENERAL: Self = Self::ACDB
        .with(Self::BSD)
        .with(Self::R8_R15)
        .with(Self::RSP)
        .with(Self::RIP)
        .with(Self::FLAGS);

    /// Segments, tables and control registers.
    pub const SYSTEM: Self = Self::DS_ES
        .with(Self::FS_GS)
        .with(Self::CS_SS)
        .with(Self::TR)
        .with(Self::LDTR)
        .with(Self::GDTR)
        .with(Self::IDTR)
        .with(Self::CR)
        .with(Self::EFER);

    /// Returns the union.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the parts that `other` does not have.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether all of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Attributes of a segment: present, and of a code segment, 64-bit mode (AMD APM volume 2, 4.8.1).
const PRESENT: u16 = 1 << 7;
const LONG: u16 = 1 << 9;
/// NOVA's attribute of a segment that VMX must not check (Intel SDM volume 3, 25.4.1); SVM ignores it.
const UNUSABLE: u16 = 1 << 12;

/// A segment register; attributes as in [`Segment`].
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct WireSegment {
    selector: u16,
    attributes: u16,
    limit: u32,
    base: u64,
}

/// The message. Fields have the names of the source of NOVA where these are standard.
#[repr(C)]
pub struct Utcb {
    head: [u64; 4],
    /// Parts that are valid after an exit, and written at the next entry.
    pub parts: u64,
    /// Length of the instruction that caused the exit; VMX only.
    pub instruction_length: u64,
    pub rip: u64,
    pub rflags: u64,
    /// Not 0 in the shadow of `sti` or `mov ss`.
    pub shadow: u32,
    activity: u32,
    /// Event to be injected (AMD APM volume 2, 15.20; Intel SDM volume 3, 25.8.3), or event whose delivery the exit
    /// interrupted.
    pub injection: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rbx: u64,
    rsp: u64,
    rbp: u64,
    rsi: u64,
    rdi: u64,
    r8_r15: [u64; 8],
    /// Exit information 1 and 2 of the VMCB, or exit qualification of the VMCS; of an access to memory that the guest does
    /// not have, error code and physical address.
    pub qualification: [u64; 2],
    /// Controls that decide what exits: VMCB offsets 0xc and 0x10, or primary and secondary controls of the VMCS.
    pub control: [u32; 2],
    cr0: u64,
    pub cr2: u64,
    cr3: u64,
    cr4: u64,
    pub xcr0: u64,
    xss: u64,
    pdpte: [u64; 4],
    cr8: u64,
    pub efer: u64,
    /// star, lstar, cstar, sfmask, kernel_gs_base.
    pub syscall: [u64; 5],
    tpr: [u32; 2],
    pub dr7: u64,
    pub sysenter: [u64; 3],
    es: WireSegment,
    cs: WireSegment,
    ss: WireSegment,
    ds: WireSegment,
    fs: WireSegment,
    gs: WireSegment,
    ldt: WireSegment,
    tr: WireSegment,
    gdt: WireSegment,
    idt: WireSegment,
    tsc: u64,
    /// Offset of the guest's TSC after an exit; added to it at an entry.
    pub tsc_offset: u64,
    pub tsc_aux: u64,
    /// Number of the portal.
    pub exit: u64,
}

impl Utcb {
    /// Returns the general registers.
    pub fn general(&self) -> General {
        let [r8, r9, r10, r11, r12, r13, r14, r15] = self.r8_r15;
        General {
            rax: self.rax,
            rbx: self.rbx,
            rcx: self.rcx,
            rdx: self.rdx,
            rsi: self.rsi,
            rdi: self.rdi,
            rsp: self.rsp,
            rbp: self.rbp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rip: self.rip,
            rflags: self.rflags,
        }
    }

    /// Replaces the general registers.
    pub fn set_general(&mut self, general: &General) {
        self.rax = general.rax;
        self.rbx = general.rbx;
        self.rcx = general.rcx;
        self.rdx = general.rdx;
        self.rsi = general.rsi;
        self.rdi = general.rdi;
        self.rsp = general.rsp;
        self.rbp = general.rbp;
        let upper = [general.r8, general.r9, general.r10, general.r11];
        self.r8_r15[..4].copy_from_slice(&upper);
        let upper = [general.r12, general.r13, general.r14, general.r15];
        self.r8_r15[4..].copy_from_slice(&upper);
        self.rip = general.rip;
        self.rflags = general.rflags;
    }

    /// Returns segments, tables and control registers.
    pub fn system(&self) -> System {
        System {
            cs: segment(self.cs),
            ds: segment(self.ds),
            es: segment(self.es),
            fs: segment(self.fs),
            gs: segment(self.gs),
            ss: segment(self.ss),
            tr: segment(self.tr),
            ldt: segment(self.ldt),
            gdt: table(self.gdt),
            idt: table(self.idt),
            cr0: self.cr0,
            cr2: self.cr2,
            cr3: self.cr3,
            cr4: self.cr4,
            efer: self.efer,
        }
    }

    /// Replaces segments, tables and control registers.
    pub fn set_system(&mut self, system: &System) {
        self.cs = wire(system.cs);
        self.ds = wire(system.ds);
        self.es = wire(system.es);
        self.fs = wire(system.fs);
        self.gs = wire(system.gs);
        self.ss = wire(system.ss);
        self.tr = wire(system.tr);
        self.ldt = wire(system.ldt);
        self.gdt = wire_table(system.gdt);
        self.idt = wire_table(system.idt);
        self.cr0 = system.cr0;
        self.cr2 = system.cr2;
        self.cr3 = system.cr3;
        self.cr4 = system.cr4;
        self.efer = system.efer;
    }

    /// Returns the registers of the page walk.
    pub fn paging(&self) -> Paging {
        Paging {
            cr0: self.cr0,
            cr3: self.cr3,
            is_user: self.cs.attributes >> 5 & 3 == 3,
        }
    }

    /// Returns whether the code segment is one of 64-bit mode.
    pub fn is_long_mode(&self) -> bool {
        self.cs.attributes & LONG != 0
    }

    /// Sets the stack pointer.
    pub fn set_stack(&mut self, address: u64) {
        self.rsp = address;
    }

    /// Returns the base address of segment `fs` or, second, `gs`.
    pub fn segment_base(&mut self, is_gs: bool) -> &mut u64 {
        if is_gs {
            &mut self.gs.base
        } else {
            &mut self.fs.base
        }
    }
}

impl GuestRegisters for Utcb {
    fn get(&self, number: u8) -> u64 {
        match number & 15 {
            0 => self.rax,
            1 => self.rcx,
            2 => self.rdx,
            3 => self.rbx,
            4 => self.rsp,
            5 => self.rbp,
            6 => self.rsi,
            7 => self.rdi,
            number => self.r8_r15[usize::from(number - 8)],
        }
    }

    fn set(&mut self, number: u8, size: u8, value: u64) {
        let register = match number & 15 {
            0 => &mut self.rax,
            1 => &mut self.rcx,
            2 => &mut self.rdx,
            3 => &mut self.rbx,
            4 => &mut self.rsp,
            5 => &mut self.rbp,
            6 => &mut self.rsi,
            7 => &mut self.rdi,
            number => &mut self.r8_r15[usize::from(number - 8)],
        };
        merge(register, size, value);
    }

    fn instruction(&self) -> u64 {
        self.rip
    }

    fn set_instruction(&mut self, address: u64) {
        self.rip = address;
    }

    fn flags(&self) -> u64 {
        self.rflags
    }

    fn set_flags(&mut self, flags: u64) {
        self.rflags = flags;
    }

    fn segment_bases(&self) -> [u64; 2] {
        [self.fs.base, self.gs.base]
    }
}

fn segment(wire: WireSegment) -> Segment {
    Segment {
        selector: wire.selector,
        attributes: wire.attributes & !UNUSABLE,
        limit: wire.limit,
        base: wire.base,
    }
}

fn wire(segment: Segment) -> WireSegment {
    WireSegment {
        selector: segment.selector,
        attributes: match segment.attributes & PRESENT {
            0 => segment.attributes | UNUSABLE,
            _ => segment.attributes,
        },
        limit: segment.limit,
        base: segment.base,
    }
}

fn table(wire: WireSegment) -> Table {
    Table {
        base: wire.base,
        limit: wire.limit as u16,
    }
}

fn wire_table(table: Table) -> WireSegment {
    WireSegment {
        limit: table.limit.into(),
        base: table.base,
        ..WireSegment::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Offsets in the source of NOVA, in words: four of the head, and the data.
    #[test]
    fn layout_is_that_of_the_interface() {
        assert_eq!(offset_of!(Utcb, parts), 4 * 8);
        assert_eq!(offset_of!(Utcb, rax), 10 * 8);
        assert_eq!(offset_of!(Utcb, qualification), 26 * 8);
        assert_eq!(offset_of!(Utcb, control), 28 * 8);
        assert_eq!(offset_of!(Utcb, efer), 40 * 8);
        assert_eq!(offset_of!(Utcb, dr7), 47 * 8);
        assert_eq!(offset_of!(Utcb, es), 51 * 8);
        assert_eq!(offset_of!(Utcb, exit), 74 * 8);
    }

    #[test]
    fn registers_are_returned_as_set() {
        // SAFETY: plain numbers, for which zero is a value.
        let mut utcb: Utcb = unsafe { std::mem::zeroed() };
        for number in 0..16 {
            utcb.set(number, 8, 100 + u64::from(number));
        }
        let general = utcb.general();
        assert_eq!(
            (general.rax, general.rsp, general.r8, general.r15),
            (100, 104, 108, 115)
        );
        utcb.set_general(&General::default());
        assert!((0..16).all(|number| utcb.get(number) == 0));
        utcb.set_general(&general);
        assert_eq!(utcb.general(), general);
        let system = System {
            cs: Segment {
                selector: 8,
                attributes: 0xa9b,
                limit: 7,
                base: 9,
            },
            gdt: Table { base: 1, limit: 2 },
            cr3: 3,
            efer: 4,
            ..System::default()
        };
        utcb.set_system(&system);
        assert_eq!(utcb.system(), system);
    }
}
