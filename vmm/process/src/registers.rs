//! Registers of the guest, as the kernel transfers them.

use trapline_emulation::{merge, GuestRegisters};
use trapline_interface::General;

/// Selectors of user code and data in every 64-bit process of Linux (`arch/x86/include/asm/segment.h`).
pub(crate) const USER_CODE: u64 = 0x33;
const USER_DATA: u64 = 0x2b;

/// Interrupt flag.
pub(crate) const INTERRUPTS_ON: u64 = 1 << 9;
/// Trap flag: an exception after each instruction.
pub(crate) const TRAP_FLAG: u64 = 1 << 8;
/// The flag that is always set.
const ALWAYS: u64 = 2;
/// Flags that a process may set: the arithmetic ones, trap, direction, and alignment check.
const SETTABLE: u64 = 0x4_0dd5;

/// Registers of a stopped process.
#[derive(Clone, Copy)]
pub(crate) struct Registers(pub libc::user_regs_struct);

impl Registers {
    /// Returns zeroed registers of a 64-bit process that is in no system call.
    pub fn new() -> Self {
        // SAFETY: plain numbers, for which zero is a value.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.cs = USER_CODE;
        registers.ss = USER_DATA;
        registers.eflags = ALWAYS;
        registers.orig_rax = u64::MAX;
        Self(registers)
    }

    fn place(&mut self, number: u8) -> &mut u64 {
        let r = &mut self.0;
        match number & 15 {
            0 => &mut r.rax,
            1 => &mut r.rcx,
            2 => &mut r.rdx,
            3 => &mut r.rbx,
            4 => &mut r.rsp,
            5 => &mut r.rbp,
            6 => &mut r.rsi,
            7 => &mut r.rdi,
            8 => &mut r.r8,
            9 => &mut r.r9,
            10 => &mut r.r10,
            11 => &mut r.r11,
            12 => &mut r.r12,
            13 => &mut r.r13,
            14 => &mut r.r14,
            _ => &mut r.r15,
        }
    }

    /// Replaces the general registers. Flags that a process cannot set are ignored.
    pub fn set_general(&mut self, general: &General) {
        macro_rules! copy {
            ($($name:ident)*) => { $(self.0.$name = general.$name;)* };
        }
        copy!(rax rbx rcx rdx rsi rdi rsp rbp r8 r9 r10 r11 r12 r13 r14 r15 rip);
        self.0.eflags = general.rflags & SETTABLE | ALWAYS;
    }

    /// Returns the general registers, with the given interrupt flag.
    pub fn general(&self, interrupts_on: bool) -> General {
        let r = &self.0;
        macro_rules! copy {
            ($($name:ident)*) => { General { $($name: r.$name,)* rflags: self.flags_with(interrupts_on) } };
        }
        copy!(rax rbx rcx rdx rsi rdi rsp rbp r8 r9 r10 r11 r12 r13 r14 r15 rip)
    }

    /// Returns the flags, with the given interrupt flag.
    pub fn flags_with(&self, interrupts_on: bool) -> u64 {
        if interrupts_on {
            self.0.eflags | INTERRUPTS_ON
        } else {
            self.0.eflags & !INTERRUPTS_ON
        }
    }

    /// Replaces the flags that a process can set.
    pub fn set_flags(&mut self, flags: u64) {
        self.0.eflags = flags & SETTABLE | ALWAYS;
    }
}

impl GuestRegisters for Registers {
    fn get(&self, number: u8) -> u64 {
        let r = &self.0;
        [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ][usize::from(number & 15)]
    }

    fn set(&mut self, number: u8, size: u8, value: u64) {
        merge(self.place(number), size, value);
    }

    fn instruction(&self) -> u64 {
        self.0.rip
    }

    fn set_instruction(&mut self, address: u64) {
        self.0.rip = address;
    }

    fn set_flags(&mut self, flags: u64) {
        self.0.eflags = flags;
    }

    fn flags(&self) -> u64 {
        self.0.eflags
    }

    fn segment_bases(&self) -> [u64; 2] {
        [self.0.fs_base, self.0.gs_base]
    }
}
