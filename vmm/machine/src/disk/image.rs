//! The disk of an image.
//!
//! Its registers are those of the second virtio-mmio transport. Its interrupt is a vector of the local APIC, because the
//! virtual machine of an image has no I/O APIC.

use super::{open, worker, DiskConfig};
use crate::sandbox::Role;
use crate::shell::Host;
use crate::threads::Worker;
use crate::virtio::Slot;
use crate::{Failure, Machine, StopReason};
use std::ops::DerefMut;
use std::sync::Arc;
use trapline_abi::platform::{DISK_MMIO, DISK_VECTOR, VIRTIO_MMIO_SIZE};
use trapline_interface::{IrqId, Vcpu, VcpuId, Vm};
use trapline_monitor::virtio::{Block, Memory, Registers};
use trapline_monitor::{run, start, Devices, Platform};

/// Name of the disk and its thread.
const NAME: &str = "disk0";

/// The disk of an image. Its functions are cold, so that they are not between those of VMs without disks, whose pages
/// delay the guest's first instruction.
pub struct ImageDisk {
    slot: Arc<Slot<Block>>,
    /// Threads that are not started yet.
    workers: Vec<Worker>,
}

impl ImageDisk {
    /// Opens the disk and adds it to `vm`. It is never freed: the process ends without.
    ///
    /// # Errors
    /// The file is not usable as a disk, the hypervisor refuses, or no engine is available.
    #[cold]
    #[inline(never)]
    pub fn open(
        vm: &impl Vm,
        memory: &Arc<Memory>,
        wanted: &DiskConfig,
    ) -> Result<&'static mut Self, Failure> {
        let file = open(wanted, NAME)?;
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
        Ok(Box::leak(Box::new(Self { slot, workers })))
    }

    /// Starts its threads.
    ///
    /// # Errors
    /// A thread cannot be created.
    #[cold]
    #[inline(never)]
    pub fn start(&mut self, sandbox: bool) -> Result<(), Failure> {
        let mut workers = self.workers.drain(..);
        workers.try_for_each(|worker| worker.start(sandbox))
    }

    /// Runs the guest of `machine` until the VM stops, see [`Machine::run`].
    ///
    /// # Errors
    /// The hypervisor refuses.
    #[cold]
    #[inline(never)]
    pub fn run<V: Vcpu>(
        &self,
        machine: &mut Machine<V>,
        starting: impl FnOnce(),
    ) -> Result<StopReason, Failure> {
        start(&mut machine.vcpu)?;
        starting();
        let mut platform = WithDisk {
            devices: &mut machine.devices,
            slot: &self.slot,
        };
        let reason = run(&mut machine.vcpu, &mut platform, &machine.exits);
        machine.devices.shell.console.finish();
        Ok(reason?)
    }
}

/// Returns the offset of `address` in the registers.
#[inline(always)]
fn offset(address: u64) -> Option<u32> {
    let offset = address.wrapping_sub(DISK_MMIO);
    (offset < VIRTIO_MMIO_SIZE).then_some(offset as u32)
}

/// The devices of a VM with an image and a disk.
struct WithDisk<'a> {
    devices: &'a mut Devices<Host>,
    slot: &'a Slot<Block>,
}

impl Platform for WithDisk<'_> {
    type Shell = Host;

    fn devices(&mut self) -> impl DerefMut<Target = Devices<Host>> {
        &mut *self.devices
    }

    fn read_mmio(&mut self, address: u64, size: u8) -> Option<u64> {
        let offset = offset(address)?;
        Some(self.slot.read(offset, size))
    }

    fn write_mmio(&mut self, address: u64, size: u8, value: u64) -> Option<()> {
        let offset = offset(address)?;
        self.slot.write(offset, size, value);
        Some(())
    }
}
