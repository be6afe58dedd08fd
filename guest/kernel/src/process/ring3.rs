//! Kernel and programs at ring 3.
//!
//! Programs call an entry of the kernel in place of `syscall`. Address spaces are requests to the VMM
//! ([`trapline_abi::spaces`]). Programs can access the kernel's memory: only address spaces separate them.

use super::number;
use super::ring::{Code, Ring};
use super::step::step;
use super::switch::forget_stack;
use crate::cpu::in32;
use core::arch::{asm, global_asm};
use core::ops::Range;
use trapline_abi::platform::SPACES;
use trapline_abi::spaces::{
    self, BY_CALL, BY_PORT, DISCARD, FAULT, FAULTS_BY_PORT, FLUSH, LOAD, OPEN,
};
use trapline_workloads::Reason;

global_asm!(
    include_str!("entry3.s"),
    EXIT = const super::EXIT,
    PORT = const SPACES,
    LOAD = const LOAD,
    FAULT = const FAULT,
    ENTRY = const spaces::ENTRY,
);

step!(
    "trapline_step3",
    "mov eax, offset trapline_enter_kernel\ncall rax",
    // The code behind it has a name of its own.
    "int3"
);

extern "C" {
    static stack_of_faults_top: u64;
    static mut trapline_spaces_by_call: u8;
    static mut trapline_idt3: [u16; 8 * 64];
    fn trapline_request_space(operation: u64, first: u64, second: u64);
    fn trapline_page_fault_entry();
    fn trapline_page_fault_entry3();
    fn trapline_page_fault_entry3_by_port();
    fn trapline_switch3(from: *mut *mut u64, to: *mut u64, tables: u64);
    fn trapline_return_to_child3();
    fn trapline_start_program3();
    fn trapline_enter_kernel();
    static trapline_program3: u8;
    static trapline_program3_end: u8;
    static trapline_step3: u8;
    static trapline_step3_end: u8;
}

const NO_SPACES: Reason =
    "the VMM gives the image at ring 3 no address spaces: measure kvm or sim/kvm";

/// Index of the gate of page faults.
const PAGE_FAULT: usize = 14;

/// Ring 3.
#[derive(Default)]
pub struct Ring3;

/// Makes a request that has no result.
fn request(operation: u64, first: u64, second: u64) {
    // SAFETY: requests change translations only, as the callers' contracts say.
    unsafe { trapline_request_space(operation, first, second) };
}

/// Sets the handler of page faults.
fn set_page_fault_gate(handler: unsafe extern "C" fn()) {
    let address = handler as *const () as usize;
    // SAFETY: the gate exists; its address is below 4 GiB, and no page fault occurs meanwhile.
    unsafe {
        let gate = (&raw mut trapline_idt3).cast::<u16>().add(PAGE_FAULT * 8);
        gate.write_volatile(address as u16);
        gate.add(3).write_volatile((address >> 16) as u16);
    }
}

impl Ring for Ring3 {
    const IS_PROTECTED: bool = false;

    fn open(has_ports: bool) -> Result<(), Reason> {
        let (by_call, handler): (_, unsafe extern "C" fn()) =
            match if has_ports { in32(SPACES) } else { 0 } {
                BY_CALL => (1, trapline_page_fault_entry3),
                BY_PORT => (0, trapline_page_fault_entry3),
                FAULTS_BY_PORT => (0, trapline_page_fault_entry3_by_port),
                _ => return Err(NO_SPACES),
            };
        // SAFETY: no process exists.
        unsafe {
            trapline_spaces_by_call = 0;
            request(OPEN, 0, 0);
            trapline_spaces_by_call = by_call;
        }
        set_page_fault_gate(handler);
        Ok(())
    }

    fn close() {
        forget_stack();
        set_page_fault_gate(trapline_page_fault_entry);
    }

    #[inline(always)]
    unsafe fn call(number: u64, first: u64, second: u64, third: u64) -> u64 {
        let result;
        // SAFETY: same contract; the call uses the program's stack for its return address only.
        unsafe {
            asm!("call {entry}", entry = sym trapline_enter_kernel,
                 in("rdi") number, in("rsi") first, in("rdx") second, in("r8") third,
                 lateout("rax") result, clobber_abi("C"));
        }
        result
    }

    fn load_tables(top: u64) {
        request(LOAD, top, 0);
    }

    fn flush(address: u64) {
        request(FLUSH, address / 4096 * 4096, 4096);
    }

    fn flush_range(range: Range<u64>) {
        request(FLUSH, range.start, range.end - range.start);
    }

    /// The tables remain in use until the next switch, before which no frame is allocated.
    fn leave(top: u64) {
        request(DISCARD, top, 0);
    }

    fn discard(top: u64) {
        request(DISCARD, top, 0);
    }

    #[inline(always)]
    unsafe fn switch(from: *mut *mut u64, to: *mut u64, tables: u64) {
        // SAFETY: same contract.
        unsafe { trapline_switch3(from, to, tables) }
    }

    fn exception_stack() -> *const u64 {
        &raw const stack_of_faults_top
    }

    fn programs() -> [(u64, Code); 2] {
        let (exit, exit_end) = (
            &raw const trapline_program3,
            &raw const trapline_program3_end,
        );
        let (step, step_end) = (&raw const trapline_step3, &raw const trapline_step3_end);
        [
            (number::EXIT_PROGRAM, Code::between(exit, exit_end)),
            (number::STEP_PROGRAM, Code::between(step, step_end)),
        ]
    }

    fn start() -> u64 {
        trapline_start_program3 as *const () as u64
    }

    fn return_to_child() -> u64 {
        trapline_return_to_child3 as *const () as u64
    }
}
