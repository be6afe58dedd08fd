//! The disk of an image.
//!
//! Its registers are those of the second virtio-mmio transport. Its interrupt is a vector of the local APIC, because the
//! virtual machine of an image has no I/O APIC.

use super::{worker, DiskConfig, DiskFile};
use crate::sandbox::Role;
use crate::shell::Host;
use crate::threads::Worker;
use crate::virtio::Slot;
use crate::Failure;
use std::ops::DerefMut;
use std::sync::Arc;
use trapline_abi::platform::{DISK_MMIO, DISK_VECTOR, VIRTIO_MMIO_SIZE};
use trapline_interface::{IrqId, VcpuId, Vm};
use trapline_monitor::virtio::{Block, Memory, Registers};
use trapline_monitor::{Devices, Platform};

/// Name of the disk and its thread.
pub const NAME: &str = "disk0";

/// The registers of an image's disk.
pub struct ImageDisk(Arc<Slot<Block>>);

impl ImageDisk {
    /// Creates the disk in `vm`. Returns it with its threads, which are not started yet.
    ///
    /// # Errors
    /// The hypervisor refuses, or no engine is available.
    pub fn new(
        vm: &impl Vm,
        memory: &Arc<Memory>,
        wanted: &DiskConfig,
        file: DiskFile,
    ) -> Result<(Self, Vec<Worker>), Failure> {
        let line = vm.irq_line(IrqId {
            vcpu: VcpuId(0),
            vector: DISK_VECTOR,
        })?;
        let device = Block::new(file.geometry);
        let slot = Arc::new(Slot::with_line(vm, DISK_MMIO, line, memory, device)?);
        let mut workers = worker(wanted, NAME, file, Arc::clone(&slot))?;
        for worker in &mut workers {
            worker.role = match worker.role {
                Role::DiskRing => Role::ImageDiskRing,
                Role::DiskPool => Role::ImageDiskPool,
                role => role,
            };
        }
        Ok((Self(slot), workers))
    }

    /// Returns the offset of `address` in the registers.
    #[inline(always)]
    fn offset(address: u64) -> Option<u32> {
        let offset = address.wrapping_sub(DISK_MMIO);
        (offset < VIRTIO_MMIO_SIZE).then_some(offset as u32)
    }
}

/// The devices of a VM with an image and a disk.
pub struct WithDisk<'a> {
    /// Devices without the disk.
    pub devices: &'a mut Devices<Host>,
    /// The disk.
    pub disk: &'a ImageDisk,
}

impl Platform for WithDisk<'_> {
    type Shell = Host;

    fn devices(&mut self) -> impl DerefMut<Target = Devices<Host>> {
        &mut *self.devices
    }

    fn read_mmio(&mut self, address: u64, size: u8) -> Option<u64> {
        let offset = ImageDisk::offset(address)?;
        Some(self.disk.0.read(offset, size))
    }

    fn write_mmio(&mut self, address: u64, size: u8, value: u64) -> Option<()> {
        let offset = ImageDisk::offset(address)?;
        self.disk.0.write(offset, size, value);
        Some(())
    }
}
