//! The page of the kernel that isolated programs map, too: what the CPU reads at entry and exit.

use crate::cpu::Global;
use crate::memory::FRAME;
use core::arch::asm;
use trapline_abi::platform::selector::{CODE0, TASK};

/// Exceptions. Interrupts are off while processes exist.
pub const GATES: usize = 32;

/// Words of the GDT of tables.s. The last two are the descriptor of the task state.
const SEGMENTS: usize = 10;
const TASK_SEGMENT: usize = TASK as usize / 8;
const _: () = assert!(TASK_SEGMENT == SEGMENTS - 2);

/// Descriptors of a present task state and of a present interrupt gate of ring 0 (AMD64 Architecture Programmer's Manual
/// volume 2, figures 4-22 and 4-24), without addresses.
const TASK_STATE: u64 = 0x89 << 40;
const INTERRUPT_GATE: u64 = 0x8e << 40;
/// The task state is loaded.
const BUSY: u64 = 1 << 41;
/// The gate switches to the first interrupt stack.
const FIRST_STACK: u64 = 1 << 32;

/// 32-bit words of a task state (the same manual, figure 12-8), and two of them: the low half of the first interrupt
/// stack pointer, and the offset of the port bitmap, which is beyond the end.
const TASK_WORDS: usize = 26;
const STACK_POINTER: usize = 9;
const PORT_BITMAP: usize = 25;
const NO_PORTS: u32 = 0xffff << 16;

/// The page. The offsets of its first three words are in isolated.s, and its stack grows down from its end.
#[repr(C, align(4096))]
pub struct Entries {
    /// Value of CR3 for the kernel; 0 if programs are not isolated.
    pub kernel_tables: u64,
    /// Value of CR3 for programs.
    pub user_tables: u64,
    /// Stack pointer of a program that makes a system call.
    user_stack: u64,
    segments: [u64; SEGMENTS],
    task: [u32; TASK_WORDS],
    gates: [[u64; 2]; GATES],
    stack: [u64; 422],
}

const _: () = assert!(size_of::<Entries>() as u64 == FRAME);

#[export_name = "trapline_entries"]
static ENTRIES: Global<Entries> = Global::new(Entries {
    kernel_tables: 0,
    user_tables: 0,
    user_stack: 0,
    segments: [0; SEGMENTS],
    task: [0; TASK_WORDS],
    gates: [[0; 2]; GATES],
    stack: [0; 422],
});

extern "C" {
    static mut trapline_gdt: [u64; SEGMENTS];
    static trapline_idt0: u8;
    static trapline_idt_limit: u8;
    static trapline_vectors_isolated: u8;
    fn trapline_page_fault_entry_isolated();
}

/// Number of page faults.
const PAGE_FAULT: usize = 14;

/// Operand of `lgdt` and `lidt`.
#[repr(C, packed)]
struct DescriptorTable {
    limit: u16,
    address: u64,
}

/// Returns the page.
pub fn entries() -> &'static mut Entries {
    // SAFETY: there is one CPU, and no caller keeps the reference across a call that takes another.
    unsafe { ENTRIES.get() }
}

/// Returns the address of the page.
pub fn address() -> u64 {
    ENTRIES.pointer() as u64
}

/// Returns true if the tables of the page are loaded.
pub fn are_loaded() -> bool {
    entries().kernel_tables != 0
}

/// Returns a gate to an address below 4 GiB.
fn gate(handler: u64) -> [u64; 2] {
    let address = handler & 0xffff | (handler >> 16) << 48;
    [
        address | u64::from(CODE0) << 16 | FIRST_STACK | INTERRUPT_GATE,
        0,
    ]
}

impl Entries {
    /// Loads segments, task state and gates of the page. Programs do not run yet.
    pub fn load(&mut self) {
        let (start, task) = (address(), &raw const self.task as u64);
        // SAFETY: a copy.
        self.segments = unsafe { trapline_gdt };
        let limit = size_of_val(&self.task) as u64 - 1;
        self.segments[TASK_SEGMENT] =
            limit | (task & 0xff_ffff) << 16 | (task >> 24) << 56 | TASK_STATE;
        self.task[STACK_POINTER] = (start + FRAME) as u32;
        self.task[PORT_BITMAP] = NO_PORTS;
        for (number, entry) in self.gates.iter_mut().enumerate() {
            *entry = gate(&raw const trapline_vectors_isolated as u64 + 16 * number as u64);
        }
        self.gates[PAGE_FAULT] = gate(trapline_page_fault_entry_isolated as *const () as u64);
        let gates = DescriptorTable {
            limit: size_of_val(&self.gates) as u16 - 1,
            address: &raw const self.gates as u64,
        };
        // SAFETY: the segments are those of tables.s, with another task state.
        unsafe { load(&mut self.segments, &gates) };
    }

    /// Loads the tables of tables.s and vectors.s again.
    pub fn unload(&mut self) {
        self.kernel_tables = 0;
        let gates = DescriptorTable {
            limit: &raw const trapline_idt_limit as u64 as u16,
            address: &raw const trapline_idt0 as u64,
        };
        // SAFETY: they were loaded at boot.
        unsafe { load(&mut *(&raw mut trapline_gdt), &gates) };
    }
}

/// # Safety
/// `segments` has the segments of [`trapline_abi::platform::selector`], and every gate a handler.
unsafe fn load(segments: &mut [u64; SEGMENTS], gates: &DescriptorTable) {
    // Otherwise it cannot be loaded again.
    segments[TASK_SEGMENT] &= !BUSY;
    let segments = DescriptorTable {
        limit: size_of_val(segments) as u16 - 1,
        address: &raw const *segments as u64,
    };
    // SAFETY: by contract.
    unsafe {
        asm!("lgdt [{0}]", "lidt [{1}]", "ltr {2:x}", in(reg) &segments, in(reg) gates, in(reg) TASK,
             options(nostack, preserves_flags));
    }
}
