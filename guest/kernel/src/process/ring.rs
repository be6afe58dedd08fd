//! Operations of processes that depend on the privilege ring of the kernel.
//!
//! Code that uses them is generic, so that it is compiled once for each ring. At ring 0 these are instructions.
//! At ring 3 the kernel's instructions are not available to it: [`super::ring3`] has the substitutes.

use super::calls::reload_tables;
use super::cpu;
use super::resources::Code;
use crate::memory;
use core::arch::asm;
use core::ops::Range;
use trapline_workloads::Reason;

/// Privilege ring of a kernel with processes.
pub trait Ring: Default + 'static {
    /// The kernel's memory and ports are protected from programs.
    const IS_PROTECTED: bool;

    /// Enables system calls and page faults of programs.
    ///
    /// # Errors
    /// The reason why this machine has no address spaces.
    fn open(has_ports: bool) -> Result<(), Reason>;

    /// Restores the state before [`Self::open`].
    fn close();

    /// Makes a system call. The caller is a program.
    ///
    /// # Safety
    /// The kernel changes only the registers that C functions may change, and memory that the arguments name.
    unsafe fn call(number: u64, first: u64, second: u64, third: u64) -> u64;

    /// Loads the top-level table at `top`. Loading the current one flushes the TLB.
    fn load_tables(top: u64);

    /// Removes the translation of one page from the TLB.
    fn flush(address: u64);

    /// Removes the translations of a range of pages from the TLB.
    fn flush_range(range: Range<u64>);

    /// Leaves the current space, whose table is `top`, before it is freed.
    fn leave(top: u64);

    /// Removes the translations of a space that is not current, before it is freed.
    fn discard(top: u64);

    /// Saves the context of the running process at `from` and restores that at `to`, with the tables at
    /// `tables`; see entry.s.
    ///
    /// # Safety
    /// `to` was saved here or prepared by [`super::switch::start`], and the tables map the kernel.
    unsafe fn switch(from: *mut *mut u64, to: *mut u64, tables: u64);

    /// Returns the code of the program of operation `exec`.
    fn program() -> Code;

    /// Returns the address of the first instruction of process 1.
    fn start() -> u64;

    /// Returns the address at which a new process continues in the kernel.
    fn return_to_child() -> u64;
}

extern "C" {
    fn trapline_switch(from: *mut *mut u64, to: *mut u64, tables: u64);
    fn trapline_return_to_child();
    fn trapline_start_program();
    static trapline_program: u8;
    static trapline_program_end: u8;
}

/// Ring 0.
#[derive(Default)]
pub struct Ring0;

impl Ring for Ring0 {
    const IS_PROTECTED: bool = true;

    fn open(_: bool) -> Result<(), Reason> {
        cpu::enable_system_calls();
        Ok(())
    }

    fn close() {
        cpu::disable_system_calls();
    }

    #[inline(always)]
    unsafe fn call(number: u64, first: u64, second: u64, third: u64) -> u64 {
        let result;
        // SAFETY: same contract.
        unsafe {
            asm!("syscall", in("rdi") number, in("rsi") first, in("rdx") second, in("r8") third,
                 lateout("rax") result, clobber_abi("C"));
        }
        result
    }

    #[inline(always)]
    fn load_tables(top: u64) {
        // SAFETY: all tables map the kernel.
        unsafe { asm!("mov cr3, {0}", in(reg) top, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn flush(address: u64) {
        // SAFETY: only removes a translation.
        unsafe { asm!("invlpg [{0}]", in(reg) address, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn flush_range(_: Range<u64>) {
        reload_tables::<Self>();
    }

    /// Loads the tables of the kernel's thread, which are never freed.
    #[inline(always)]
    fn leave(_: u64) {
        Self::load_tables(memory::top_table() as u64);
    }

    #[inline(always)]
    fn discard(_: u64) {}

    #[inline(always)]
    unsafe fn switch(from: *mut *mut u64, to: *mut u64, tables: u64) {
        // SAFETY: same contract.
        unsafe { trapline_switch(from, to, tables) }
    }

    fn program() -> Code {
        Code::between(&raw const trapline_program, &raw const trapline_program_end)
    }

    fn start() -> u64 {
        trapline_start_program as *const () as u64
    }

    fn return_to_child() -> u64 {
        trapline_return_to_child as *const () as u64
    }
}
