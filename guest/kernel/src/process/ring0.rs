//! Kernel at ring 0, programs at ring 3.

use super::cpu;
use super::number;
use super::ring::{Code, Ring};
use super::step::step;
use super::switch::reload_tables;
use crate::memory;
use core::arch::asm;
use core::ops::Range;
use trapline_workloads::Reason;

step!("trapline_step", "syscall");

extern "C" {
    static stack_of_faults_top: u64;
    fn trapline_system_call_entry();
    fn trapline_switch(from: *mut *mut u64, to: *mut u64, tables: u64);
    fn trapline_return_to_child();
    fn trapline_start_program();
    static trapline_program: u8;
    static trapline_program_end: u8;
    static trapline_step: u8;
    static trapline_step_end: u8;
}

/// Ring 0.
#[derive(Default)]
pub struct Ring0;

impl Ring for Ring0 {
    const IS_PROTECTED: bool = true;

    fn open(_: bool) -> Result<(), Reason> {
        cpu::enable_system_calls(trapline_system_call_entry);
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

    fn exception_stack() -> *const u64 {
        &raw const stack_of_faults_top
    }

    fn programs() -> [(u64, Code); 2] {
        let (exit, exit_end) = (&raw const trapline_program, &raw const trapline_program_end);
        let (step, step_end) = (&raw const trapline_step, &raw const trapline_step_end);
        [
            (number::EXIT_PROGRAM, Code::between(exit, exit_end)),
            (number::STEP_PROGRAM, Code::between(step, step_end)),
        ]
    }

    fn start() -> u64 {
        trapline_start_program as *const () as u64
    }

    fn return_to_child() -> u64 {
        trapline_return_to_child as *const () as u64
    }
}
