//! vCPU registers, transferred in sets because each transfer costs a system call.

/// General registers, instruction pointer and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct General {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rsp: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub rflags: u64,
}

/// A segment register with its hidden part. Attributes are the descriptor's bytes 5 and 6 (AMD APM volume
/// 2, 4.7): type in bits 0-3, S 4, DPL 5-6, P 7, AVL 8, L 9, D/B 10, G 11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Selector.
    pub selector: u16,
    /// Attributes.
    pub attributes: u16,
    /// Highest offset, in bytes.
    pub limit: u32,
    /// Linear address of offset 0.
    pub base: u64,
}

/// A descriptor table register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Linear address.
    pub base: u64,
    /// Length in bytes minus 1.
    pub limit: u16,
}

/// Segments, tables and control registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct System {
    pub cs: Segment,
    pub ds: Segment,
    pub es: Segment,
    pub fs: Segment,
    pub gs: Segment,
    pub ss: Segment,
    pub tr: Segment,
    pub ldt: Segment,
    pub gdt: Table,
    pub idt: Table,
    pub cr0: u64,
    /// Address of the last page fault. Backend `process` has none.
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub efer: u64,
}

impl System {
    /// Returns the privilege level of the code segment.
    pub fn ring(&self) -> u8 {
        (self.cs.attributes >> 5 & 3) as u8
    }
}

/// MP state of a vCPU with a local APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Executes instructions.
    Running,
    /// Waits for an interrupt, as after `hlt`.
    Halted,
}

/// A set of parts of a [`VcpuState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegSet(u8);

impl RegSet {
    /// [`General`].
    pub const GENERAL: RegSet = RegSet(1);
    /// [`System`].
    pub const SYSTEM: RegSet = RegSet(2);
    /// [`Activity`].
    pub const ACTIVITY: RegSet = RegSet(4);

    /// Returns true if this set contains every part of `other`.
    pub const fn contains(self, other: RegSet) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for RegSet {
    type Output = RegSet;
    fn bitor(self, other: RegSet) -> RegSet {
        RegSet(self.0 | other.0)
    }
}

/// Parts of a vCPU's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuState {
    /// General registers.
    pub general: Option<General>,
    /// MP state.
    pub system: Option<System>,
    /// Running or halted.
    pub activity: Option<Activity>,
}

impl From<General> for VcpuState {
    fn from(general: General) -> Self {
        Self {
            general: Some(general),
            ..Self::default()
        }
    }
}

impl From<Activity> for VcpuState {
    fn from(activity: Activity) -> Self {
        Self {
            activity: Some(activity),
            ..Self::default()
        }
    }
}

/// Initial registers of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootState {
    /// General registers.
    pub general: General,
    /// Segments, tables and control registers.
    pub system: System,
}
