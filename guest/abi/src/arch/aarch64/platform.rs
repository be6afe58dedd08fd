//! Devices of QEMU's machine `virt` (QEMU `docs/system/arm/virt.rst`, `hw/arm/virt.c`).

/// Registers of the PL011 serial port. Writing a byte to the first one sends it; it is always ready.
pub const SERIAL: u64 = 0x0900_0000;

/// Registers of QEMU's firmware configuration device (QEMU `docs/specs/fw_cfg.rst`).
pub const FW_CFG: u64 = 0x0902_0000;
/// Offset of its selector: 16 bits, big endian.
pub const FW_CFG_SELECTOR: u64 = 8;
/// Offset of its data, a byte a read.
pub const FW_CFG_DATA: u64 = 0;

/// Device number of `pvpanic-pci` (QEMU `docs/specs/pvpanic.rst`), which stops a simulated machine until the lab resumes
/// it, as Linux prints it. The machine's clock stands still meanwhile.
pub const PAUSE_DEVICE: &str = "0x0011";
/// Byte that stops the machine when it is written to the device's first register: the panic event.
pub const PAUSE_NOW: u8 = 1;

/// First virtio-mmio transport.
pub const VIRTIO_MMIO: u64 = 0x0a00_0000;
