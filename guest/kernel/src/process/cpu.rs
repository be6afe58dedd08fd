//! Setup of the CPU for programs: system calls on, ports off.

use super::switch::forget_stack;
use crate::cpu::{rdmsr, wrmsr};
use trapline_abi::platform::selector::{CODE0, CODE3};

/// Registers of `syscall` (AMD64 Architecture Programmer's Manual volume 2, 6.1.1).
const EFER: u32 = 0xc000_0080;
const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const SFMASK: u32 = 0xc000_0084;

/// `syscall` is enabled.
const SYSCALL_ENABLED: u64 = 1;

/// Flags that a system call clears: trap, interrupt, direction, nested task, alignment check.
const CLEARED_FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 10 | 1 << 14 | 1 << 18;

/// `sysretq` loads data and code segments 8 and 16 above this one.
const RETURN_BASE: u64 = CODE3 as u64 / 8 * 8 - 16;

/// Offset of the address of the port bitmap in the task state (the same manual, figure 12-8).
const PORT_BITMAP: usize = 0x66;

/// Address of the port bitmap beyond the end of the task state: ring 3 may access no port.
const NO_PORTS: u16 = u16::MAX;

extern "C" {
    static mut trapline_tss: u8;
    static trapline_port_bitmap: u8;
}

/// Enables system calls with this entry, and disables access of ring 3 to ports.
pub fn enable_system_calls(entry: unsafe extern "C" fn()) {
    set_port_bitmap(NO_PORTS);
    // SAFETY: the kernel's code segment and its entry; the GDT of tables.s has the
    // segments in the order that `sysretq` requires. None of this accesses memory.
    unsafe {
        wrmsr(STAR, RETURN_BASE << 48 | u64::from(CODE0) << 32);
        wrmsr(LSTAR, entry as *const () as u64);
        wrmsr(SFMASK, CLEARED_FLAGS);
        wrmsr(EFER, rdmsr(EFER) | SYSCALL_ENABLED);
    }
}

/// Restores the state before [`enable_system_calls`].
pub fn disable_system_calls() {
    forget_stack();
    // SAFETY: no program runs.
    unsafe { wrmsr(EFER, rdmsr(EFER) & !SYSCALL_ENABLED) };
    let (bitmap, tss) = (&raw const trapline_port_bitmap, &raw const trapline_tss);
    set_port_bitmap((bitmap as usize - tss as usize) as u16);
}

fn set_port_bitmap(offset: u16) {
    // SAFETY: a field of the task state, which the CPU reads at each access of ring 3 to a port.
    unsafe {
        let task = &raw mut trapline_tss;
        task.add(PORT_BITMAP).cast::<u16>().write_unaligned(offset);
    }
}
