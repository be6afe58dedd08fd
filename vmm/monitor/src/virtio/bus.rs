//! Address decoding for virtio MMIO devices.

use crate::boot::acpi::Transport;
use crate::virtio::SIZE;
use alloc::sync::Arc;
use alloc::vec::Vec;
use trapline_abi::platform::VIRTIO_MMIO;

/// I/O APIC pins of the slots; no other kind of device uses them. Further slots share them.
const PINS: [u8; 17] = [
    5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
];

/// Limit of devices.
pub const MAX_SLOTS: usize = 32;

/// Returns address and pin of slot `number`, if it exists.
pub fn slot_resources(number: usize) -> Option<Transport> {
    (number < MAX_SLOTS).then(|| Transport {
        at: VIRTIO_MMIO as u32 + SIZE * number as u32,
        size: SIZE,
        pin: PINS[number % PINS.len()],
    })
}

/// Registers of a device, with its own lock.
pub trait Registers {
    /// Reads `size` bytes (1, 2, 4 or 8) at `offset`.
    fn read(&self, offset: u32, size: u8) -> u64;

    /// Writes `size` bytes (1, 2, 4 or 8) at `offset`.
    fn write(&self, offset: u32, size: u8, value: u64);
}

impl<R: Registers + ?Sized> Registers for Arc<R> {
    fn read(&self, offset: u32, size: u8) -> u64 {
        (**self).read(offset, size)
    }

    fn write(&self, offset: u32, size: u8, value: u64) {
        (**self).write(offset, size, value);
    }
}

/// The slots of a VM.
#[derive(Clone, Debug)]
pub struct Bus<R> {
    slots: Vec<R>,
}

impl<R> Default for Bus<R> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<R: Registers> Bus<R> {
    /// Returns the resources of the next free slot.
    pub fn next(&self) -> Option<Transport> {
        slot_resources(self.slots.len())
    }

    /// Adds a device in the next slot.
    pub fn add(&mut self, registers: R) {
        self.slots.push(registers);
    }

    /// Reads a device; `None` if no slot has the address.
    #[inline(always)]
    pub fn read(&self, address: u64, size: u8) -> Option<u64> {
        let (slot, offset) = self.find(address)?;
        Some(slot.read(offset, size))
    }

    /// Writes a device; `None` if no slot has the address.
    #[inline(always)]
    pub fn write(&self, address: u64, size: u8, value: u64) -> Option<()> {
        let (slot, offset) = self.find(address)?;
        slot.write(offset, size, value);
        Some(())
    }

    #[inline(always)]
    fn find(&self, address: u64) -> Option<(&R, u32)> {
        let offset = address.wrapping_sub(VIRTIO_MMIO);
        let number = usize::try_from(offset / u64::from(SIZE)).ok()?;
        let slot = self.slots.get(number)?;
        Some((slot, (offset % u64::from(SIZE)) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        let places: Vec<_> = (0..MAX_SLOTS)
            .map(|number| slot_resources(number).unwrap())
            .collect();
        assert_eq!(slot_resources(MAX_SLOTS), None);
        for pair in places.windows(2) {
            assert_eq!(pair[0].at + pair[0].size, pair[1].at);
            assert_ne!(pair[0].pin, pair[1].pin);
        }
        let own: std::collections::BTreeSet<_> =
            places[..PINS.len()].iter().map(|place| place.pin).collect();
        assert_eq!(own.len(), PINS.len(), "those that suffice share nothing");
        let (bus, end) = (Bus::<Arc<dyn Registers>>::default(), VIRTIO_MMIO + 0x200);
        for at in [0, VIRTIO_MMIO - 1, VIRTIO_MMIO, end, u64::MAX] {
            assert_eq!((bus.read(at, 4), bus.write(at, 4, 0)), (None, None));
        }
    }
}
