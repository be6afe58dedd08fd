//! Parts of a machine that some hypervisors leave to the VMM: the local APIC ([`apic`]), the I/O APIC ([`io_apic`]),
//! the decoding of an instruction ([`decode`]) and its execution on device memory ([`execute`], [`compute`]), and the
//! walk through the guest's page tables ([`paging`]). `no_std`.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod apic;
pub mod compute;
pub mod decode;
pub mod execute;
pub mod io_apic;
pub mod paging;

/// Number of `ah`, which `ch`, `dh` and `bh` follow.
pub const HIGH_BYTES: u8 = 16;

/// The registers of a stopped vCPU.
pub trait GuestRegisters {
    /// Returns the general register with this number, as instructions encode it.
    fn get(&self, number: u8) -> u64;

    /// Sets the low `size` bytes of a general register. As the CPU does, 4 bytes clear the upper half, and 1 or
    /// 2 keep the rest.
    fn set(&mut self, number: u8, size: u8, value: u64);

    /// Sets the low `size` bytes of a register operand: a general register, or from [`HIGH_BYTES`] the second byte of
    /// one of the first four.
    fn set_operand(&mut self, number: u8, size: u8, value: u64) {
        match number.checked_sub(HIGH_BYTES) {
            None => self.set(number, size, value),
            Some(number) => {
                let kept = self.get(number) & !0xff00;
                self.set(number, 8, kept | (value & 0xff) << 8);
            }
        }
    }

    /// Returns the address of the instruction.
    fn instruction(&self) -> u64;

    /// Sets the address of the next instruction.
    fn set_instruction(&mut self, address: u64);

    /// Returns `rflags`.
    fn flags(&self) -> u64;

    /// Sets `rflags`.
    fn set_flags(&mut self, flags: u64);

    /// Returns the base addresses of segments `fs` and `gs`.
    fn segment_bases(&self) -> [u64; 2];
}

/// Replaces the low `size` bytes of a register as the CPU does: 4 bytes clear the upper half, and 1 or 2 keep
/// the rest.
pub fn merge(register: &mut u64, size: u8, value: u64) {
    *register = match size {
        1 => *register & !0xff | value & 0xff,
        2 => *register & !0xffff | value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    };
}

/// Memory that contains the guest's page tables.
pub trait TableMemory {
    /// Reads an entry; `None` without memory at this guest-physical address.
    fn read64(&mut self, address: u64) -> Option<u64>;

    /// Writes an entry; `None` without writable memory there.
    fn write64(&mut self, address: u64, value: u64) -> Option<()>;
}
