//! A device with its lock, doorbell and interrupt.

use super::Counters;
use crate::Failure;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use trapline_interface::{Doorbell, IoAddr, IrqLine, Vm};
use trapline_monitor::boot::acpi;
use trapline_monitor::virtio::{
    Device, DriverError, Memory, Outcome, Progress, Registers, Ring, Transport, QUEUE_NOTIFY,
};

/// A device with its registers, lock, doorbell and interrupt.
pub struct Slot<D> {
    transport: Mutex<Transport<D>>,
    settled: Condvar,
    /// A vCPU waits for [`Self::settled`]; accessed with the transport locked.
    settling: AtomicBool,
    memory: Arc<Memory>,
    line: IrqLine,
    bell: Doorbell,
    /// Doorbells of the queues that another process serves.
    queue_bells: Vec<Doorbell>,
    /// Statistics.
    pub counters: Counters,
}

impl<D: Device> Slot<D> {
    /// Creates a slot for `device` at `place` in `vm`.
    ///
    /// # Errors
    /// The hypervisor refuses.
    pub fn new(
        vm: &impl Vm,
        place: acpi::Transport,
        memory: &Arc<Memory>,
        device: D,
    ) -> Result<Self, Failure> {
        Self::with_line(vm, place.at.into(), vm.irq_pin(place.pin)?, memory, device)
    }

    /// Creates a slot for `device` with its registers at `address` in `vm`, and interrupt `line`.
    ///
    /// # Errors
    /// The hypervisor refuses.
    pub fn with_line(
        vm: &impl Vm,
        address: u64,
        line: IrqLine,
        memory: &Arc<Memory>,
        device: D,
    ) -> Result<Self, Failure> {
        let notify = IoAddr::Mmio(address + u64::from(QUEUE_NOTIFY));
        let external = device.external_queues() as u32;
        let bells = (0..external).map(|queue| or_unregistered(vm.value_doorbell(notify, queue)?));
        let queue_bells = bells.collect::<Result<_, Failure>>()?;
        let bell = match external {
            0 => vm.doorbell(notify)?,
            _ => None,
        };
        Ok(Self {
            transport: Mutex::new(Transport::new(device)),
            settled: Condvar::new(),
            settling: AtomicBool::new(false),
            memory: Arc::clone(memory),
            line,
            bell: or_unregistered(bell)?,
            queue_bells,
            counters: Counters::default(),
        })
    }

    /// Descriptors that become readable at notifications of the queues that another process serves.
    pub fn queue_bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queue_bells.iter().map(|bell| bell.0.as_fd())
    }

    /// Eventfd of which a write interrupts the guest, if the hypervisor has one.
    pub fn interrupt_event(&self) -> Option<BorrowedFd<'_>> {
        self.line.event()
    }

    /// Descriptor that becomes readable at a notification.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.0.as_fd()
    }

    /// Makes [`Self::take_notification`] wait for one, for a thread that waits for nothing else.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn await_notifications(&self) -> Result<(), Failure> {
        let blocking = self.bell.make_blocking();
        blocking.map_err(Failure::system("make a doorbell block"))
    }

    /// Clears the doorbell; returns true if it was rung.
    pub fn take_notification(&self) -> bool {
        let rung = self.bell.take();
        if rung {
            self.counters.wake();
        }
        rung
    }

    /// Wakes the device's thread.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Guest memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Runs `work` on the device in any state.
    pub fn with<T>(&self, work: impl FnOnce(&mut D) -> T) -> T {
        work(self.lock().device())
    }

    /// Serves the device if it is running, and interrupts the guest if required. Returns true if more work is pending.
    pub fn serve(
        &self,
        serve: impl FnOnce(&mut D, &mut [Ring], &Memory) -> Result<Progress, DriverError>,
    ) -> bool {
        let mut transport = self.lock();
        let served = match transport.live() {
            Some((device, rings)) => serve(device, rings, &self.memory),
            None => Ok(Progress::default()),
        };
        let served = served.unwrap_or_else(|why| {
            self.counters.fail();
            transport.fail(why);
            Progress {
                interrupt: true,
                more: false,
            }
        });
        if served.interrupt && !transport.is_broken() {
            transport.used();
        }
        // `notify_all` is a system call even without a waiter.
        if self.settling.load(Ordering::Relaxed) {
            self.settled.notify_all();
        }
        drop(transport);
        if served.interrupt {
            self.interrupt();
        }
        served.more
    }

    /// Changes the configuration and interrupts the guest.
    pub fn reconfigure(&self, change: impl FnOnce(&mut D)) {
        self.lock().reconfigure(change);
        self.interrupt();
    }

    /// Starts the device with these features.
    #[cfg(test)]
    pub(crate) fn started(&self, features: u64) {
        trapline_monitor::virtio::driver::start(&mut self.lock(), &self.memory, features);
        self.ring();
    }

    /// Interrupts the guest.
    pub fn interrupt(&self) {
        self.counters.interrupt();
        // Without the interrupt the guest can still poll.
        let _delivered = self.line.trigger();
    }

    fn lock(&self) -> MutexGuard<'_, Transport<D>> {
        // A panic ends the process.
        self.transport
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the device's thread has ended this state.
    #[inline(never)]
    fn settle(&self, mut transport: MutexGuard<'_, Transport<D>>, state: fn(&D) -> bool) {
        while state(transport.device()) {
            self.settling.store(true, Ordering::Relaxed);
            self.bell.ring();
            transport = self
                .settled
                .wait(transport)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.settling.store(false, Ordering::Relaxed);
    }
}

impl<D: Device + Send> Registers for Slot<D> {
    fn read(&self, offset: u32, size: u8) -> u64 {
        self.lock().read(offset, size)
    }

    fn write(&self, offset: u32, size: u8, value: u64) {
        let mut transport = self.lock();
        match transport.write(offset, size, value, &self.memory) {
            Outcome::None => {}
            Outcome::Notify(queue) => self.queue_bells.get(queue).unwrap_or(&self.bell).ring(),
            Outcome::Start => {
                self.bell.ring();
                // Another process that serves the queues has them when the driver continues.
                self.settle(transport, D::is_starting);
            }
            Outcome::Reset => self.settle(transport, |device| device.in_flight() > 0),
        }
    }
}

/// Returns the doorbell, or one that the vCPU rings at the register write.
fn or_unregistered(bell: Option<Doorbell>) -> Result<Doorbell, Failure> {
    match bell {
        Some(bell) => Ok(bell),
        None => Doorbell::unregistered().map_err(Failure::system("make a doorbell")),
    }
}
