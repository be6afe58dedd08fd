//! Registers of a virtio-mmio transport (virtio 1.2, section 4.2.2) and initialisation of a block
//! device (3.1.1).

use super::ring::{Ring, CHAIN, MAX_SIZE};
use trapline_abi::platform::VIRTIO_MAGIC;
use trapline_workloads::Reason;

const MAGIC: u64 = 0x000;
const VERSION: u64 = 0x004;
const DEVICE_ID: u64 = 0x008;
const DEVICE_FEATURES: u64 = 0x010;
const DEVICE_FEATURES_SEL: u64 = 0x014;
const DRIVER_FEATURES: u64 = 0x020;
const DRIVER_FEATURES_SEL: u64 = 0x024;
const QUEUE_SEL: u64 = 0x030;
const QUEUE_SIZE_MAX: u64 = 0x034;
const QUEUE_SIZE: u64 = 0x038;
const QUEUE_READY: u64 = 0x044;
pub const QUEUE_NOTIFY: u64 = 0x050;
pub const INTERRUPT_STATUS: u64 = 0x060;
pub const INTERRUPT_ACK: u64 = 0x064;
pub const STATUS: u64 = 0x070;
/// Low halves of the addresses of descriptor table, available ring and used ring; the high halves
/// follow.
const QUEUE_AREAS: [u64; 3] = [0x080, 0x090, 0x0a0];
const CONFIG_GENERATION: u64 = 0x0fc;
/// Configuration of a block device: its length in sectors.
const CAPACITY: u64 = 0x100;

const ACKNOWLEDGE: u32 = 1;
const DRIVER: u32 = 2;
const DRIVER_OK: u32 = 4;
const FEATURES_OK: u32 = 8;
pub const NEEDS_RESET: u32 = 64;

/// Interrupt status: the configuration or the status has changed.
pub const CONFIGURATION_CHANGED: u32 = 2;

/// Version of the registers of a modern device.
const MODERN: u32 = 2;
/// Device ID of a block device.
pub const BLOCK: u32 = 2;

const READ_ONLY: u64 = 1 << 5;
const FLUSH: u64 = 1 << 9;
const EVENT_INDEX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;

/// Minimum number of requests in flight.
const MIN_SLOTS: u16 = 32;

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

/// A running block device.
pub struct Device {
    /// Its queue.
    pub ring: Ring,
    /// It has a cache that can be flushed.
    pub flushes: bool,
    /// Length in sectors.
    pub sectors: u64,
}

/// Returns true if the transport has a block device.
pub fn is_block(access: &impl Access) -> bool {
    access.read(MAGIC) == VIRTIO_MAGIC && access.read(DEVICE_ID) == BLOCK
}

/// Initialises the block device.
///
/// # Errors
/// It is none, or lacks a feature.
///
/// # Safety
/// Same contract for `memory` as for the memory of [`Ring::new`].
pub unsafe fn start(access: &impl Access, memory: *mut u8) -> Result<Device, Reason> {
    if access.read(VERSION) != MODERN {
        return Err("the disk is a legacy virtio device");
    }
    reset(access)?;
    access.write(STATUS, ACKNOWLEDGE);
    access.write(STATUS, ACKNOWLEDGE | DRIVER);
    let features = negotiate(access)?;
    let status = ACKNOWLEDGE | DRIVER | FEATURES_OK;
    access.write(STATUS, status);
    if access.read(STATUS) & FEATURES_OK == 0 {
        return Err("the disk refuses the driver's features");
    }
    access.write(QUEUE_SEL, 0);
    let size = queue_size(access.read(QUEUE_SIZE_MAX))?;
    // SAFETY: same contract.
    let ring = unsafe { Ring::new(memory, size, features & EVENT_INDEX != 0) };
    access.write(QUEUE_SIZE, size.into());
    for (register, address) in QUEUE_AREAS.into_iter().zip(ring.addresses()) {
        access.write(register, address as u32);
        access.write(register + 4, (address >> 32) as u32);
    }
    access.write(QUEUE_READY, 1);
    access.write(STATUS, status | DRIVER_OK);
    Ok(Device {
        ring,
        flushes: features & FLUSH != 0,
        sectors: capacity(access)?,
    })
}

/// Stops the device: it accesses no memory afterwards.
///
/// # Errors
/// It does not stop.
pub fn reset(access: &impl Access) -> Result<(), Reason> {
    access.write(STATUS, 0);
    match (0..MOST_READINGS).any(|_| access.read(STATUS) == 0) {
        true => Ok(()),
        false => Err("the disk does not complete its reset"),
    }
}

/// Accepts the features of the device that the driver uses, and returns them.
fn negotiate(access: &impl Access) -> Result<u64, Reason> {
    let half = |number| {
        access.write(DEVICE_FEATURES_SEL, number);
        u64::from(access.read(DEVICE_FEATURES))
    };
    let offered = half(0) | half(1) << 32;
    if offered & VERSION_1 == 0 {
        return Err("the disk is a legacy virtio device");
    }
    if offered & READ_ONLY != 0 {
        return Err("the disk is read-only");
    }
    let features = offered & (VERSION_1 | EVENT_INDEX | FLUSH);
    for number in [0, 1] {
        access.write(DRIVER_FEATURES_SEL, number);
        access.write(DRIVER_FEATURES, (features >> (32 * number)) as u32);
    }
    Ok(features)
}

fn queue_size(max: u32) -> Result<u16, Reason> {
    let max = max.min(MAX_SIZE.into()) as u16;
    let size = match max {
        0 => 0,
        _ => 1 << max.ilog2(),
    };
    match size / CHAIN >= MIN_SLOTS {
        true => Ok(size),
        false => Err("the queue of the disk is too short for 32 requests"),
    }
}

fn capacity(access: &impl Access) -> Result<u64, Reason> {
    for _ in 0..MOST_READINGS {
        let generation = access.read(CONFIG_GENERATION);
        let (low, high) = (access.read(CAPACITY), access.read(CAPACITY + 4));
        if access.read(CONFIG_GENERATION) == generation {
            return Ok(u64::from(high) << 32 | u64::from(low));
        }
    }
    Err("the configuration of the disk never stays the same")
}
