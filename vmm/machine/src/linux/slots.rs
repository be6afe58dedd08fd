//! Which virtio devices a machine has, and the threads that serve them.

use crate::sandbox::Role;
use crate::virtio::{place, Bus, Ram, Slot};
use crate::{threads, Failure, Settings};
use std::sync::Arc;
use trapline_boot::acpi::Transport;
use trapline_interface::Vm;
use trapline_virtio::{Console, Device, Entropy};

/// The devices of one machine.
pub struct Slots {
    /// How vCPUs reach them.
    pub bus: Bus,
    /// The console.
    pub console: Arc<Slot<Console>>,
    /// The source of random numbers.
    pub entropy: Arc<Slot<Entropy>>,
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
fn count(_settings: &Settings) -> usize {
    2
}

impl Slots {
    /// The devices that `settings` ask for, in `vm`, and threads for those that need one.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new(
        vm: &impl Vm,
        ram: &Ram,
        _settings: &Settings,
    ) -> Result<(Self, Vec<Worker>), Failure> {
        let mut bus = Bus::default();
        let slots = Self {
            console: add(&mut bus, vm, ram, Console::default())?,
            entropy: add(&mut bus, vm, ram, Entropy)?,
            bus,
        };
        Ok((slots, Vec::new()))
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
