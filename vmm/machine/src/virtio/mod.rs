//! Virtio devices in the machine: who answers where, and who is woken.
//!
//! A [`Slot`] is a device with all that it has in a machine: registers at an address, guest
//! memory, a doorbell that a driver rings, a pin by which it interrupts. vCPUs reach the
//! registers through the [`Bus`]; a thread of the device's own waits for the
//! doorbell, so that a driver that rings costs its vCPU as little as the kernel can
//! charge.

mod counters;
mod slot;

pub use counters::{Counters, Counts};
pub use slot::Slot;

use std::sync::Arc;
use trapline_abi::platform::VIRTIO_MMIO;
use trapline_interface::{Gpa, Region};
use trapline_monitor::boot::acpi::Transport;
use trapline_monitor::virtio::{Memory, SIZE};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{GuestAddress, GuestRegionMmap};

/// The pins of the interrupt controller that no other device here has, in the order in
/// which slots take them.
const PINS: [u8; 17] = [
    5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
];

/// How many devices there can be.
pub const MOST: usize = PINS.len();

/// Where slot `number` has its registers, and where it interrupts; `None` where there is
/// no such slot.
pub fn place(number: usize) -> Option<Transport> {
    let pin = *PINS.get(number)?;
    Some(Transport {
        at: VIRTIO_MMIO as u32 + SIZE * number as u32,
        size: SIZE,
        pin,
    })
}

/// What a vCPU sees of a slot.
pub trait Registers: Send + Sync {
    /// The guest reads `size` bytes (1, 2, 4 or 8) at `offset`.
    fn read(&self, offset: u32, size: u8) -> u64;

    /// The guest writes as many.
    fn write(&self, offset: u32, size: u8, value: u64);
}

/// The slots of a machine, by their numbers.
#[derive(Clone, Default)]
pub struct Bus {
    slots: Vec<Arc<dyn Registers>>,
}

impl Bus {
    /// The place for the next slot.
    pub fn next(&self) -> Option<Transport> {
        place(self.slots.len())
    }

    /// Takes it.
    pub fn add(&mut self, slot: Arc<dyn Registers>) {
        self.slots.push(slot);
    }

    /// The places that are taken.
    pub fn places(&self) -> Vec<Transport> {
        (0..self.slots.len()).filter_map(place).collect()
    }

    /// The guest reads; `None` where there is no slot.
    #[inline(always)]
    pub fn read(&self, address: u64, size: u8) -> Option<u64> {
        let (slot, offset) = self.find(address)?;
        Some(slot.read(offset, size))
    }

    /// The guest writes; `None` where there is no slot.
    #[inline(always)]
    pub fn write(&self, address: u64, size: u8, value: u64) -> Option<()> {
        let (slot, offset) = self.find(address)?;
        slot.write(offset, size, value);
        Some(())
    }

    #[inline(always)]
    fn find(&self, address: u64) -> Option<(&dyn Registers, u32)> {
        let offset = address.wrapping_sub(VIRTIO_MMIO);
        let number = usize::try_from(offset / u64::from(SIZE)).ok()?;
        let slot = self.slots.get(number)?;
        Some((slot.as_ref(), (offset % u64::from(SIZE)) as u32))
    }
}

/// A guest's memory, from address 0, as its devices see it.
#[derive(Clone)]
pub struct Ram {
    memory: Memory,
    /// What it is a view of.
    _region: Arc<Region>,
}

impl Ram {
    /// All of `region`.
    pub fn of(region: Arc<Region>) -> Self {
        let builder = MmapRegionBuilder::new(region.len())
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_SHARED);
        // SAFETY: the region is mapped at this address in this length as long as
        // it lives, and it lives as long as this view: they are dropped together.
        let mapping = unsafe { builder.with_raw_mmap_pointer(region.address().as_ptr()) };
        let mapping = mapping.build().ok();
        let mapped =
            mapping.and_then(|mapping| GuestRegionMmap::new(mapping, GuestAddress(Gpa(0).0)));
        let memory = mapped.and_then(|region| Memory::from_regions(vec![region]).ok());
        Self {
            // A region is never empty, begins at a page, and ends in the address space.
            memory: memory.unwrap_or_else(|| unreachable!("memory that the guest has")),
            _region: region,
        }
    }

    /// It.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

#[cfg(test)]
mod tests;
