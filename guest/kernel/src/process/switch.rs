//! Kernel stacks of processes, and switches between them.

use super::address_space::AddressSpace;
use super::ring::Ring;
use super::table::{Event, ProcessTable, PROCESSES};
use super::Entry;
use crate::cpu::Global;
use crate::memory::{self, FRAME};

/// Bytes of a kernel stack.
const STACK_BYTES: usize = 8 * 1024;

/// Stack, below which the first 2 MiB of a process have no page.
#[repr(C, align(4096))]
struct KernelStack {
    guard: [u8; FRAME as usize],
    bytes: [u8; STACK_BYTES],
}

const KERNEL_STACK: u64 = size_of::<KernelStack>() as u64;

const EMPTY: KernelStack = KernelStack {
    guard: [0; FRAME as usize],
    bytes: [0; STACK_BYTES],
};

static STACKS: Global<[KernelStack; PROCESSES]> = Global::new([EMPTY; PROCESSES]);

/// Kernel stack pointers of the processes that do not run.
static SUSPENDED: Global<[*mut u64; PROCESSES]> = Global::new([core::ptr::null_mut(); PROCESSES]);

static TABLE: Global<ProcessTable> = Global::new(ProcessTable::new());

/// `rflags` of a new program: all clear but the reserved bit 1.
const FLAGS: u64 = 2;

/// MXCSR and x87 control word after a reset of either (Intel SDM volume 1, 10.2.3 and 8.1.5).
const FLOATING_POINT: u64 = 0x037f << 32 | 0x1f80;

extern "C" {
    static mut trapline_kernel_stack: u64;
    static trapline_stack_start: u8;
    static trapline_image_end: u8;
}

/// Registers of a program during a system call, as on its kernel stack; see entry.s.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct UserFrame {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbp: u64,
    rbx: u64,
    flags: u64,
    rip: u64,
    rsp: u64,
}

impl UserFrame {
    /// Returns the registers of a program at its first instruction.
    pub fn new(rip: u64, rsp: u64) -> Self {
        Self {
            flags: FLAGS,
            rip,
            rsp,
            ..Self::default()
        }
    }

    /// Returns the registers of process 1 before `entry`, whose argument is at `argument` and whose
    /// stack is below.
    pub fn first<R: Ring>(entry: Entry, argument: u64) -> Self {
        Self {
            r12: entry as *const () as u64,
            rbx: argument,
            ..Self::new(R::start(), argument)
        }
    }
}

/// Returns the process table. The reference is used only until the next call of this function.
pub fn table() -> &'static mut ProcessTable {
    // SAFETY: there is one CPU, exceptions of the kernel do not return, and no caller keeps the
    // reference across a switch or a call that takes another.
    unsafe { TABLE.get() }
}

/// Returns true if `page` is below a kernel stack.
pub fn is_guard(page: u64) -> bool {
    let offset = page.wrapping_sub(STACKS.pointer() as u64);
    offset < PROCESSES as u64 * KERNEL_STACK && offset.is_multiple_of(KERNEL_STACK)
}

/// Returns the value of `trapline_kernel_stack` for a process.
fn stack_end(number: usize) -> u64 {
    STACKS.pointer() as u64 + (number as u64 + 1) * KERNEL_STACK - 8
}

/// Returns the address of the kernel stack pointer of a process that does not run.
fn suspended(number: usize) -> *mut *mut u64 {
    SUSPENDED.pointer().cast::<*mut u64>().wrapping_add(number)
}

/// Prepares a new process to continue as a program with these registers.
pub fn start<R: Ring>(number: usize, registers: &UserFrame) {
    let frame = stack_end(number) - size_of::<UserFrame>() as u64;
    // SAFETY: the stack of a process that never ran; below the registers is the context that
    // `trapline_switch` restores: control words, six registers and a return address.
    unsafe {
        (frame as *mut UserFrame).write(*registers);
        let context = (frame as *mut u64).sub(8);
        context.write_bytes(0, 7);
        context.write(FLOATING_POINT);
        context.add(7).write(R::return_to_child());
        suspended(number).write(context);
    }
}

/// Suspends the current process until `event`. Returns false without it if no process can cause it.
pub fn wait_for<R: Ring>(event: Event) -> bool {
    table().begin_wait::<R>(event) && {
        switch_to_next::<R>();
        table().end_wait()
    }
}

/// Ends the current process.
pub fn end<R: Ring>(status: u64) -> ! {
    let space = table().end::<R>(status);
    R::leave(space.as_ref().map_or(0, AddressSpace::top));
    if let Some(space) = space {
        space.free(&mut table().pool);
    }
    if table().next().is_none() {
        table().interrupt_all();
    }
    switch_to_next::<R>();
    unreachable!("a process runs after its end");
}

/// Switches to the next runnable process, of which there is one.
fn switch_to_next<R: Ring>() {
    let Some(next) = table().next() else {
        return;
    };
    let current = table().current();
    table().select(next);
    let tables = table().process(next).space.as_ref().map(AddressSpace::top);
    // SAFETY: the stack of `next` was saved by an earlier switch or prepared by `start`. All tables
    // map the kernel.
    unsafe {
        let to = suspended(next).read();
        trapline_kernel_stack = stack_end(next);
        let tables = tables.unwrap_or(memory::top_table() as u64);
        R::switch(suspended(current), to, tables);
    }
}

/// Flushes the TLB.
pub fn reload_tables<R: Ring>() {
    if let Some((space, ..)) = table().space() {
        R::load_tables(space.top());
    }
}

/// Marks the end of processes: exceptions at ring 3 are the kernel's again.
pub fn forget_stack() {
    // SAFETY: no process exists.
    unsafe { trapline_kernel_stack = 0 };
}

/// Returns true if processes exist.
pub fn is_active() -> bool {
    // SAFETY: a copy.
    unsafe { trapline_kernel_stack != 0 }
}

/// Returns true if a stack pointer is one of the kernel, where programs have no other ring.
pub fn is_kernel_stack(pointer: u64) -> bool {
    let stacks = &raw const trapline_stack_start as u64..=&raw const trapline_image_end as u64;
    stacks.contains(&pointer)
}
