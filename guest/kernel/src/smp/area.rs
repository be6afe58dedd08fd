//! Memory of a secondary CPU: segments, task state and stacks of its own.

use core::mem::{offset_of, size_of};
use trapline_abi::platform::selector::TASK;

/// Sizes of stacks, in bytes.
const STACK: usize = 16 * 1024;
const INTERRUPT_STACK: usize = 1024;

/// Number of 64-bit words of the descriptor table up to the end of the task state's descriptor.
const DESCRIPTORS: usize = TASK as usize / 8 + 2;

/// Present, available task state of 64 bits (Intel SDM volume 3, 8.2.3).
const TASK_STATE: u64 = 0x89 << 40;

/// 64-bit task state (Intel SDM volume 3, figure 8-11), without a port bitmap, which ring 0 does not need.
#[repr(C, packed(4))]
struct TaskState {
    reserved: u32,
    stacks: [u64; 3],
    reserved_1: u64,
    interrupt_stacks: [u64; 7],
    reserved_2: u64,
    reserved_3: u16,
    port_bitmap: u16,
}

/// Stack of this size, in bytes.
#[repr(C, align(16))]
struct Stack<const SIZE: usize>([u8; SIZE]);

/// Memory of a secondary CPU. `start.s` reads the first field.
#[repr(C, align(16))]
pub struct Area {
    /// Stack pointer at the start, as after a call.
    stack: u64,
    /// Number of the CPU, from 1, which is that of its local APIC.
    pub number: u32,
    task: TaskState,
    descriptors: [u64; DESCRIPTORS],
    faults: Stack<STACK>,
    interrupts: [Stack<INTERRUPT_STACK>; 4],
    main: Stack<STACK>,
}

impl Area {
    /// Initialises the memory at `area` for the CPU with this number, with the boot CPU's descriptors.
    ///
    /// # Safety
    /// `area` is aligned, writable, zero or initialised for this CPU, and no other CPU writes to it.
    pub unsafe fn initialise(area: *mut Self, number: u32, descriptors: &[u64; DESCRIPTORS]) {
        let start = area as u64;
        let end_of = |offset: usize, size: usize| start + (offset + size) as u64;
        let faults = end_of(offset_of!(Area, faults), STACK);
        let interrupt =
            |index: usize| end_of(offset_of!(Area, interrupts), (index + 1) * INTERRUPT_STACK);
        let task = start + offset_of!(Area, task) as u64;
        // SAFETY: by contract. Only fields are written, because the stacks are large.
        unsafe {
            (&raw mut (*area).stack).write(end_of(offset_of!(Area, main), STACK) - 8);
            (&raw mut (*area).number).write(number);
            (&raw mut (*area).task).write(TaskState {
                reserved: 0,
                stacks: [0; 3],
                reserved_1: 0,
                // In the order of vectors.s: faults, aborts, IPI, timer, spurious interrupts, events.
                interrupt_stacks: [
                    faults,
                    faults,
                    interrupt(0),
                    interrupt(1),
                    interrupt(2),
                    interrupt(3),
                    0,
                ],
                reserved_2: 0,
                reserved_3: 0,
                port_bitmap: size_of::<TaskState>() as u16,
            });
            (&raw mut (*area).descriptors).write(with_task(*descriptors, task));
        }
    }

    /// Returns the address and the limit of the descriptor table.
    pub fn descriptor_table(&self) -> (u64, u16) {
        let limit = size_of::<[u64; DESCRIPTORS]>() - 1;
        (self.descriptors.as_ptr() as u64, limit as u16)
    }
}

/// Returns the descriptors with that of the task state at `task` (Intel SDM volume 3, figure 8-4).
fn with_task(mut descriptors: [u64; DESCRIPTORS], task: u64) -> [u64; DESCRIPTORS] {
    let limit = size_of::<TaskState>() as u64 - 1;
    let low = limit | (task & 0xff_ffff) << 16 | TASK_STATE | (task >> 24 & 0xff) << 56;
    descriptors[DESCRIPTORS - 2] = low;
    descriptors[DESCRIPTORS - 1] = task >> 32;
    descriptors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_descriptor_contains_the_parts_of_its_address() {
        let table = with_task([7; DESCRIPTORS], 0x8000_1234_5678_9abc);
        assert_eq!(table[..DESCRIPTORS - 2], [7; DESCRIPTORS - 2]);
        assert_eq!(table[DESCRIPTORS - 2], 0x5600_8978_9abc_0067);
        assert_eq!(table[DESCRIPTORS - 1], 0x8000_1234);
    }

    #[test]
    fn stacks_are_aligned_and_within_the_area() {
        let mut memory = Box::<Area>::new_uninit();
        // SAFETY: an exclusive box, zeroed first.
        let area = unsafe {
            memory.as_mut_ptr().write_bytes(0, 1);
            Area::initialise(memory.as_mut_ptr(), 3, &[0; DESCRIPTORS]);
            memory.assume_init()
        };
        let start = &raw const *area as u64;
        let within = start..=start + size_of::<Area>() as u64;
        let stacks = area.task.interrupt_stacks;
        for stack in stacks[..6].iter().chain([&(area.stack + 8)]) {
            assert!(stack % 16 == 0 && within.contains(stack), "{stack:#x}");
        }
        assert_eq!(area.number, 3);
        assert_eq!(area.descriptor_table().1, 0x4f);
    }
}
