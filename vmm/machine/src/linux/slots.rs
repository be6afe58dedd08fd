//! The virtio devices of a VM and their threads.

use crate::disk::{self, DiskConfig};
use crate::net::{self, external, Card, ExternalCard, Source, Tap};
use crate::sandbox::Role;
use crate::threads::Worker;
use crate::virtio::{Counters, Counts, Slot};
use crate::vsock::{self, Listening};
use crate::{Failure, VmConfig};
use std::sync::Arc;
use trapline_interface::Vm;
use trapline_monitor::boot::acpi::Transport;
use trapline_monitor::virtio::vsock::Vsock;
use trapline_monitor::virtio::{
    slot_resources, Block, Bus, Console, Device, Entropy, Memory, Registers, MAX_SLOTS,
};

/// The devices of one VM.
pub struct Slots {
    /// Address decoding.
    pub bus: Bus<AnySlot>,
    /// Console.
    pub console: Arc<Slot<Console>>,
    /// Entropy source.
    pub entropy: Arc<Slot<Entropy>>,
    /// Disks, in command-line order.
    pub disks: Vec<Arc<Slot<Block>>>,
    /// Network cards, in command-line order.
    pub cards: Vec<AnySlot>,
    /// Vsock device.
    pub vsock: Option<Arc<Slot<Vsock>>>,
}

/// A device of any type, dispatched statically.
#[derive(Clone)]
#[allow(missing_docs)]
pub enum AnySlot {
    Console(Arc<Slot<Console>>),
    Entropy(Arc<Slot<Entropy>>),
    Disk(Arc<Slot<Block>>),
    Net(Arc<Slot<Card>>),
    NetExternal(Arc<Slot<ExternalCard>>),
    Vsock(Arc<Slot<Vsock>>),
}

macro_rules! any_slot {
    ($($variant:ident: $device:ty),*) => {
        impl Registers for AnySlot {
            fn read(&self, offset: u32, size: u8) -> u64 {
                match self { $(Self::$variant(slot) => slot.read(offset, size)),* }
            }

            fn write(&self, offset: u32, size: u8, value: u64) {
                match self { $(Self::$variant(slot) => slot.write(offset, size, value)),* }
            }
        }

        impl AnySlot {
            fn counters(&self) -> &Counters {
                match self { $(Self::$variant(slot) => &slot.counters),* }
            }
        }

        $(impl From<Arc<Slot<$device>>> for AnySlot {
            fn from(slot: Arc<Slot<$device>>) -> Self {
                Self::$variant(slot)
            }
        })*
    };
}

any_slot!(Console: Console, Entropy: Entropy, Disk: Block, Net: Card, NetExternal: ExternalCard, Vsock: Vsock);

/// Returns the MMIO slots of all devices in `settings`.
///
/// # Errors
/// Too many devices.
pub fn places(settings: &VmConfig) -> Result<Vec<Transport>, Failure> {
    let count = count(settings);
    let places: Option<Vec<_>> = (0..count).map(slot_resources).collect();
    places.ok_or_else(|| {
        Failure::Usage(format!(
            "{count} virtio devices exceed the limit of {MAX_SLOTS}"
        ))
    })
}

/// Number of devices. Console and entropy source always exist.
fn count(settings: &VmConfig) -> usize {
    2 + settings.disks.len() + settings.net.len() + usize::from(settings.vsock.is_some())
}

impl Slots {
    /// Creates the devices of `settings` in `vm`, and their threads.
    ///
    /// # Errors
    /// The hypervisor refuses.
    pub fn new(
        vm: &impl Vm,
        memory: &Arc<Memory>,
        settings: &VmConfig,
    ) -> Result<(Self, Vec<Worker>), Failure> {
        let mut bus = Bus::default();
        let mut slots = Self {
            console: add(&mut bus, vm, memory, Console::default())?,
            entropy: add(&mut bus, vm, memory, Entropy)?,
            disks: Vec::new(),
            cards: Vec::new(),
            vsock: None,
            bus,
        };
        let mut workers = Vec::new();
        for (disk, number) in settings.disks.iter().zip(0..) {
            workers.extend(slots.add_disk(vm, memory, disk, number)?);
        }
        for (card, number) in settings.net.iter().zip(0..) {
            workers.push(slots.add_card(vm, memory, card, number)?);
        }
        if let Some(spec) = &settings.vsock {
            workers.push(slots.add_vsock(vm, memory, spec)?);
        }
        Ok((slots, workers))
    }

    /// Returns the counters of each device, by name.
    pub fn counts(&self) -> Vec<(String, Counts)> {
        let disks = self.disks.iter().map(|disk| &disk.counters).zip(0..);
        let disks = disks.map(|(counters, number)| (format!("disk{number}"), counters));
        let cards = self.cards.iter().map(AnySlot::counters).zip(0..);
        let cards = cards.map(|(counters, number)| (format!("net{number}"), counters));
        let small = [
            ("console".to_owned(), &self.console.counters),
            ("entropy".to_owned(), &self.entropy.counters),
        ];
        let vsock = self.vsock.iter();
        let vsock = vsock.map(|slot| ("vsock".to_owned(), &slot.counters));
        let all = small.into_iter().chain(disks).chain(cards).chain(vsock);
        all.map(|(name, counters)| (name, counters.counts()))
            .collect()
    }

    /// Adds a vsock device.
    fn add_vsock(
        &mut self,
        vm: &impl Vm,
        memory: &Arc<Memory>,
        spec: &vsock::Spec,
    ) -> Result<Worker, Failure> {
        let listening = Listening::open(spec)?;
        let slot = add(&mut self.bus, vm, memory, Vsock::new(spec.cid))?;
        self.vsock = Some(Arc::clone(&slot));
        Ok(Worker {
            name: "vsock".to_owned(),
            role: spec.role(),
            work: Box::new(move || vsock::serve(&slot, &listening)),
        })
    }

    /// Adds a network card.
    fn add_card(
        &mut self,
        vm: &impl Vm,
        memory: &Arc<Memory>,
        spec: &net::Spec,
        number: usize,
    ) -> Result<Worker, Failure> {
        let name = format!("net{number}");
        match &spec.source {
            Source::Tap(source) => {
                let tap = Arc::new(Tap::open(source)?);
                let card = Card::new(Arc::clone(&tap), spec.mac);
                let slot = add(&mut self.bus, vm, memory, card)?;
                self.cards.push(Arc::clone(&slot).into());
                Ok(Worker {
                    name,
                    role: Role::Net,
                    work: Box::new(move || net::serve(&slot, &tap)),
                })
            }
            Source::External(source) => {
                let (card, backend) = external::connect(source, spec, memory)?;
                let slot = add(&mut self.bus, vm, memory, card)?;
                self.cards.push(Arc::clone(&slot).into());
                let mut link = external::Link::new(backend, &slot, memory, spec.pairs)?;
                Ok(Worker {
                    name,
                    role: if spec.is_of_process() {
                        Role::NetExternal
                    } else {
                        Role::NetKernel
                    },
                    work: Box::new(move || external::serve(&slot, &mut link)),
                })
            }
        }
    }

    /// Adds a disk.
    fn add_disk(
        &mut self,
        vm: &impl Vm,
        memory: &Arc<Memory>,
        wanted: &DiskConfig,
        number: usize,
    ) -> Result<Vec<Worker>, Failure> {
        let name = format!("disk{number}");
        let file = disk::open(wanted, &name)?;
        let slot = add(&mut self.bus, vm, memory, Block::new(file.geometry))?;
        self.disks.push(Arc::clone(&slot));
        disk::worker(wanted, &name, file, slot)
    }
}

/// Adds a device in the next slot.
fn add<D: Device>(
    bus: &mut Bus<AnySlot>,
    vm: &impl Vm,
    memory: &Arc<Memory>,
    device: D,
) -> Result<Arc<Slot<D>>, Failure>
where
    AnySlot: From<Arc<Slot<D>>>,
{
    let full = || Failure::Usage("too many virtio devices".to_owned());
    let place = bus.next().ok_or_else(full)?;
    let slot = Arc::new(Slot::new(vm, place, memory, device)?);
    bus.add(AnySlot::from(Arc::clone(&slot)));
    Ok(slot)
}
