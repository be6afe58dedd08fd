//! The virtio devices of an image: a disk, a network card on a tap, one that something else serves, as a switch, and an entropy
//! device.
//!
//! Their registers are those of the second to fifth virtio-mmio transport. Their interrupt is a vector of the local APIC,
//! because the virtual machine of an image has no I/O APIC.

use crate::disk::{self, DiskConfig};
use crate::entropy;
use crate::net::{self, external, Card, ExternalSource, Source, Tap, TapSource};
use crate::sandbox::Role;
use crate::shell::Host;
use crate::threads::Worker;
use crate::virtio::Slot;
use crate::{Failure, Machine, StopReason, VmConfig};
use std::ops::DerefMut;
use std::sync::Arc;
use trapline_abi::platform::{
    DISK_MMIO, ENTROPY_MMIO, NET_MMIO, SWITCH_MMIO, VIRTIO_MMIO_SIZE, VIRTIO_VECTOR,
};
use trapline_interface::{IrqId, Vcpu, VcpuId, Vm};
use trapline_monitor::virtio::{Block, Device, Entropy, Memory, Registers};
use trapline_monitor::{run, start, Devices, Platform};

/// Name of the disk and its thread.
const DISK: &str = "disk0";
/// Names of the threads of the cards.
const CARD: &str = "net0";
const SECOND_CARD: &str = "net1";
/// Name of the thread of the entropy device.
const ENTROPY: &str = "entropy";

/// Interrupt of all devices.
const INTERRUPT: IrqId = IrqId {
    vcpu: VcpuId(0),
    vector: VIRTIO_VECTOR,
};

/// The devices of an image. Its functions are cold, so that they are not between those of VMs without devices, whose pages
/// delay the guest's first instruction.
#[derive(Default)]
pub struct ImageDevices {
    disk: Option<Arc<Slot<Block>>>,
    card: Option<Arc<Slot<Card>>>,
    second: Option<Arc<dyn Registers>>,
    entropy: Option<Arc<Slot<Entropy>>>,
    /// Threads that are not started yet.
    workers: Vec<Worker>,
}

impl ImageDevices {
    /// Opens the devices of `config`, of which there is at least one, and adds them to `vm`. They are never freed: the
    /// process ends without.
    ///
    /// # Errors
    /// A file or tap is not usable, the hypervisor refuses, or no engine is available.
    #[cold]
    #[inline(never)]
    pub fn open(
        vm: &impl Vm,
        memory: &Arc<Memory>,
        config: &VmConfig,
    ) -> Result<&'static mut Self, Failure> {
        let mut devices = Self::default();
        if let Some(disk) = config.disks.first() {
            devices.add_disk(vm, memory, disk)?;
        }
        for card in &config.net {
            match &card.source {
                Source::Tap(tap) => devices.add_card(vm, memory, card, tap)?,
                Source::External(other) => devices.add_external(vm, memory, card, other)?,
            }
        }
        if config.entropy {
            devices.add_entropy(vm, memory)?;
        }
        Ok(Box::leak(Box::new(devices)))
    }

    fn add_disk(
        &mut self,
        vm: &impl Vm,
        memory: &Arc<Memory>,
        wanted: &DiskConfig,
    ) -> Result<(), Failure> {
        let file = disk::open(wanted, DISK)?;
        let device = Block::new(file.geometry);
        let slot = slot(vm, DISK_MMIO, memory, device)?;
        let mut workers = disk::worker(wanted, DISK, file, Arc::clone(&slot))?;
        for worker in &mut workers {
            worker.role = match worker.role {
                Role::DiskRing => Role::ImageDiskRing,
                Role::DiskPool => Role::ImageDiskPool,
                role => role,
            };
        }
        self.workers.extend(workers);
        self.disk = Some(slot);
        Ok(())
    }

    fn add_card(
        &mut self,
        vm: &impl Vm,
        memory: &Arc<Memory>,
        spec: &net::Spec,
        source: &TapSource,
    ) -> Result<(), Failure> {
        let tap = Arc::new(Tap::open(source)?);
        let (name, address) = match self.card {
            None => (CARD, NET_MMIO),
            Some(_) => (SECOND_CARD, SWITCH_MMIO),
        };
        let slot = slot(vm, address, memory, Card::new(Arc::clone(&tap), spec.mac))?;
        match self.card {
            None => self.card = Some(Arc::clone(&slot)),
            Some(_) => self.second = Some(Arc::clone(&slot) as _),
        }
        self.workers.push(Worker {
            name: name.to_owned(),
            role: Role::ImageNet,
            work: Box::new(move || net::serve(&slot, &tap)),
        });
        Ok(())
    }

    fn add_entropy(&mut self, vm: &impl Vm, memory: &Arc<Memory>) -> Result<(), Failure> {
        let slot = slot(vm, ENTROPY_MMIO, memory, Entropy)?;
        slot.await_notifications()?;
        self.entropy = Some(Arc::clone(&slot));
        self.workers.push(Worker {
            name: ENTROPY.to_owned(),
            role: Role::ImageEntropy,
            work: Box::new(move || entropy::serve(&slot)),
        });
        Ok(())
    }

    fn add_external(
        &mut self,
        vm: &impl Vm,
        memory: &Arc<Memory>,
        spec: &net::Spec,
        source: &ExternalSource,
    ) -> Result<(), Failure> {
        let (card, backend) = external::connect(source, spec, memory)?;
        let line = match vm.irq_event(INTERRUPT)? {
            Some(line) => line,
            None => vm.irq_line(INTERRUPT)?,
        };
        let slot = Arc::new(Slot::with_line(vm, SWITCH_MMIO, line, memory, card)?);
        let mut link = external::Link::new(backend, &slot, memory, spec.pairs)?;
        self.second = Some(Arc::clone(&slot) as _);
        self.workers.push(Worker {
            name: SECOND_CARD.to_owned(),
            role: match source {
                ExternalSource::VhostUser(_) => Role::ImageNetExternal,
                ExternalSource::VhostNet(_) => Role::NetKernel,
            },
            work: Box::new(move || external::serve(&slot, &mut link)),
        });
        Ok(())
    }

    /// Starts their threads.
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
        let mut platform = WithDevices {
            devices: &mut machine.devices,
            image: self,
        };
        let reason = run(&mut machine.vcpu, &mut platform, &machine.exits);
        machine.devices.shell.console.finish();
        Ok(reason?)
    }

    /// Returns the registers at `address`, with the offset in them.
    #[inline(always)]
    fn registers(&self, address: u64) -> Option<(&dyn Registers, u32)> {
        let offset = |start| {
            let offset = address.wrapping_sub(start);
            (offset < VIRTIO_MMIO_SIZE).then_some(offset as u32)
        };
        if let (Some(disk), Some(offset)) = (&self.disk, offset(DISK_MMIO)) {
            return Some((&**disk, offset));
        }
        if let (Some(card), Some(offset)) = (&self.card, offset(NET_MMIO)) {
            return Some((&**card, offset));
        }
        if let (Some(entropy), Some(offset)) = (&self.entropy, offset(ENTROPY_MMIO)) {
            return Some((&**entropy, offset));
        }
        Some((&**self.second.as_ref()?, offset(SWITCH_MMIO)?))
    }
}

/// Adds a device with its registers at `address`.
fn slot<D: Device>(
    vm: &impl Vm,
    address: u64,
    memory: &Arc<Memory>,
    device: D,
) -> Result<Arc<Slot<D>>, Failure> {
    let line = vm.irq_line(INTERRUPT)?;
    let slot = Slot::with_line(vm, address, line, memory, device)?;
    Ok(Arc::new(slot))
}

/// The devices of a VM with an image.
struct WithDevices<'a> {
    devices: &'a mut Devices<Host>,
    image: &'a ImageDevices,
}

impl Platform for WithDevices<'_> {
    type Shell = Host;

    fn devices(&mut self) -> impl DerefMut<Target = Devices<Host>> {
        &mut *self.devices
    }

    fn read_mmio(&mut self, address: u64, size: u8) -> Option<u64> {
        let (registers, offset) = self.image.registers(address)?;
        Some(registers.read(offset, size))
    }

    fn write_mmio(&mut self, address: u64, size: u8, value: u64) -> Option<()> {
        let (registers, offset) = self.image.registers(address)?;
        registers.write(offset, size, value);
        Some(())
    }
}
