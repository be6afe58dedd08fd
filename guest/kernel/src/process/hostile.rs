//! Programs that misbehave, to test that the kernel contains them.

use super::address_space::{CODE, STACK};
use super::entries;
use super::number::{self, EXCEPTION, PROTECTION};
use super::ring::Ring;
use super::system_calls::{call, exit, fork, wait, Pipe};
use crate::devices;
use core::arch::asm;
use core::hint::black_box;
use trapline_abi::job::Isolation;
use trapline_abi::platform::{LOCAL_APIC, PAGE};
use trapline_abi::Job;

extern "C" {
    static trapline_tss: u8;
    static trapline_code_start: u8;
}

/// Statuses of programs that an exception ends (AMD64 Architecture Programmer's Manual volume 2,
/// table 8-1).
const DIVIDE_ERROR: u64 = EXCEPTION;
const DEBUG: u64 = EXCEPTION + 1;
const INVALID_OPCODE: u64 = EXCEPTION + 6;
const GENERAL_PROTECTION: u64 = EXCEPTION + 13;
const PAGE_FAULT: u64 = EXCEPTION + 14;
const PROTECTION_FAULT: u64 = PAGE_FAULT + PROTECTION;

/// Status of a program that checked its behaviour itself.
const AS_EXPECTED: u64 = 7;

/// Function that executes an instruction which ends the program.
macro_rules! instruction {
    ($($operand:tt)*) => {
        || {
            // SAFETY: the exception ends the program.
            unsafe { asm!($($operand)*) }
        }
    };
}

/// A program with its expected status.
type Misbehaviour = (fn(), u64);

/// Returns the programs that end or are refused at both rings.
const fn programs<R: Ring>() -> [Misbehaviour; 21] {
    [
        (|| read(STACK.start - PAGE), PAGE_FAULT),
        (|| read(CODE), PAGE_FAULT),
        (|| read(1 << 47), GENERAL_PROTECTION),
        (|| read(u64::MAX - 7), PAGE_FAULT),
        (write_file::<R>, PROTECTION_FAULT),
        (write_protected::<R>, PROTECTION_FAULT),
        (use_released::<R>, PAGE_FAULT),
        (exhaust_memory::<R>, PAGE_FAULT),
        (execute_nothing::<R>, PAGE_FAULT),
        (instruction!("cli"), GENERAL_PROTECTION),
        (instruction!("hlt"), GENERAL_PROTECTION),
        (instruction!("mov {0}, cr3", out(reg) _), GENERAL_PROTECTION),
        (
            instruction!("wrmsr", in("ecx") 0, in("eax") 0, in("edx") 0),
            GENERAL_PROTECTION,
        ),
        (instruction!("ud2"), INVALID_OPCODE),
        (
            instruction!("div {0:e}", in(reg) 0, inout("eax") 1 => _, inout("edx") 0 => _),
            DIVIDE_ERROR,
        ),
        (
            instruction!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop"),
            DEBUG,
        ),
        (leave_exception_pending::<R>, AS_EXPECTED),
        (unmask_exceptions::<R>, AS_EXPECTED),
        (read_alone::<R>, AS_EXPECTED),
        (fork_without_end::<R>, AS_EXPECTED),
        (keep_registers::<R>, AS_EXPECTED),
    ]
}

/// Returns the programs that access memory or ports of the kernel, or its system call instruction. Only a kernel at
/// ring 0 is protected from them. Pages of an isolated one are absent from the tables of programs, except for code and
/// entries.
const fn attacks(isolation: Isolation) -> [Misbehaviour; 13] {
    let kernel_fault = match isolation {
        Isolation::None => PROTECTION_FAULT,
        Isolation::Kpti => PAGE_FAULT,
    };
    [
        (|| read(kernel_data()), kernel_fault),
        (|| write(kernel_data()), kernel_fault),
        (|| write(code()), PROTECTION_FAULT),
        (|| read(entries::address()), PROTECTION_FAULT),
        (|| read(0), kernel_fault),
        (|| read(64 << 20), kernel_fault),
        (|| read(LOCAL_APIC), kernel_fault),
        (|| read(256 << 30), PAGE_FAULT),
        (|| jump(0), kernel_fault),
        (|| jump(kernel_data()), kernel_fault),
        (instruction!("in al, 0x60", out("al") _), GENERAL_PROTECTION),
        (instruction!("int 0x30"), GENERAL_PROTECTION),
        (
            // A system call without a stack, then its use.
            instruction!("xor esp, esp", "xor edi, edi", "syscall", "push rax", out("rdi") _, out("rcx") _, out("r11") _),
            PAGE_FAULT,
        ),
    ]
}

/// Runs each program in a child, then invalid system calls. Returns the number of the first that is
/// not contained; 0 if all are. The function of process 1.
pub extern "C" fn run<R: Ring>(job: *const Job) -> u8 {
    // SAFETY: launch.rs has written the job to the stack of this program.
    let isolation = unsafe { &*job }.isolation;
    let attacks = R::IS_PROTECTED.then(|| attacks(isolation));
    let programs = programs::<R>();
    let programs = programs.iter().chain(attacks.iter().flatten());
    let mut count = 0;
    for (program, expected) in programs {
        count += 1;
        let status = match fork::<R>() {
            Some(0) => {
                program();
                exit::<R>(0)
            }
            child => child.and_then(wait::<R>),
        };
        if status != Some(*expected) {
            return count;
        }
    }
    let refused = refused_calls::<R>();
    let accepted = refused.iter().position(|result| result.is_some());
    accepted.map_or(0, |number| count + 1 + number as u8)
}

/// Makes invalid system calls. Each fails.
fn refused_calls<R: Ring>() -> [Option<u64>; 21] {
    let pipe = Pipe::<R>::new().map_or(u64::MAX, Pipe::number);
    let own = &raw const pipe as u64;
    let end = STACK.end - 4;
    [
        call::<R>(number::WRITE, pipe, kernel_data(), 1),
        call::<R>(number::WRITE, pipe, end, 8),
        call::<R>(number::WRITE, pipe, u64::MAX, 8),
        call::<R>(number::WRITE, pipe, own, u64::MAX),
        call::<R>(number::WRITE, 99, own, 1),
        call::<R>(number::WRITE, u64::MAX, own, 1),
        call::<R>(number::READ, pipe, kernel_data(), 1).filter(|read| *read != 0),
        call::<R>(number::READ, pipe + 1, own, 1),
        call::<R>(number::WRITE, devices::NULL, kernel_data(), 1),
        call::<R>(number::READ, devices::NULL, own, u64::MAX),
        call::<R>(number::CLOSE, pipe + 1, 0, 0),
        call::<R>(number::SEND, kernel_data(), 8, 0),
        call::<R>(number::SEND, own, 1 << 20, 0),
        call::<R>(number::EXEC, kernel_data(), 0, 0),
        call::<R>(number::RELEASE, 0, PAGE, 0),
        call::<R>(number::RELEASE, STACK.start, PAGE, 0),
        call::<R>(number::PROTECT, kernel_data() / PAGE * PAGE, 1, 0),
        call::<R>(number::ALLOCATE, u64::MAX, 0, 0),
        call::<R>(number::WAIT, 0, 0, 0),
        call::<R>(number::WAIT, 1, 0, 0),
        call::<R>(1 << 32, 0, 0, 0),
    ]
}

fn kernel_data() -> u64 {
    &raw const trapline_tss as u64
}

fn code() -> u64 {
    &raw const trapline_code_start as u64
}

fn read(address: u64) {
    // SAFETY: a mapped word can be read, any other ends the program.
    black_box(unsafe { (address as *const u64).read_volatile() });
}

fn write(address: u64) {
    // SAFETY: a page that is not writable ends the program.
    unsafe { (address as *mut u64).write_volatile(0) };
}

fn jump(address: u64) {
    // SAFETY: the page cannot be executed, which ends the program.
    unsafe { asm!("call {0}", in(reg) address, clobber_abi("C")) };
}

fn write_file<R: Ring>() {
    write(call::<R>(number::MAP, 0, 0, 0).unwrap_or(0));
}

fn write_protected<R: Ring>() {
    let page = call::<R>(number::ALLOCATE, PAGE, 0, 0).unwrap_or(0);
    write(page);
    call::<R>(number::PROTECT, page, 0, 0);
    write(page);
}

fn use_released<R: Ring>() {
    let page = call::<R>(number::ALLOCATE, PAGE, 0, 0).unwrap_or(0);
    write(page);
    call::<R>(number::RELEASE, page, PAGE, 0);
    read(page);
}

fn exhaust_memory<R: Ring>() {
    let bytes = 32 << 20;
    let start = call::<R>(number::ALLOCATE, bytes, 0, 0).unwrap_or(0);
    (start..start + bytes)
        .step_by(PAGE as usize)
        .for_each(write);
}

/// Executes a program that begins at the end of the page of programs.
fn execute_nothing<R: Ring>() {
    let argument = 0_u8;
    call::<R>(number::EXEC, &raw const argument as u64, u64::MAX, 0);
}

/// Ends with a pending floating-point exception, a division by zero.
fn leave_exception_pending<R: Ring>() {
    let control: u16 = 0x037b;
    // SAFETY: changes only floating-point state, which compiled code of this program does not use.
    unsafe {
        asm!("fldcw [{0}]", "fld1", "fldz", "fdivp st(1), st", in(reg) &control, options(nostack));
    }
    exit::<R>(7);
}

/// Ends with all SIMD floating-point exceptions unmasked.
fn unmask_exceptions<R: Ring>() {
    let control = 0_u32;
    // SAFETY: as above.
    unsafe { asm!("ldmxcsr [{0}]", in(reg) &control, options(nostack)) };
    exit::<R>(7);
}

/// Waits for a byte that no process can write: the parent has the pipe, and waits for this program.
fn read_alone<R: Ring>() {
    let Some(pipe) = Pipe::<R>::new() else {
        return;
    };
    if pipe.get().is_some() {
        return;
    }
    match fork::<R>() {
        Some(0) => exit::<R>(if pipe.get().is_none() { 7 } else { 0 }),
        child => exit::<R>(child.and_then(wait::<R>).map_or(0, |status| status as u8)),
    }
}

/// Forks until it fails. The children end when they are waited for.
fn fork_without_end<R: Ring>() {
    let mut children = [0; 16];
    for child in &mut children {
        match fork::<R>() {
            Some(0) => exit::<R>(1),
            Some(number) => *child = number,
            None => {
                let ended = children.iter().take_while(|child| **child != 0);
                let all = ended.into_iter().all(|child| wait::<R>(*child) == Some(1));
                exit::<R>(if all { 7 } else { 0 });
            }
        }
    }
}

/// Checks that a page fault preserves registers.
fn keep_registers<R: Ring>() {
    let page = call::<R>(number::ALLOCATE, PAGE, 0, 0).unwrap_or(0);
    let (value, mut changed) = (0x1234_5678_9abc_def0_u64, 1_u64);
    // SAFETY: writes to a page of this program, the first access to it.
    unsafe {
        asm!("movq xmm0, {value}", "movq xmm1, {value}", "movq xmm15, {value}",
             "mov rcx, {value}", "mov r10, {value}",
             "mov qword ptr [{page}], rcx",
             "pxor xmm0, xmm15", "pxor xmm1, xmm15", "por xmm0, xmm1", "movq rax, xmm0",
             "movq {changed}, xmm15", "xor {changed}, {value}", "or {changed}, rax",
             "xor rcx, r10", "xor r10, {value}", "or {changed}, rcx", "or {changed}, r10",
             page = in(reg) page, value = in(reg) value, changed = inout(reg) changed,
             out("r10") _, out("rcx") _, out("rax") _, out("xmm0") _, out("xmm1") _, out("xmm15") _);
    }
    exit::<R>(if changed == 0 { 7 } else { 0 });
}
