//! Registers of a virtio-mmio transport (virtio 1.2, section 4.2.2) and initialisation of a device
//! (3.1.1).

use super::queue::{Queue, MAX_SIZE};
use trapline_abi::platform::VIRTIO_MAGIC;
use trapline_workloads::{ticks, Reason};

pub const MAGIC: u64 = 0x000;
pub const VERSION: u64 = 0x004;
pub const DEVICE_ID: u64 = 0x008;
pub const DEVICE_FEATURES: u64 = 0x010;
pub const DEVICE_FEATURES_SEL: u64 = 0x014;
pub const DRIVER_FEATURES: u64 = 0x020;
pub const DRIVER_FEATURES_SEL: u64 = 0x024;
pub const QUEUE_SEL: u64 = 0x030;
pub const QUEUE_SIZE_MAX: u64 = 0x034;
pub const QUEUE_SIZE: u64 = 0x038;
pub const QUEUE_READY: u64 = 0x044;
pub const QUEUE_NOTIFY: u64 = 0x050;
pub const INTERRUPT_STATUS: u64 = 0x060;
pub const INTERRUPT_ACK: u64 = 0x064;
pub const STATUS: u64 = 0x070;
/// Low halves of the addresses of descriptor table, available ring and used ring; the high halves
/// follow.
pub const QUEUE_AREAS: [u64; 3] = [0x080, 0x090, 0x0a0];
pub const CONFIG_GENERATION: u64 = 0x0fc;
/// Configuration of the kind of device.
pub const CONFIGURATION: u64 = 0x100;

const ACKNOWLEDGE: u32 = 1;
const DRIVER: u32 = 2;
pub const DRIVER_OK: u32 = 4;
const FEATURES_OK: u32 = 8;
/// Values of the status by which a driver announces itself.
pub const ANNOUNCED: [u32; 2] = [ACKNOWLEDGE, ACKNOWLEDGE | DRIVER];
pub const NEEDS_RESET: u32 = 64;

/// Interrupt status: the configuration or the status has changed.
const CONFIGURATION_CHANGED: u32 = 2;

/// Version of the registers of a modern device.
pub const MODERN: u32 = 2;
/// Device IDs (section 5), and that of a transport without a device (4.2.2).
const NO_DEVICE: u32 = 0;
pub const ENTROPY: u32 = 4;
pub const NETWORK: u32 = 1;
pub const BLOCK: u32 = 2;

/// Features of all kinds of devices (section 6).
const EVENT_INDEX: u64 = 1 << 29;
pub const VERSION_1: u64 = 1 << 32;

/// Maximum number of readings of a register that has to change, or to stay the same.
const MOST_READINGS: u32 = 1000;

/// Access to a device.
pub trait Access {
    /// Reads a register.
    fn read(&self, register: u64) -> u32;

    /// Writes a register.
    fn write(&self, register: u64, value: u32);

    /// Returns the number of interrupts so far; always 0 without interrupts.
    fn interrupts(&self) -> u64;

    /// Ends the interrupt in service.
    fn end_interrupt(&self);

    /// Returns true if completions are polled instead of signalled by interrupts.
    fn polls(&self) -> bool;

    /// Waits until the number of interrupts differs from `seen`, or for a moment if it polls.
    ///
    /// # Errors
    /// The wait that began at `begun`, in ticks, takes too long.
    fn wait(&mut self, seen: u64, begun: u64) -> Result<(), Reason>;
}

/// Returns true if the transport has a device of this kind.
pub fn is_device(access: &impl Access, kind: u32) -> bool {
    access.read(MAGIC) == VIRTIO_MAGIC && access.read(DEVICE_ID) == kind
}

/// Returns the first transport that has a modern device, of any kind.
pub fn find_modern<A: Access>(transports: impl IntoIterator<Item = A>) -> Option<A> {
    transports.into_iter().find(|access| {
        access.read(MAGIC) == VIRTIO_MAGIC
            && access.read(VERSION) == MODERN
            && access.read(DEVICE_ID) != NO_DEVICE
    })
}

/// A device between the negotiation of features and its start.
pub struct Negotiated<'a, A> {
    access: &'a A,
    features: u64,
}

/// Resets the device and accepts those of its features that are `wanted`.
///
/// # Errors
/// It is a legacy device, or refuses the features.
pub fn negotiate<A: Access>(access: &A, wanted: u64) -> Result<Negotiated<'_, A>, Reason> {
    if access.read(VERSION) != MODERN {
        return Err(LEGACY);
    }
    reset(access)?;
    for status in ANNOUNCED {
        access.write(STATUS, status);
    }
    let half = |number| {
        access.write(DEVICE_FEATURES_SEL, number);
        u64::from(access.read(DEVICE_FEATURES))
    };
    let offered = half(0) | half(1) << 32;
    if offered & VERSION_1 == 0 {
        return Err(LEGACY);
    }
    let features = offered & (VERSION_1 | EVENT_INDEX | wanted);
    for number in [0, 1] {
        access.write(DRIVER_FEATURES_SEL, number);
        access.write(DRIVER_FEATURES, (features >> (32 * number)) as u32);
    }
    access.write(STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK);
    match access.read(STATUS) & FEATURES_OK {
        0 => Err("the device refuses the driver's features"),
        _ => Ok(Negotiated { access, features }),
    }
}

pub const LEGACY: Reason = "the device is a legacy virtio device";

impl<A: Access> Negotiated<'_, A> {
    /// Returns true if a feature was accepted.
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Returns true if event indices were negotiated.
    pub fn has_event_index(&self) -> bool {
        self.has(EVENT_INDEX)
    }

    /// Selects a queue, whose registers [`Self::place`] writes. Returns its maximum size: a power of two, 0 if
    /// it does not exist.
    pub fn queue_size(&self, number: u32) -> u16 {
        self.access.write(QUEUE_SEL, number);
        match self.access.read(QUEUE_SIZE_MAX).min(MAX_SIZE.into()) as u16 {
            0 => 0,
            max => 1 << max.ilog2(),
        }
    }

    /// Gives the device the selected queue.
    pub fn place(&self, queue: &Queue) {
        self.access.write(QUEUE_SIZE, queue.size().into());
        for (register, address) in QUEUE_AREAS.into_iter().zip(queue.addresses()) {
            self.access.write(register, address as u32);
            self.access.write(register + 4, (address >> 32) as u32);
        }
        self.access.write(QUEUE_READY, 1);
    }

    /// Starts the device.
    pub fn start(&self) {
        let status = ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK;
        self.access.write(STATUS, status);
    }

    /// Returns the first 8 bytes of the configuration, read without a change in between.
    ///
    /// # Errors
    /// It changes all the time.
    pub fn configuration(&self) -> Result<u64, Reason> {
        let read = |register| u64::from(self.access.read(register));
        for _ in 0..MOST_READINGS {
            let generation = read(CONFIG_GENERATION);
            let (low, high) = (read(CONFIGURATION), read(CONFIGURATION + 4));
            if read(CONFIG_GENERATION) == generation {
                return Ok(high << 32 | low);
            }
        }
        Err("the configuration of the device never stays the same")
    }
}

/// Stops the device: it accesses no memory afterwards.
///
/// # Errors
/// It does not stop.
pub fn reset(access: &impl Access) -> Result<(), Reason> {
    access.write(STATUS, 0);
    if (0..MOST_READINGS).any(|_| access.read(STATUS) == 0) {
        Ok(())
    } else {
        Err("the device does not complete its reset")
    }
}

/// Interrupts of a device, as far as they were acknowledged.
pub struct Interrupts(u64);

impl Interrupts {
    /// Returns those so far as acknowledged.
    pub fn so_far(access: &impl Access) -> Self {
        Self(access.interrupts())
    }

    /// Waits until `queue` has a completion.
    ///
    /// # Errors
    /// The device needs a reset, or completes nothing for too long.
    pub fn wait<A: Access>(&mut self, access: &mut A, queue: &mut Queue) -> Result<(), Reason> {
        let begun = ticks();
        loop {
            let seen = access.interrupts();
            self.acknowledge(access, seen)?;
            queue.set_interrupt(!access.polls());
            if queue.has_completion() {
                return Ok(());
            }
            access.wait(seen, begun)?;
        }
    }

    /// Acknowledges interrupts up to number `seen`, at the device and at the interrupt controller.
    ///
    /// # Errors
    /// The device needs a reset.
    pub fn acknowledge(&mut self, access: &impl Access, seen: u64) -> Result<(), Reason> {
        if seen == self.0 {
            return Ok(());
        }
        self.0 = seen;
        let causes = access.read(INTERRUPT_STATUS);
        access.write(INTERRUPT_ACK, causes);
        access.end_interrupt();
        let is_changed = causes & CONFIGURATION_CHANGED != 0;
        if is_changed && access.read(STATUS) & NEEDS_RESET != 0 {
            Err("the device reports an error of the driver")
        } else {
            Ok(())
        }
    }
}
