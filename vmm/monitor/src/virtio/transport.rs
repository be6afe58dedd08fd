//! Registers of a device (virtio 1.2, section 4.2.2).
//!
//! The status handshake of section 3.1.1 is enforced: features are accepted between DRIVER and FEATURES_OK, rings are
//! configured between FEATURES_OK and DRIVER_OK, and other writes are ignored. The layout of a running ring is
//! therefore fixed.

use crate::virtio::registers::*;
use crate::virtio::{Device, DriverError, Memory, Ring};
use alloc::vec::Vec;

/// A device and its registers.
#[derive(Debug)]
pub struct Transport<D> {
    device: D,
    rings: Vec<Ring>,
    status: u8,
    features: u64,
    device_features_sel: u32,
    driver_features_sel: u32,
    queue_sel: u32,
    interrupt: u8,
    generation: u32,
}

/// Action required after a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// None.
    None,
    /// Serve this queue, of which the driver has notified.
    Notify(usize),
    /// Serve the device: the driver has started.
    Start,
    /// Wait for requests in flight: the driver has reset the device.
    Reset,
}

impl<D: Device> Transport<D> {
    /// Creates the registers of a device in reset state.
    pub fn new(device: D) -> Self {
        let rings = device.queues().iter().map(|max| Ring::new(*max));
        Self {
            rings: rings.collect(),
            device,
            status: 0,
            features: 0,
            device_features_sel: 0,
            driver_features_sel: 0,
            queue_sel: 0,
            interrupt: 0,
            generation: 0,
        }
    }

    /// Reads `size` bytes (1, 2, 4 or 8) at `offset`.
    pub fn read(&self, offset: u32, size: u8) -> u64 {
        match (offset, size) {
            (CONFIG.., _) => self.read_configuration((offset - CONFIG) as usize, size),
            (_, 4) if offset.is_multiple_of(4) => self.read_register(offset).into(),
            _ => 0,
        }
    }

    /// Writes the `size` lowest bytes (1, 2, 4 or 8) of `value` at `offset`.
    pub fn write(&mut self, offset: u32, size: u8, value: u64, memory: &Memory) -> Outcome {
        match (offset, size) {
            (CONFIG.., _) => {
                let bytes = value.to_le_bytes();
                let bytes = &bytes[..usize::from(size.min(8))];
                self.device.configure((offset - CONFIG) as usize, bytes);
                Outcome::None
            }
            (_, 4) => self.write_register(offset, value as u32, memory),
            _ => Outcome::None,
        }
    }

    fn read_register(&self, offset: u32) -> u32 {
        match offset {
            MAGIC => VIRT,
            VERSION => 2,
            DEVICE_ID => self.device.kind(),
            VENDOR_ID => TRAP,
            DEVICE_FEATURES => half(self.offered(), self.device_features_sel),
            QUEUE_SIZE_MAX => self.selected().map_or(0, |ring| ring.max_size().into()),
            QUEUE_READY => self.selected().is_some_and(Ring::is_ready).into(),
            INTERRUPT_STATUS => self.interrupt_status().into(),
            STATUS => self.status.into(),
            CONFIG_GENERATION => self.generation,
            // A missing region has this length and base.
            SHARED_MEMORY_FIRST..=SHARED_MEMORY_LAST => u32::MAX,
            _ => 0,
        }
    }

    fn write_register(&mut self, offset: u32, value: u32, memory: &Memory) -> Outcome {
        match offset {
            DEVICE_FEATURES_SEL => self.device_features_sel = value,
            DRIVER_FEATURES_SEL => self.driver_features_sel = value,
            DRIVER_FEATURES => self.choose_features(value),
            QUEUE_SEL => self.queue_sel = value,
            QUEUE_NOTIFY if (value as usize) < self.rings.len() => {
                return Outcome::Notify(value as usize);
            }
            INTERRUPT_ACK => self.interrupt &= !(value as u8),
            STATUS => return self.change_status(value as u8),
            _ if self.lays_out() => self.lay_out(offset, value, memory),
            _ => {}
        }
        Outcome::None
    }

    fn read_configuration(&self, offset: usize, size: u8) -> u64 {
        let bytes = self.device.configuration();
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        (0..usize::from(size.min(8))).rev().fold(0, |value, at| {
            value << 8 | u64::from(byte(offset.saturating_add(at)))
        })
    }

    fn offered(&self) -> u64 {
        self.device.features() | self.device.common_features()
    }

    /// Another process that serves queues cannot set the bit for used buffers.
    fn interrupt_status(&self) -> u8 {
        match self.device.external_queues() {
            0 => self.interrupt,
            _ => self.interrupt | USED,
        }
    }

    fn selected(&self) -> Option<&Ring> {
        self.rings.get(self.queue_sel as usize)
    }

    fn choose_features(&mut self, chosen: u32) {
        if self.status & (DRIVER | FEATURES_OK) != DRIVER {
            return;
        }
        let shift = match self.driver_features_sel {
            0 => 0,
            1 => 32,
            _ => return,
        };
        let other = self.features & !(u64::from(u32::MAX) << shift);
        self.features = other | u64::from(chosen) << shift;
    }

    /// Returns true if rings may be configured.
    fn lays_out(&self) -> bool {
        self.status & (FEATURES_OK | DRIVER_OK | NEEDS_RESET | FAILED) == FEATURES_OK
    }

    fn lay_out(&mut self, offset: u32, value: u32, memory: &Memory) {
        let Some(ring) = self.rings.get_mut(self.queue_sel as usize) else {
            return;
        };
        match offset {
            QUEUE_READY => ring.set_ready(value & 1 != 0, memory),
            _ if ring.is_ready() => {}
            QUEUE_SIZE => ring.set_size(value),
            _ => {
                if let Some(half) = QUEUE_AREAS.iter().position(|area| *area == offset) {
                    ring.set_address(half / 2, half % 2 == 1, value);
                }
            }
        }
    }

    fn change_status(&mut self, wanted: u8) -> Outcome {
        if wanted == 0 {
            self.reset();
            return Outcome::Reset;
        }
        // Bits may only be added, in this order.
        let was = self.status;
        let new = wanted & !was;
        self.status |= new & FAILED;
        for (bit, before) in [
            (ACKNOWLEDGE, 0),
            (DRIVER, ACKNOWLEDGE),
            (FEATURES_OK, ACKNOWLEDGE | DRIVER),
            (DRIVER_OK, ACKNOWLEDGE | DRIVER | FEATURES_OK),
        ] {
            let agreed = bit != FEATURES_OK || self.agrees();
            if new & bit != 0 && self.status & before == before && agreed {
                self.status |= bit;
            }
        }
        match self.status & !was & DRIVER_OK {
            0 => Outcome::None,
            _ => self.activate(),
        }
    }

    /// Returns true if the driver's features are a subset of those offered, with VERSION_1.
    fn agrees(&self) -> bool {
        self.features & !self.offered() == 0 && self.features & VERSION_1 != 0
    }

    fn activate(&mut self) -> Outcome {
        let events = self.features & EVENT_INDEX != 0;
        for ring in &mut self.rings {
            ring.set_event_index(events);
        }
        self.device.activate(self.features);
        Outcome::Start
    }

    fn reset(&mut self) {
        for ring in &mut self.rings {
            ring.reset();
        }
        self.device.reset();
        (self.status, self.features, self.interrupt) = (0, 0, 0);
        (self.device_features_sel, self.driver_features_sel) = (0, 0);
        self.queue_sel = 0;
    }

    /// The device in any state.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// The device and its rings, if it is running.
    pub fn live(&mut self) -> Option<(&mut D, &mut [Ring])> {
        let is_live = self.status & (DRIVER_OK | NEEDS_RESET | FAILED) == DRIVER_OK;
        is_live.then_some((&mut self.device, &mut self.rings))
    }

    /// Sets the used-buffer bit of the interrupt status.
    pub fn used(&mut self) {
        self.interrupt |= USED;
    }

    /// Changes the device's configuration; the caller then interrupts the guest.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut D)) {
        change(&mut self.device);
        self.generation = self.generation.wrapping_add(1);
        self.interrupt |= CHANGED;
    }

    /// Marks the device as needing a reset; the caller then interrupts the guest.
    pub fn fail(&mut self, _why: DriverError) {
        self.status |= NEEDS_RESET;
        self.interrupt |= CHANGED;
    }

    /// Returns true if the device needs a reset.
    pub fn is_broken(&self) -> bool {
        self.status & NEEDS_RESET != 0
    }
}

/// Returns the 32 bits of `features` chosen by `selector`.
fn half(features: u64, selector: u32) -> u32 {
    match selector {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
