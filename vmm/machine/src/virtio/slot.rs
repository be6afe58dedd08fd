//! One device in the machine.

use super::{Counters, Ram, Registers};
use crate::Failure;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use trapline_interface::{Doorbell, IoAddr, IrqLine, Vm};
use trapline_monitor::boot::acpi;
use trapline_monitor::virtio::{
    Broken, Device, Memory, Outcome, Ring, Served, Transport, QUEUE_NOTIFY,
};

/// A device, its registers, and its ways to and from the guest.
pub struct Slot<D> {
    transport: Mutex<Transport<D>>,
    drained: Condvar,
    /// A vCPU waits for that; written and read while the transport is held.
    draining: AtomicBool,
    ram: Ram,
    pin: IrqLine,
    bell: Doorbell,
    /// What it has done.
    pub counters: Counters,
}

impl<D: Device> Slot<D> {
    /// `device` at `place` in `vm`.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new(
        vm: &impl Vm,
        place: acpi::Transport,
        ram: &Ram,
        device: D,
    ) -> Result<Self, Failure> {
        let notify = u64::from(place.at) + u64::from(QUEUE_NOTIFY);
        let bell = match vm.doorbell(IoAddr::Mmio(notify))? {
            Some(bell) => bell,
            // Then the vCPU rings it.
            None => Doorbell::alone().map_err(Failure::system("make a doorbell"))?,
        };
        Ok(Self {
            transport: Mutex::new(Transport::new(device)),
            drained: Condvar::new(),
            draining: AtomicBool::new(false),
            ram: ram.clone(),
            pin: vm.irq_pin(place.pin)?,
            bell,
            counters: Counters::default(),
        })
    }

    /// Ready to be read when the driver has rung.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.0.as_fd()
    }

    /// Takes note that the driver has rung; true if it has.
    pub fn heard(&self) -> bool {
        let rung = self.bell.take();
        if rung {
            self.counters.wake();
        }
        rung
    }

    /// Has the device's thread look at it, from any thread.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Guest memory.
    pub fn memory(&self) -> &Memory {
        self.ram.memory()
    }

    /// The device, whatever its driver has done.
    pub fn with<T>(&self, work: impl FnOnce(&mut D) -> T) -> T {
        work(self.lock().device())
    }

    /// Serves the device, if its driver is ready, and interrupts where `serve` says so. True
    /// if there is more to be done.
    pub fn serve(
        &self,
        serve: impl FnOnce(&mut D, &mut [Ring], &Memory) -> Result<Served, Broken>,
    ) -> bool {
        let mut transport = self.lock();
        let served = match transport.live() {
            Some((device, rings)) => serve(device, rings, self.ram.memory()),
            None => Ok(Served::default()),
        };
        let served = served.unwrap_or_else(|why| {
            self.counters.fail();
            transport.fail(why);
            Served {
                interrupt: true,
                more: false,
            }
        });
        if served.interrupt && !transport.is_broken() {
            transport.used();
        }
        // Telling takes a system call, whether or not anybody listens.
        if self.draining.load(Ordering::Relaxed) && transport.device().in_flight() == 0 {
            self.drained.notify_all();
        }
        drop(transport);
        if served.interrupt {
            self.interrupt();
        }
        served.more
    }

    /// Changes its configuration, and tells the guest.
    pub fn reconfigure(&self, change: impl FnOnce(&mut D)) {
        self.lock().reconfigure(change);
        self.interrupt();
    }

    /// As a driver begins that chooses these features.
    #[cfg(test)]
    pub(crate) fn started(&self, features: u64) {
        trapline_monitor::virtio::driver::start(&mut self.lock(), self.ram.memory(), features);
        self.ring();
    }

    fn interrupt(&self) {
        self.counters.interrupt();
        // A guest whose interrupt cannot be delivered finds what is there when it looks.
        let _delivered = self.pin.trigger();
    }

    fn lock(&self) -> MutexGuard<'_, Transport<D>> {
        // Who panicked has ended the process.
        self.transport
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody works in the guest's memory any more for the driver that has reset
    /// the device.
    #[inline(never)]
    fn drain(&self, mut transport: MutexGuard<'_, Transport<D>>) {
        while transport.device().in_flight() > 0 {
            self.draining.store(true, Ordering::Relaxed);
            self.bell.ring();
            transport = self
                .drained
                .wait(transport)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.draining.store(false, Ordering::Relaxed);
    }
}

impl<D: Device + Send> Registers for Slot<D> {
    fn read(&self, offset: u32, size: u8) -> u64 {
        self.lock().read(offset, size)
    }

    fn write(&self, offset: u32, size: u8, value: u64) {
        let mut transport = self.lock();
        match transport.write(offset, size, value, self.ram.memory()) {
            Outcome::None => {}
            Outcome::Serve => self.bell.ring(),
            Outcome::Reset => self.drain(transport),
        }
    }
}
