//! Register offsets and bits of the MMIO transport (virtio 1.2, sections 4.2.2 and 2.1).

/// Length of the registers in bytes, including the configuration.
pub const SIZE: u32 = 0x200;

/// Register for queue notifications.
pub const QUEUE_NOTIFY: u32 = 0x050;

pub const MAGIC: u32 = 0x000;
pub const VERSION: u32 = 0x004;
pub const DEVICE_ID: u32 = 0x008;
pub const VENDOR_ID: u32 = 0x00c;
pub const DEVICE_FEATURES: u32 = 0x010;
pub const DEVICE_FEATURES_SEL: u32 = 0x014;
pub const DRIVER_FEATURES: u32 = 0x020;
pub const DRIVER_FEATURES_SEL: u32 = 0x024;
pub const QUEUE_SEL: u32 = 0x030;
pub const QUEUE_SIZE_MAX: u32 = 0x034;
pub const QUEUE_SIZE: u32 = 0x038;
pub const QUEUE_READY: u32 = 0x044;
pub const INTERRUPT_STATUS: u32 = 0x060;
pub const INTERRUPT_ACK: u32 = 0x064;
pub const STATUS: u32 = 0x070;
pub const QUEUE_DESC_LOW: u32 = 0x080;
pub const QUEUE_DESC_HIGH: u32 = 0x084;
pub const QUEUE_DRIVER_LOW: u32 = 0x090;
pub const QUEUE_DRIVER_HIGH: u32 = 0x094;
pub const QUEUE_DEVICE_LOW: u32 = 0x0a0;
pub const QUEUE_DEVICE_HIGH: u32 = 0x0a4;
/// Low and high halves of the addresses of descriptor table, available ring and used ring.
pub const QUEUE_AREAS: [u32; 6] = [
    QUEUE_DESC_LOW,
    QUEUE_DESC_HIGH,
    QUEUE_DRIVER_LOW,
    QUEUE_DRIVER_HIGH,
    QUEUE_DEVICE_LOW,
    QUEUE_DEVICE_HIGH,
];
/// Shared memory regions, of which no device has any: from SHMLenLow to SHMBaseHigh.
pub const SHARED_MEMORY_FIRST: u32 = 0x0b0;
pub const SHARED_MEMORY_LAST: u32 = 0x0bc;
pub const CONFIG_GENERATION: u32 = 0x0fc;
pub const CONFIG: u32 = 0x100;

/// "virt" and "TRAP" as bytes in memory.
pub const VIRT: u32 = u32::from_le_bytes(*b"virt");
pub const TRAP: u32 = u32::from_le_bytes(*b"TRAP");

pub const ACKNOWLEDGE: u8 = 1;
pub const DRIVER: u8 = 2;
pub const DRIVER_OK: u8 = 4;
pub const FEATURES_OK: u8 = 8;
pub const NEEDS_RESET: u8 = 64;
pub const FAILED: u8 = 128;

/// Bits of InterruptStatus: used buffer, configuration change.
pub const USED: u8 = 1;
pub const CHANGED: u8 = 2;

/// Features of every device (section 6): indirect descriptors, event index, virtio 1.
pub const INDIRECT: u64 = 1 << 28;
pub const EVENT_INDEX: u64 = 1 << 29;
pub const VERSION_1: u64 = 1 << 32;
pub const OFFERED: u64 = INDIRECT | EVENT_INDEX | VERSION_1;
