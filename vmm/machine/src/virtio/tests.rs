use super::*;
use std::thread;
use trapline_interface::fake::{Fake, FakeVm};
use trapline_interface::{Controllers, Hypervisor, VmSpec};
use trapline_monitor::virtio::driver::{self, Driver};
use trapline_monitor::virtio::{Broken, Device, Entropy, QUEUE_NOTIFY};

const STATUS: u64 = 0x70;

fn vm() -> FakeVm {
    let spec = VmSpec::with(Controllers::Full);
    Fake::replaying([vec![]]).create_vm(&spec).unwrap()
}

fn ram() -> Ram {
    Ram::of(Arc::new(Region::new(driver::rings(2) as usize).unwrap()))
}

/// A device in slot 1 whose driver is ready.
fn started<D: Device + Send + 'static>(vm: &FakeVm, device: D) -> (Bus, Arc<Slot<D>>) {
    let (mut bus, ram) = (Bus::default(), ram());
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
fn a_driver_rings_is_served_and_is_interrupted() {
    let vm = vm();
    let (bus, slot) = started(&vm, Entropy);
    assert!(slot.heard() && !slot.heard());
    let mut driver = Driver::new(slot.memory(), 0);
    driver.push(&[(0x100, 5, true)]);
    let at = bus.places()[1].at;
    bus.write(u64::from(at + QUEUE_NOTIFY), 4, 0).unwrap();
    assert!(slot.heard());
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
fn a_driver_that_makes_no_sense_is_told_so_once() {
    let vm = vm();
    let (bus, slot) = started(&vm, Entropy);
    let mut driver = Driver::new(slot.memory(), 0);
    driver.offer(u16::MAX);
    assert!(!serve(&slot) && !serve(&slot));
    assert_eq!((vm.interrupts(), slot.counters.counts().failures), (1, 1));
    let status = u64::from(bus.places()[1].at) + STATUS;
    assert_eq!(bus.read(status, 4), Some(0x4f));
    bus.write(status, 4, 0).unwrap();
    assert_eq!(bus.read(status, 4), Some(0));
}

#[test]
fn places_do_not_overlap_and_end() {
    let places: Vec<_> = (0..MOST).map(|number| place(number).unwrap()).collect();
    assert_eq!(place(MOST), None);
    for pair in places.windows(2) {
        assert_eq!(pair[0].at + pair[0].size, pair[1].at);
        assert_ne!(pair[0].pin, pair[1].pin);
    }
    let (bus, end) = (Bus::default(), VIRTIO_MMIO + 0x200);
    for at in [0, VIRTIO_MMIO - 1, VIRTIO_MMIO, end, u64::MAX] {
        assert_eq!((bus.read(at, 4), bus.write(at, 4, 0)), (None, None));
    }
}

/// A device whose requests take their time.
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
fn a_reset_waits_for_what_is_in_flight() {
    let vm = vm();
    let (bus, slot) = started(&vm, Slow::default());
    slot.with(|device| device.in_flight = 1);
    assert!(slot.heard());
    let status = u64::from(bus.places()[1].at) + STATUS;
    let resetting = thread::spawn(move || bus.write(status, 4, 0));
    while !slot.heard() {
        thread::yield_now();
    }
    assert!(!resetting.is_finished());
    slot.serve(|_, _, _| Err::<_, Broken>(Broken::Ring));
    assert!(!resetting.is_finished());
    slot.with(|device| device.in_flight = 0);
    slot.serve(|_, _, _| Err::<_, Broken>(Broken::Ring));
    assert_eq!(resetting.join().unwrap(), Some(()));
    // It was not served any more: there was nobody to serve.
    assert_eq!(slot.counters.counts().failures, 0);
}
