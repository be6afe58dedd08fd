//! Which virtio devices a machine has, and the threads that serve them.

use crate::disk::{self, BadDisk, DiskFile, Wanted};
use crate::net::{self, Card, Tap};
use crate::sandbox::Role;
use crate::virtio::{place, Bus, Counts, Ram, Slot};
use crate::vsock::{self, Door};
use crate::{threads, Failure, Settings};
use std::sync::Arc;
use trapline_interface::Vm;
use trapline_monitor::boot::acpi::Transport;
use trapline_monitor::virtio::vsock::Vsock;
use trapline_monitor::virtio::{Block, Console, Device, Entropy};

/// The devices of one machine.
pub struct Slots {
    /// How vCPUs reach them.
    pub bus: Bus,
    /// The console.
    pub console: Arc<Slot<Console>>,
    /// The source of random numbers.
    pub entropy: Arc<Slot<Entropy>>,
    /// Disks, as they were asked for.
    pub disks: Vec<Arc<Slot<Block>>>,
    /// The network cards.
    pub cards: Vec<Arc<Slot<Card>>>,
    /// Streams to the host.
    pub vsock: Option<Arc<Slot<Vsock>>>,
}

/// A thread that serves a device.
pub struct Worker {
    /// What it is called.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// What it does, until the process ends.
    pub work: Box<dyn FnOnce() + Send>,
}

/// Where the devices that `settings` ask for will be.
///
/// # Errors
/// There are too many.
pub fn places(settings: &Settings) -> Result<Vec<Transport>, Failure> {
    let count = count(settings);
    let places: Option<Vec<_>> = (0..count).map(place).collect();
    let most = crate::virtio::MOST;
    places.ok_or_else(|| {
        Failure::Usage(format!(
            "there are {count} virtio devices, and a machine has room for {most}"
        ))
    })
}

/// A console and a source of random numbers are always there.
fn count(settings: &Settings) -> usize {
    2 + settings.disks.len() + settings.net.len() + usize::from(settings.vsock.is_some())
}

impl Slots {
    /// The devices that `settings` ask for, in `vm`, and threads for those that need one.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new(
        vm: &impl Vm,
        ram: &Ram,
        settings: &Settings,
    ) -> Result<(Self, Vec<Worker>), Failure> {
        let mut bus = Bus::default();
        let mut slots = Self {
            console: add(&mut bus, vm, ram, Console::default())?,
            entropy: add(&mut bus, vm, ram, Entropy)?,
            disks: Vec::new(),
            cards: Vec::new(),
            vsock: None,
            bus,
        };
        let mut workers = Vec::new();
        for (disk, number) in settings.disks.iter().zip(0..) {
            workers.extend(slots.add_disk(vm, ram, disk, number)?);
        }
        for (card, number) in settings.net.iter().zip(0..) {
            workers.push(slots.add_card(vm, ram, card, number)?);
        }
        if let Some(spec) = &settings.vsock {
            workers.push(slots.add_vsock(vm, ram, spec)?);
        }
        Ok((slots, workers))
    }

    /// What each of them has done, by their names.
    pub fn counts(&self) -> Vec<(String, Counts)> {
        let disks = self.disks.iter().map(|disk| &disk.counters).zip(0..);
        let disks = disks.map(|(counters, number)| (format!("disk{number}"), counters));
        let cards = self.cards.iter().map(|card| &card.counters).zip(0..);
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

    /// Streams to the host in the next slot, and who serves them.
    fn add_vsock(
        &mut self,
        vm: &impl Vm,
        ram: &Ram,
        spec: &vsock::Spec,
    ) -> Result<Worker, Failure> {
        let door = Door::open(spec)?;
        let slot = add(&mut self.bus, vm, ram, Vsock::new(spec.cid))?;
        self.vsock = Some(Arc::clone(&slot));
        Ok(Worker {
            name: "vsock".to_owned(),
            role: spec.role(),
            work: Box::new(move || vsock::serve(&slot, &door)),
        })
    }

    /// A network card in the next slot, and who serves it.
    fn add_card(
        &mut self,
        vm: &impl Vm,
        ram: &Ram,
        spec: &net::Spec,
        number: usize,
    ) -> Result<Worker, Failure> {
        let tap = Arc::new(Tap::open(&spec.source)?);
        let card = Card::new(Arc::clone(&tap), spec.mac);
        let slot = add(&mut self.bus, vm, ram, card)?;
        self.cards.push(Arc::clone(&slot));
        Ok(Worker {
            name: format!("net{number}"),
            role: Role::Net,
            work: Box::new(move || net::serve(&slot, &tap)),
        })
    }

    /// A disk in the next slot, and its threads.
    fn add_disk(
        &mut self,
        vm: &impl Vm,
        ram: &Ram,
        wanted: &Wanted,
        number: usize,
    ) -> Result<Vec<Worker>, Failure> {
        let name = format!("disk{number}");
        let bad = |source: BadDisk| Failure::Disk {
            path: wanted.path.clone(),
            source,
        };
        let file = DiskFile::open(wanted).map_err(bad)?;
        if wanted.direct && file.direct.is_none() {
            eprintln!("trapline-vmm: {name}: its filesystem has no O_DIRECT, so it is cached");
        }
        let slot = add(&mut self.bus, vm, ram, Block::new(file.shape))?;
        self.disks.push(Arc::clone(&slot));
        disk::worker(wanted, &name, file, slot).map_err(bad)
    }
}

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    /// There can be no further thread.
    pub fn start(self, sandbox: bool) -> Result<(), Failure> {
        threads::spawn(&self.name, self.role, sandbox, self.work)
    }
}

/// A device in the next slot.
fn add<D: Device + Send + 'static>(
    bus: &mut Bus,
    vm: &impl Vm,
    ram: &Ram,
    device: D,
) -> Result<Arc<Slot<D>>, Failure> {
    let full = || Failure::Usage("there is no room for another virtio device".to_owned());
    let place = bus.next().ok_or_else(full)?;
    let slot = Arc::new(Slot::new(vm, place, ram, device)?);
    bus.add(slot.clone());
    Ok(slot)
}
