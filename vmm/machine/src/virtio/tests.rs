use super::*;
use std::sync::Arc;
use std::thread;
use trapline_interface::fake::{Fake, FakeVm};
use trapline_interface::{Controllers, Hypervisor, Region, VmSpec};
use trapline_monitor::virtio::driver::{self, Driver};
use trapline_monitor::virtio::{
    slot_resources, Bus, Device, DriverError, Entropy, Registers, QUEUE_NOTIFY,
};

const STATUS: u64 = 0x70;

fn vm() -> FakeVm {
    let spec = VmSpec::with(Controllers::Full);
    Fake::replaying([vec![]]).create_vm(&spec).unwrap()
}

fn ram() -> Arc<Region> {
    Arc::new(Region::new(driver::rings(2) as usize).unwrap())
}

type TestBus = Bus<Arc<dyn Registers + Send + Sync>>;

/// Creates a running device in slot 1.
fn started<D: Device + Send + 'static>(vm: &FakeVm, device: D) -> (TestBus, Arc<Slot<D>>) {
    let (mut bus, ram) = (TestBus::default(), ram());
    let empty = Slot::new(vm, bus.next().unwrap(), &ram, Entropy).unwrap();
    bus.add(Arc::new(empty));
    let slot = Arc::new(Slot::new(vm, bus.next().unwrap(), &ram, device).unwrap());
    bus.add(slot.clone());
    slot.started(0);
    (bus, slot)
}

fn serve(slot: &Slot<Entropy>) -> bool {
    slot.serve(|_, rings, memory| Entropy::serve(rings, memory, &mut |bytes| bytes.fill(9)))
}

#[test]
fn notification_is_served_and_interrupts() {
    let vm = vm();
    let (bus, slot) = started(&vm, Entropy);
    assert!(slot.take_notification() && !slot.take_notification());
    let mut driver = Driver::new(slot.memory(), 0);
    driver.push(&[(0x100, 5, true)]);
    let at = slot_resources(1).unwrap().at;
    bus.write(u64::from(at + QUEUE_NOTIFY), 4, 0).unwrap();
    assert!(slot.take_notification());
    assert!(!serve(&slot));
    assert_eq!(driver.used(), Some((0, 5)));
    assert_eq!(driver.bytes(0x100, 6), [9, 9, 9, 9, 9, 0]);
    assert_eq!((vm.interrupts(), slot.counters.counts().interrupts), (1, 1));
    assert_eq!(bus.read(u64::from(at) + 0x60, 4), Some(1));
    // Nothing to do, nothing said.
    assert!(!serve(&slot));
    assert_eq!(vm.interrupts(), 1);
}

#[test]
fn malformed_ring_sets_needs_reset_once() {
    let vm = vm();
    let (bus, slot) = started(&vm, Entropy);
    let mut driver = Driver::new(slot.memory(), 0);
    driver.offer(u16::MAX);
    assert!(!serve(&slot) && !serve(&slot));
    assert_eq!((vm.interrupts(), slot.counters.counts().failures), (1, 1));
    let status = u64::from(slot_resources(1).unwrap().at) + STATUS;
    assert_eq!(bus.read(status, 4), Some(0x4f));
    bus.write(status, 4, 0).unwrap();
    assert_eq!(bus.read(status, 4), Some(0));
}

/// A device with requests in flight.
#[derive(Default)]
struct Slow {
    in_flight: usize,
}

impl Device for Slow {
    fn kind(&self) -> u32 {
        42
    }
    fn queues(&self) -> &[u16] {
        &[16]
    }
    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

#[test]
fn reset_waits_for_requests_in_flight() {
    let vm = vm();
    let (bus, slot) = started(&vm, Slow::default());
    slot.with(|device| device.in_flight = 1);
    assert!(slot.take_notification());
    let status = u64::from(slot_resources(1).unwrap().at) + STATUS;
    let resetting = thread::spawn(move || bus.write(status, 4, 0));
    while !slot.take_notification() {
        thread::yield_now();
    }
    assert!(!resetting.is_finished());
    slot.serve(|_, _, _| Err::<_, DriverError>(DriverError::Ring));
    assert!(!resetting.is_finished());
    slot.with(|device| device.in_flight = 0);
    slot.serve(|_, _, _| Err::<_, DriverError>(DriverError::Ring));
    assert_eq!(resetting.join().unwrap(), Some(()));
    // The device was not served after the reset.
    assert_eq!(slot.counters.counts().failures, 0);
}
