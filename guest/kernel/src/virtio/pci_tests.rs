//! The driver of a disk over an imitated PCI transport, in front of the device of `fake`.

use super::disk::Disk;
use super::doorbell::{self, Notified};
use super::fake::{Config, Fake, Lie};
use super::fake_memory::Memory;
use super::pci::{registers, Bus, Pci};
use super::ring::BYTES;
use super::transfer::{needed, Target};
use super::transport::{self, Access, ENTROPY};
use crate::pci::{Device, Function, Structures, MSI_X_ENTRY};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::vec::Vec;
use trapline_abi::block::{DiskRequest, Transfer};
use trapline_abi::{Job, Op};
use trapline_workloads::Reason;

const COMMON: u64 = 0xc000_1000;
const NOTIFY: u64 = 0xc000_3000;
const CONFIGURATION: u64 = 0xc000_2000;
const MESSAGE: u64 = 0xc000_0000;

const STRUCTURES: Structures = Structures {
    common: COMMON,
    notify: (NOTIFY, 0x1000),
    multiplier: 4,
    device: (CONFIGURATION, 8),
    message: Some(MESSAGE),
};

/// Fields of the common configuration with vectors, and value for no vector.
const VECTORS: [u64; 2] = [COMMON + 0x10, COMMON + 0x1a];
const NO_VECTOR: u16 = 0xffff;

/// State of the transport.
#[derive(Default)]
struct State {
    /// The device has no resources for vectors.
    refuses_vectors: Cell<bool>,
    /// Nothing answers reads of 32 bits.
    is_absent: Cell<bool>,
    /// Distance of notifications in units of the multiplier.
    distance: Cell<u16>,
    queue: Cell<u16>,
    vectors: Cell<[u16; 2]>,
    message: RefCell<Vec<(u64, u32)>>,
}

#[derive(Clone)]
struct FakeBus {
    device: Fake,
    state: Rc<State>,
}

impl FakeBus {
    fn new(config: Config) -> Self {
        let state = State::default();
        state.distance.set(2);
        let (device, state) = (Fake::new(config), Rc::new(state));
        Self { device, state }
    }
}

/// Returns the register of virtio-mmio with the same meaning as a field of 32 bits.
fn register(address: u64) -> u64 {
    match address {
        CONFIGURATION..NOTIFY => transport::CONFIGURATION + address - CONFIGURATION,
        _ => match address - COMMON {
            0x00 => transport::DEVICE_FEATURES_SEL,
            0x04 => transport::DEVICE_FEATURES,
            0x08 => transport::DRIVER_FEATURES_SEL,
            0x0c => transport::DRIVER_FEATURES,
            field @ 0x20..0x38 => transport::QUEUE_AREAS[(field as usize - 0x20) / 8] + field % 8,
            field => panic!("not a field of 32 bits: {field:#x}"),
        },
    }
}

impl Bus for FakeBus {
    fn read8(&self, address: u64) -> u8 {
        match address - COMMON {
            0x14 => self.device.read(transport::STATUS) as u8,
            0x15 => self.device.read(transport::CONFIG_GENERATION) as u8,
            field => panic!("not a field of 8 bits: {field:#x}"),
        }
    }

    fn read16(&self, address: u64) -> u16 {
        let [configuration, queue] = self.state.vectors.get();
        match address - COMMON {
            0x10 => configuration,
            0x18 => self.device.read(transport::QUEUE_SIZE_MAX) as u16,
            0x1a => queue,
            0x1e => self.state.queue.get() * self.state.distance.get(),
            field => panic!("not a field of 16 bits: {field:#x}"),
        }
    }

    fn read32(&self, address: u64) -> u32 {
        if self.state.is_absent.get() {
            u32::MAX
        } else {
            self.device.read(register(address))
        }
    }

    fn write8(&self, address: u64, value: u8) {
        assert_eq!(address, COMMON + 0x14);
        self.device.write(transport::STATUS, value.into());
    }

    fn write16(&self, address: u64, value: u16) {
        if VECTORS.contains(&address) {
            let refuses = self.state.refuses_vectors.get();
            let kept = if refuses { NO_VECTOR } else { value };
            self.state.vectors.set([kept; 2]);
            return;
        }
        match address {
            NOTIFY.. => {
                let distance = u64::from(4 * self.state.distance.get());
                assert_eq!(address, NOTIFY + u64::from(value) * distance);
                self.device.write(transport::QUEUE_NOTIFY, value.into());
            }
            _ => match address - COMMON {
                0x16 => self.state.queue.set(value),
                0x18 => self.device.write(transport::QUEUE_SIZE, value.into()),
                0x1c => self.device.write(transport::QUEUE_READY, value.into()),
                field => panic!("not a field of 16 bits: {field:#x}"),
            },
        }
    }

    fn write32(&self, address: u64, value: u32) {
        if (MESSAGE..MESSAGE + MSI_X_ENTRY).contains(&address) {
            self.state.message.borrow_mut().push((address, value));
            return;
        }
        self.device.write(register(address), value);
    }

    fn interrupts(&self) -> u64 {
        self.device.interrupts()
    }

    fn end_interrupt(&self) {}

    fn polls(&self) -> bool {
        self.device.polls()
    }

    fn wait(&self, _: bool, seen: u64, begun: u64) -> Result<(), Reason> {
        self.device.clone().wait(seen, begun)
    }
}

fn pci(bus: FakeBus, structures: Structures) -> Result<Pci<FakeBus>, Reason> {
    let device = Device {
        function: Function::default(),
        kind: bus.device.read(transport::DEVICE_ID),
    };
    Pci::new(bus, device, structures, 0x34)
}

/// Performs a transfer. Returns its requests and whether they were polled.
fn run(bus: &FakeBus, op: Op) -> Result<(Vec<DiskRequest>, bool), Reason> {
    let job = Job {
        run: op.into(),
        disk_mib: 2,
        requests: 256,
        ..Job::EMPTY
    };
    let bytes = needed(&job);
    let memory = [Memory::new(BYTES), Memory::new(bytes)];
    let pci = pci(bus.clone(), STRUCTURES)?;
    // SAFETY: the memory is exclusive and outlives the target.
    let mut target = unsafe {
        let disk = Disk::start(pci, memory[0].start)?;
        Target::new(disk, memory[1].start, bytes, &job)?
    };
    let transfer = Transfer::from_op(op).unwrap();
    let mut slots = vec![DiskRequest::default(); transfer.requests(&job) as usize];
    let made = target.transfer(&transfer, &job, &mut slots)?;
    target.read_back(&transfer, &job, made)?;
    slots.truncate(made);
    Ok((slots, target.polls()))
}

#[test]
fn every_transfer_is_completed_over_pci() {
    for polls in [false, true] {
        for transfer in Transfer::ALL {
            let bus = FakeBus::new(Config {
                polls,
                ..Config::default()
            });
            let (made, is_polled) = run(&bus, transfer.op).unwrap();
            assert!(!made.is_empty());
            assert_eq!(is_polled, polls);
            let entry = [0xfee0_0000, 0, 0x34, 0];
            let expected = entry.map(|field| if polls { None } else { Some(field) });
            let written = bus.state.message.borrow();
            let written: Vec<_> = written.iter().map(|(_, field)| *field).collect();
            assert_eq!(written, expected.into_iter().flatten().collect::<Vec<_>>());
        }
    }
}

#[test]
fn notifications_over_pci_are_answered() {
    let bus = FakeBus::new(Config {
        kind: ENTROPY,
        polls: true,
        ..Config::default()
    });
    let pci = pci(bus.clone(), STRUCTURES).unwrap();
    let doorbell = pci.doorbell();
    assert_eq!((doorbell.address, doorbell.is_narrow), (NOTIFY, true));
    let memory = Memory::new(doorbell::BYTES);
    // SAFETY: the memory is exclusive and outlives the device.
    let mut device = unsafe { Notified::start(pci, memory.start) }.unwrap();
    bus.write16(doorbell.address, 0);
    device.check().unwrap();
    assert_eq!(bus.device.counts().notifications, 2);
}

#[test]
fn completions_are_polled_without_resources_for_an_interrupt() {
    let bus = FakeBus::new(Config {
        polls: false,
        ..Config::default()
    });
    bus.state.refuses_vectors.set(true);
    assert!(run(&bus, Op::Read4k1).unwrap().1);
    let without = Structures {
        message: None,
        ..STRUCTURES
    };
    assert!(pci(bus, without).unwrap().polls());
}

#[test]
fn notifications_beyond_their_structure_are_rejected() {
    let bus = FakeBus::new(Config::default());
    for (distance, is_valid) in [(0x3ff, true), (0x400, false), (u16::MAX, false)] {
        bus.state.distance.set(distance);
        let result = pci(bus.clone(), STRUCTURES);
        assert_eq!(result.is_ok(), is_valid, "{distance:#x}");
    }
}

#[test]
fn device_that_needs_a_reset_is_reported() {
    let bus = FakeBus::new(Config {
        lie: Lie::Broken,
        ..Config::default()
    });
    let reason = run(&bus, Op::Read4k1).unwrap_err();
    assert_eq!(reason, "the device reports an error of the driver");
}

#[test]
fn registers_for_operations_need_a_modern_device() {
    let found = registers(&FakeBus::new(Config::default()), STRUCTURES).unwrap();
    let (features, selector) = (COMMON + 4, COMMON);
    assert_eq!((found.selector, found.features), (selector, features));
    let legacy = Config {
        features: 1 << 9,
        ..Config::default()
    };
    assert!(registers(&FakeBus::new(legacy), STRUCTURES).is_err());
    let absent = FakeBus::new(Config::default());
    absent.state.is_absent.set(true);
    let reason = registers(&absent, STRUCTURES).unwrap_err();
    assert!(reason.contains("does not answer"), "{reason}");
}

#[test]
fn configuration_beyond_its_end_is_zero() {
    let bus = FakeBus::new(Config::default());
    let pci = pci(bus, STRUCTURES).unwrap();
    let read = |offset| pci.read(transport::CONFIGURATION + offset);
    assert_eq!((read(0), read(8)), (2 << 11, 0));
}
