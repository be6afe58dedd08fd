//! Single instructions, the count of exits, and global state.

use core::arch::asm;
use core::cell::UnsafeCell;
use trapline_abi::platform::{EXITS_HIGH, EXITS_LOW};

/// Control registers of 64-bit mode (Intel SDM volume 3, 2.5 and 2.2.1), as at direct boot.
pub mod control {
    /// PG, NE, ET, MP, PE.
    pub const CR0_PROTECTED_PAGED: u32 = 0x8000_0033;
    /// PAE, OSFXSR, OSXMMEXCPT; no SMEP, no SMAP.
    pub const CR4_PAE_SSE: u32 = 0x620;
    /// `IA32_EFER`, and its bit LME.
    pub const EFER: u32 = 0xc000_0080;
    /// See [`EFER`].
    pub const EFER_LONG_MODE: u32 = 0x100;
}

/// Global state.
///
/// It belongs to the boot CPU, unless its user hands it over ([`crate::smp`]), threads are cooperative, and interrupt handlers (vectors.s) access only their
/// counters. So a reference is exclusive until the same code takes another one.
pub struct Global<T>(UnsafeCell<T>);

// SAFETY: one CPU at a time accesses it, see above.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Returns the address of the state.
    pub const fn pointer(&self) -> *mut T {
        self.0.get()
    }

    /// Returns the state.
    ///
    /// # Safety
    /// No other reference to it is in use while this one is.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: exclusive by contract.
        unsafe { &mut *self.0.get() }
    }
}

/// Returns the current privilege ring.
pub fn ring() -> u8 {
    let selector: u16;
    // SAFETY: reads a segment register.
    unsafe { asm!("mov {0:x}, cs", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    (selector & 3) as u8
}

/// Writes a byte to a port.
#[inline(always)]
pub fn out8(port: u16, value: u8) {
    // SAFETY: no device of the supported machines accesses memory because of a byte written to a
    // port, and the port bitmap allows all ports.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Reads a byte from a port.
#[inline(always)]
pub fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as in `out8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// Writes 16 bits to a port.
pub fn out16(port: u16, value: u16) {
    // SAFETY: as in `out8`.
    unsafe {
        asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags));
    }
}

/// Writes 32 bits to a port.
pub fn out32(port: u16, value: u32) {
    // SAFETY: as in `out8`.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags));
    }
}

/// Reads 32 bits from a port.
pub fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: as in `out8`.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags));
    }
    value
}

/// Returns the number of exits so far, if the machine has the port for it.
#[inline(always)]
pub fn exits(has_ports: bool) -> Option<u64> {
    has_ports.then(|| {
        let low = in32(EXITS_LOW);
        u64::from(in32(EXITS_HIGH)) << 32 | u64::from(low)
    })
}

/// Reads 32 bits of device memory.
///
/// # Safety
/// `address` is below 4 GiB, and belongs to a device or to otherwise unused RAM.
#[inline(always)]
pub unsafe fn mmio_read(address: u64) -> u32 {
    // SAFETY: the first 4 GiB are identity-mapped, and the address is not used as memory, by
    // contract.
    unsafe { (address as *const u32).read_volatile() }
}

/// Writes 32 bits of device memory.
///
/// # Safety
/// Same contract as [`mmio_read`].
#[inline(always)]
pub unsafe fn mmio_write(address: u64, value: u32) {
    // SAFETY: as in `mmio_read`.
    unsafe { (address as *mut u32).write_volatile(value) }
}

/// Writes a model-specific register.
///
/// # Safety
/// The CPU has the register, it is accessible at this ring, and writing it does not access memory.
pub unsafe fn wrmsr(register: u32, value: u64) {
    // SAFETY: by contract.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
             options(nostack, preserves_flags));
    }
}

/// Reads a model-specific register.
///
/// # Safety
/// The CPU has the register, and it is accessible at this ring.
#[inline(always)]
pub unsafe fn rdmsr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: by contract.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high,
             options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Spin-loop hint, for loops that wait for an interrupt.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}
