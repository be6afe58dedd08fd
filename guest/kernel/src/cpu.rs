//! Single instructions, and the one CPU's global state.

use core::arch::asm;
use core::cell::UnsafeCell;

/// State that all of the kernel shares.
///
/// There is one CPU, threads switch only where they ask to, and interrupt
/// handlers (vectors.s) touch nothing but their counters. So whoever holds a
/// reference is alone, unless it asks for another one meanwhile.
pub struct Global<T>(UnsafeCell<T>);

// SAFETY: there is one CPU, see above.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The state.
    ///
    /// # Safety
    /// No other reference to it is in use while this one is.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller is the only one, by this function's contract.
        unsafe { &mut *self.0.get() }
    }
}

/// The privilege ring this code runs in.
pub fn ring() -> u8 {
    let selector: u16;
    // SAFETY: reads a segment register.
    unsafe { asm!("mov {0:x}, cs", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    (selector & 3) as u8
}

/// Writes a byte to a port. Any port may be written: what a device makes of it
/// is for its driver to know; memory is not touched.
#[inline(always)]
pub fn out8(port: u16, value: u8) {
    // SAFETY: no device of the machines we run on reaches into memory by a byte
    // written to a port, and the port bitmap allows all ports.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Reads a byte from a port.
#[inline(always)]
pub fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as for `out8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// Writes 32 bits to a port.
pub fn out32(port: u16, value: u32) {
    // SAFETY: as for `out8`.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags));
    }
}

/// Reads 32 bits from a port.
pub fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: as for `out8`.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags));
    }
    value
}

/// Reads 32 bits of device memory.
///
/// # Safety
/// `address` is a device's, or RAM that nobody else uses; below 4 GiB.
#[inline(always)]
pub unsafe fn mmio_read(address: u64) -> u32 {
    // SAFETY: the first 4 GiB are mapped to themselves, and what is there is not
    // used as memory, by this function's contract.
    unsafe { (address as *const u32).read_volatile() }
}

/// Writes 32 bits of device memory.
///
/// # Safety
/// As for [`mmio_read`].
#[inline(always)]
pub unsafe fn mmio_write(address: u64, value: u32) {
    // SAFETY: as for `mmio_read`.
    unsafe { (address as *mut u32).write_volatile(value) }
}

/// Writes a model-specific register.
///
/// # Safety
/// The processor has the register at this ring, and what it does with the value
/// touches no memory.
pub unsafe fn wrmsr(register: u32, value: u64) {
    // SAFETY: the caller answers for the register.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
             options(nostack, preserves_flags));
    }
}

/// Waits a moment, in a loop that waits for an interrupt.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}
