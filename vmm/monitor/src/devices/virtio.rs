//! A virtio-mmio transport without a device (virtio 1.2, section 4.2.2): device ID 0, which drivers ignore.

use trapline_abi::platform::VIRTIO_MAGIC;

const MAGIC: u32 = 0x000;
const VERSION: u32 = 0x004;
const DEVICE_ID: u32 = 0x008;
const VENDOR_ID: u32 = 0x00c;
const DEVICE_FEATURES: u32 = 0x010;
const DEVICE_FEATURES_SEL: u32 = 0x014;
const DRIVER_FEATURES: u32 = 0x020;
const DRIVER_FEATURES_SEL: u32 = 0x024;
const QUEUE_SEL: u32 = 0x030;
const STATUS: u32 = 0x070;

/// "TRAP", as four bytes in memory.
const VENDOR: u32 = u32::from_le_bytes(*b"TRAP");

/// Bit 32: not a legacy device.
const VERSION_1: u64 = 1 << 32;

/// The registers of one transport.
#[derive(Debug, Default)]
pub struct Transport {
    device_features_sel: u32,
    driver_features_sel: u32,
    driver_features: [u32; 2],
    queue_sel: u32,
    status: u32,
}

impl Transport {
    /// Length of the registers in bytes.
    pub const SIZE: u64 = 0x200;

    /// A 32-bit read at `offset`, a multiple of 4 below [`Self::SIZE`].
    #[inline(always)]
    pub fn read(&self, offset: u32) -> u32 {
        match offset {
            MAGIC => VIRTIO_MAGIC,
            VERSION => 2,
            DEVICE_ID => 0,
            VENDOR_ID => VENDOR,
            DEVICE_FEATURES => half(VERSION_1, self.device_features_sel),
            STATUS => self.status,
            // No queues, no interrupts, no configuration.
            _ => 0,
        }
    }

    /// A 32-bit write at `offset`, a multiple of 4 below [`Self::SIZE`].
    #[inline(always)]
    pub fn write(&mut self, offset: u32, value: u32) {
        match offset {
            DEVICE_FEATURES_SEL => self.device_features_sel = value,
            DRIVER_FEATURES_SEL => self.driver_features_sel = value,
            DRIVER_FEATURES => {
                if let Some(half) = self
                    .driver_features
                    .get_mut(self.driver_features_sel as usize)
                {
                    *half = value;
                }
            }
            QUEUE_SEL => self.queue_sel = value,
            STATUS if value == 0 => *self = Self::default(),
            STATUS => self.status = value & 0xff,
            _ => {}
        }
    }
}

/// The 32 bits of `features` that `selector` chooses.
fn half(features: u64, selector: u32) -> u32 {
    match selector {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_words_are_selected() {
        let mut transport = Transport::default();
        assert_eq!(transport.read(MAGIC), VIRTIO_MAGIC);
        assert_eq!(transport.read(VERSION), 2);
        for (selector, features) in [(0, 0), (1, 1), (2, 0), (u32::MAX, 0)] {
            transport.write(DEVICE_FEATURES_SEL, selector);
            assert_eq!(transport.read(DEVICE_FEATURES), features);
        }
    }

    #[test]
    fn status_zero_resets() {
        let mut transport = Transport::default();
        transport.write(DEVICE_FEATURES_SEL, 1);
        transport.write(STATUS, 0x10f);
        assert_eq!(transport.read(STATUS), 0x0f);
        transport.write(STATUS, 0);
        assert_eq!(transport.read(STATUS), 0);
        assert_eq!(transport.read(DEVICE_FEATURES), 0);
    }
}
