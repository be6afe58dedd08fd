//! A virtio device on PCI (virtio 1.2, section 4.1) behind the registers of virtio-mmio (4.2.2), in which the
//! drivers speak.
//!
//! Queues interrupt by entry 0 of the MSI-X table. Without MSI-X completions are polled.

use super::transport::{self, Access};
use crate::pci::{Device, Structures};
use core::cell::Cell;
use trapline_abi::platform::{LOCAL_APIC, VIRTIO_MAGIC};
use trapline_workloads::{DeviceRegisters, Doorbell, Reason};

/// Fields of the common configuration (4.1.4.3).
const FEATURE_SELECT: u64 = 0x00;
const FEATURES: u64 = 0x04;
const DRIVER_FEATURE_SELECT: u64 = 0x08;
const DRIVER_FEATURES: u64 = 0x0c;
const CONFIGURATION_VECTOR: u64 = 0x10;
const STATUS: u64 = 0x14;
const GENERATION: u64 = 0x15;
const QUEUE_SELECT: u64 = 0x16;
const QUEUE_SIZE: u64 = 0x18;
const QUEUE_VECTOR: u64 = 0x1a;
const QUEUE_ENABLE: u64 = 0x1c;
const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
/// Low halves of the addresses of a queue's areas, in the order of [`transport::QUEUE_AREAS`].
const QUEUE_AREAS: [u64; 3] = [0x20, 0x28, 0x30];

/// Number of queues that drivers use.
const QUEUES: usize = 2;

/// Memory of devices, and the interrupt.
pub trait Bus {
    /// Reads 8, 16 or 32 bits.
    fn read8(&self, address: u64) -> u8;
    /// See [`Self::read8`].
    fn read16(&self, address: u64) -> u16;
    /// See [`Self::read8`].
    fn read32(&self, address: u64) -> u32;
    /// Writes 8, 16 or 32 bits.
    fn write8(&self, address: u64, value: u8);
    /// See [`Self::write8`].
    fn write16(&self, address: u64, value: u16);
    /// See [`Self::write8`].
    fn write32(&self, address: u64, value: u32);
    /// Returns the number of interrupts so far.
    fn interrupts(&self) -> u64;
    /// Ends the interrupt in service.
    fn end_interrupt(&self);
    /// Returns true if the CPU cannot wait for interrupts.
    fn polls(&self) -> bool;
    /// See [`Access::wait`].
    ///
    /// # Errors
    /// The wait takes too long.
    fn wait(&self, polls: bool, seen: u64, begun: u64) -> Result<(), Reason>;
}

/// Returns the registers of a device that operations access. Its driver is announced, because Cloud Hypervisor resets the selector at
/// each write before that.
///
/// # Errors
/// It is a legacy device, or does not answer at its addresses.
pub fn registers(bus: &impl Bus, at: Structures) -> Result<DeviceRegisters, Reason> {
    let (selector, features) = (at.common + FEATURE_SELECT, at.common + FEATURES);
    for status in transport::ANNOUNCED {
        bus.write8(at.common + STATUS, status as u8);
    }
    bus.write32(selector, 1);
    if bus.read32(selector) != 1 {
        return Err("the virtio device on PCI does not answer at the addresses of its registers");
    }
    match u64::from(bus.read32(features)) << 32 & transport::VERSION_1 {
        0 => Err(transport::LEGACY),
        _ => Ok(DeviceRegisters { selector, features }),
    }
}

/// A device on PCI.
pub struct Pci<B> {
    bus: B,
    kind: u32,
    at: Structures,
    /// Addresses of the notifications of queues.
    notify: [u64; QUEUES],
    polls: Cell<bool>,
    /// Start of the last wait, in ticks.
    waited: u64,
}

impl<B: Bus> Pci<B> {
    /// Returns the device with its structures. Its interrupt has this vector.
    ///
    /// # Errors
    /// It has no notifications for its queues.
    pub fn new(bus: B, device: Device, at: Structures, vector: u8) -> Result<Self, Reason> {
        let polls = bus.polls() || at.message.is_none();
        let mut notify = [0; QUEUES];
        for (queue, notify) in notify.iter_mut().enumerate() {
            bus.write16(at.common + QUEUE_SELECT, queue as u16);
            let offset = u64::from(bus.read16(at.common + QUEUE_NOTIFY_OFFSET));
            let offset = offset * u64::from(at.multiplier);
            let exists = bus.read16(at.common + QUEUE_SIZE) != 0;
            if exists && (offset + 2 > at.notify.1 || !offset.is_multiple_of(2)) {
                return Err("the virtio device on PCI has no notifications for its queues");
            }
            *notify = at.notify.0 + if exists { offset } else { 0 };
        }
        if let (Some(entry), false) = (at.message, polls) {
            // Address, data, and a mask of the vector (PCI Local Bus Specification 3.0, 6.8.2): CPU 0.
            let fields = [LOCAL_APIC as u32, 0, vector.into(), 0];
            for (field, place) in fields.into_iter().zip((entry..).step_by(4)) {
                bus.write32(place, field);
            }
        }
        Ok(Self {
            bus,
            kind: device.kind,
            at,
            notify,
            polls: Cell::new(polls),
            waited: 0,
        })
    }

    /// Returns the register of notifications of queue 0.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell {
            address: self.notify[0],
            is_narrow: true,
        }
    }

    fn common(&self, field: u64) -> u64 {
        self.at.common + field
    }

    /// Enables the selected queue, with the interrupt, which changes of the configuration have, too. A device that has no
    /// resources for it is polled (4.1.5.1.2).
    fn enable_queue(&self) {
        if !self.polls.get() {
            let vectors = [CONFIGURATION_VECTOR, QUEUE_VECTOR].map(|field| self.common(field));
            for vector in vectors {
                self.bus.write16(vector, 0);
            }
            let refuses = vectors
                .into_iter()
                .any(|vector| self.bus.read16(vector) != 0);
            self.polls.set(refuses);
        }
        self.bus.write16(self.common(QUEUE_ENABLE), 1);
    }

    /// Writes half of the address of an area of the selected queue.
    fn place_area(&self, register: u64, value: u32) {
        let areas = transport::QUEUE_AREAS.into_iter().zip(QUEUE_AREAS);
        for (area, field) in areas {
            if (area..area + 8).contains(&register) {
                self.bus
                    .write32(self.common(field + register - area), value);
            }
        }
    }

    /// Reads 32 bits of the configuration of the kind of device; 0 beyond its end.
    fn configuration(&self, offset: u64) -> u32 {
        let (start, length) = self.at.device;
        if offset + 4 <= length {
            self.bus.read32(start + offset)
        } else {
            0
        }
    }
}

impl<B: Bus> Access for Pci<B> {
    #[inline(always)]
    fn read(&self, register: u64) -> u32 {
        match register {
            transport::MAGIC => VIRTIO_MAGIC,
            transport::VERSION => transport::MODERN,
            transport::DEVICE_ID => self.kind,
            transport::DEVICE_FEATURES => self.bus.read32(self.common(FEATURES)),
            transport::QUEUE_SIZE_MAX => self.bus.read16(self.common(QUEUE_SIZE)).into(),
            transport::STATUS => self.bus.read8(self.common(STATUS)).into(),
            transport::CONFIG_GENERATION => self.bus.read8(self.common(GENERATION)).into(),
            transport::CONFIGURATION.. => self.configuration(register - transport::CONFIGURATION),
            // A message says itself why it was sent: there is no interrupt status.
            _ => 0,
        }
    }

    #[inline(always)]
    fn write(&self, register: u64, value: u32) {
        let write16 = |field, value: u32| self.bus.write16(self.common(field), value as u16);
        let write32 = |field| self.bus.write32(self.common(field), value);
        match register {
            transport::QUEUE_NOTIFY => {
                let address = self.notify[value as usize % QUEUES];
                self.bus.write16(address, value as u16);
            }
            transport::DEVICE_FEATURES_SEL => write32(FEATURE_SELECT),
            transport::DRIVER_FEATURES_SEL => write32(DRIVER_FEATURE_SELECT),
            transport::DRIVER_FEATURES => write32(DRIVER_FEATURES),
            transport::QUEUE_SEL => write16(QUEUE_SELECT, value),
            transport::QUEUE_SIZE => write16(QUEUE_SIZE, value),
            transport::QUEUE_READY => self.enable_queue(),
            transport::STATUS => self.bus.write8(self.common(STATUS), value as u8),
            transport::INTERRUPT_ACK => {}
            _ => self.place_area(register, value),
        }
    }

    fn interrupts(&self) -> u64 {
        self.bus.interrupts()
    }

    fn end_interrupt(&self) {
        self.bus.end_interrupt();
    }

    fn polls(&self) -> bool {
        self.polls.get()
    }

    /// A second wait for one completion follows an interrupt without any: the status says whether the device needs a reset.
    fn wait(&mut self, seen: u64, begun: u64) -> Result<(), Reason> {
        let is_repeated = self.waited == begun && !self.polls();
        if is_repeated && self.read(transport::STATUS) & transport::NEEDS_RESET != 0 {
            return Err("the device reports an error of the driver");
        }
        self.waited = begun;
        self.bus.wait(self.polls(), seen, begun)
    }
}
