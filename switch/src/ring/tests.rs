//! Queues with valid and invalid descriptors, and with random ones.

use super::*;
use crate::driver::{memory_file, Driver, PackedDriver, SplitDriver};
use crate::memory::Spec;
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

const SIZE: u16 = 8;
const GUEST: u64 = 0x10_0000;
const LENGTH: u64 = 0x1_0000;
/// Offset of buffers.
const BUFFERS: u64 = 0x8000;

/// A queue at the start of a guest's memory, and the file of that.
struct Setup {
    file: File,
    memory: Memory,
    ring: Ring,
    is_packed: bool,
    segments: Vec<Segment>,
}

impl Setup {
    fn new(is_packed: bool) -> Self {
        let file = memory_file(LENGTH).unwrap();
        let spec = Spec {
            guest: GUEST,
            size: LENGTH,
            user: 0,
            offset: 0,
        };
        let memory = Memory::new(&[(spec, file.try_clone().unwrap())]).unwrap();
        let [driver, device, _] = if is_packed {
            PackedDriver::layout(SIZE)
        } else {
            SplitDriver::layout(SIZE)
        };
        let at = Addresses {
            descriptors: 0,
            driver,
            device,
        };
        let ring = if is_packed {
            Ring::Packed(Packed::new(&memory, SIZE.into(), &at, 0x8000).unwrap())
        } else {
            Ring::Split(Split::new(&memory, SIZE.into(), &at, 0, false).unwrap())
        };
        Self {
            file,
            memory,
            ring,
            is_packed,
            segments: Vec::new(),
        }
    }

    fn driver(&self) -> Box<dyn Driver> {
        let start = self.memory.user(0, LENGTH, 16).unwrap();
        // SAFETY: the queue is at the start of memory that lives longer than the driver.
        unsafe {
            if self.is_packed {
                Box::new(PackedDriver::new(start, SIZE))
            } else {
                Box::new(SplitDriver::new(start, SIZE))
            }
        }
    }

    /// Writes a descriptor of a split queue.
    fn split(&self, index: u64, address: u64, length: u32, flags: u16, next: u16) {
        self.write(16 * index, address, length, flags, next);
    }

    /// Offers a buffer of one descriptor.
    fn one(&self, length: u32, flags: u16, next: u16) {
        self.split(0, GUEST, length, flags, next);
        self.offer(1, &[0]);
    }

    /// Offers a table of one descriptor.
    fn table(&self, flags: u16) {
        self.split(0, GUEST + BUFFERS, 16, INDIRECT, 0);
        self.write(BUFFERS, GUEST, 16, flags, 0);
        self.offer(1, &[0]);
    }

    fn write(&self, at: u64, address: u64, length: u32, first: u16, second: u16) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(first.to_le_bytes());
        bytes.extend(second.to_le_bytes());
        self.file.write_all_at(&bytes, at).unwrap();
    }

    /// Makes buffers of a split queue available.
    fn offer(&self, index: u16, heads: &[u16]) {
        let [available, ..] = SplitDriver::layout(SIZE);
        for (slot, head) in (0..).zip(heads) {
            let at = available + 4 + 2 * slot;
            self.file.write_all_at(&head.to_le_bytes(), at).unwrap();
        }
        self.file
            .write_all_at(&index.to_le_bytes(), available + 2)
            .unwrap();
    }

    fn take(&mut self) -> Result<Option<Chain>, Fault> {
        self.segments.clear();
        self.ring
            .take(&self.memory, Direction::Readable, &mut self.segments)
    }
}

#[test]
fn buffers_go_around_in_both_formats() {
    for is_packed in [false, true] {
        let mut setup = Setup::new(is_packed);
        let mut driver = setup.driver();
        assert_eq!(setup.take().unwrap().map(|it| it.id), None);
        for round in 0..100_u32 {
            for id in [3, 1, 2] {
                driver.add(id, GUEST + BUFFERS + u64::from(id), 10 + round, false);
            }
            driver.publish();
            let mut taken = Vec::new();
            while let Some(chain) = setup.take().unwrap() {
                assert_eq!(
                    (chain.length, chain.of(&setup.segments).len()),
                    (10 + round, 1)
                );
                taken.push(chain);
            }
            assert_eq!(taken.iter().map(|it| it.id).collect::<Vec<_>>(), [3, 1, 2]);
            assert!(driver.next().is_none());
            for chain in &taken {
                setup.ring.give(chain, round);
            }
            assert!(setup.ring.publish(), "the driver has to be notified");
            assert!(!setup.ring.publish(), "nothing new");
            for id in [3, 1, 2] {
                let returned = driver.next().unwrap();
                assert_eq!((returned.id, returned.written), (id, round));
            }
            assert!(driver.next().is_none());
        }
    }
}

#[test]
fn ring_continues_at_its_base() {
    for is_packed in [false, true] {
        let mut setup = Setup::new(is_packed);
        let mut driver = setup.driver();
        for _ in 0..11 {
            driver.add(0, GUEST + BUFFERS, 1, false);
            driver.publish();
            let chain = setup.take().unwrap().unwrap();
            setup.ring.give(&chain, 0);
            setup.ring.publish();
            driver.next().unwrap();
        }
        let base = setup.ring.base();
        let [available, device, _] = if is_packed {
            PackedDriver::layout(SIZE)
        } else {
            SplitDriver::layout(SIZE)
        };
        let at = Addresses {
            descriptors: 0,
            driver: available,
            device,
        };
        setup.ring = if is_packed {
            Ring::Packed(Packed::new(&setup.memory, SIZE.into(), &at, base).unwrap())
        } else {
            Ring::Split(Split::new(&setup.memory, SIZE.into(), &at, base, false).unwrap())
        };
        assert!(setup.take().unwrap().is_none());
        driver.add(5, GUEST + BUFFERS, 1, false);
        driver.publish();
        let mark = setup.ring.mark();
        assert_eq!(setup.take().unwrap().unwrap().id, 5);
        setup.ring.rewind(mark);
        assert_eq!(setup.take().unwrap().unwrap().id, 5);
    }
}

#[test]
fn wish_for_notifications_is_told_to_the_driver() {
    for is_packed in [false, true] {
        let mut setup = Setup::new(is_packed);
        let driver = setup.driver();
        for wish in [false, true, false] {
            setup.ring.set_notifications(wish);
            assert_eq!(driver.wants_notification(), wish);
        }
    }
}

/// A queue that is not valid.
type Preparation = fn(&Setup);

const INVALID: [(&str, Preparation, Fault); 9] = [
    ("index", |it| it.offer(SIZE + 1, &[0]), Fault::Index),
    ("backwards", |it| it.offer(u16::MAX, &[0]), Fault::Index),
    ("head", |it| it.offer(1, &[SIZE]), Fault::Descriptor),
    ("next", |it| it.one(1, NEXT, SIZE), Fault::Descriptor),
    (
        "address",
        |it| it.one(LENGTH as u32 + 1, 0, 0),
        Fault::Address,
    ),
    ("direction", |it| it.one(1, WRITE, 0), Fault::Direction),
    ("cycle", |it| it.one(1, NEXT, 0), Fault::Length),
    ("nested", |it| it.table(INDIRECT), Fault::Indirect),
    ("cycle in a table", |it| it.table(NEXT), Fault::Length),
];

#[test]
fn driver_is_notified_at_its_event_and_notifies_at_that_of_the_device() {
    let mut setup = Setup::new(false);
    let [available, used, _] = SplitDriver::layout(SIZE);
    let at = Addresses {
        descriptors: 0,
        driver: available,
        device: used,
    };
    let ring = Split::new(&setup.memory, SIZE.into(), &at, 0, true);
    setup.ring = Ring::Split(ring.unwrap());
    let mut driver = setup.driver();
    let mut position = 0_u16;
    for (event, count, is_notified) in [(0, 1, true), (3, 2, false), (3, 2, true), (9, 4, false)] {
        let event_at = available + 4 + 2 * u64::from(SIZE);
        setup
            .file
            .write_all_at(&u16::to_le_bytes(event), event_at)
            .unwrap();
        for _ in 0..count {
            driver.add(0, GUEST + BUFFERS, 1, false);
            driver.publish();
            let chain = setup.take().unwrap().unwrap();
            setup.ring.give(&chain, 0);
        }
        position += count;
        assert_eq!(setup.ring.publish(), is_notified, "{event} at {position}");
        setup.ring.set_notifications(true);
        let mut wanted = [0; 2];
        let wanted_at = used + 4 + 8 * u64::from(SIZE);
        setup.file.read_exact_at(&mut wanted, wanted_at).unwrap();
        assert_eq!(u16::from_le_bytes(wanted), position);
    }
}

#[test]
fn invalid_split_queues_are_faults() {
    for (name, prepare, fault) in INVALID {
        let mut setup = Setup::new(false);
        prepare(&setup);
        assert_eq!(setup.take().err(), Some(fault), "{name}");
    }
}

#[test]
fn indirect_tables_are_read_in_both_formats() {
    for is_packed in [false, true] {
        let mut setup = Setup::new(is_packed);
        let table = GUEST + BUFFERS;
        if is_packed {
            setup.write(BUFFERS, GUEST, 5, 0, 0);
            setup.write(BUFFERS + 16, GUEST + 9, 6, 0, 0);
            setup.write(0, table, 32, 0, INDIRECT | 1 << 7);
        } else {
            setup.split(0, table, 32, INDIRECT, 0);
            setup.write(BUFFERS, GUEST, 5, NEXT, 1);
            setup.write(BUFFERS + 16, GUEST + 9, 6, 0, 0);
            setup.offer(1, &[0]);
        }
        let chain = setup.take().unwrap().unwrap();
        assert_eq!((chain.length, chain.of(&setup.segments).len()), (11, 2));
    }
}

#[test]
fn queues_that_do_not_fit_are_refused() {
    let setup = Setup::new(false);
    let at = |descriptors, driver, device| Addresses {
        descriptors,
        driver,
        device,
    };
    let split = |size, at| Split::new(&setup.memory, size, &at, 0, false).is_some();
    assert!(split(8, at(0, 0x1000, 0x2000)));
    for (size, at) in [
        (0, at(0, 0x1000, 0x2000)),
        (7, at(0, 0x1000, 0x2000)),
        (1 << 16, at(0, 0x1000, 0x2000)),
        (8, at(8, 0x1000, 0x2000)),
        (8, at(LENGTH - 0x70, 0x1000, 0x2000)),
        (8, at(0, 0x1001, 0x2000)),
        (8, at(0, 0x1000, 0x2002)),
        (8, at(0, 0x1000, LENGTH)),
        (8, at(0, 0x1000, LENGTH - 4 - 64)),
        (8, at(u64::MAX - 15, 0x1000, 0x2000)),
    ] {
        assert!(!split(size, at), "{size} {at:x?}");
    }
    let packed =
        |size, base| Packed::new(&setup.memory, size, &at(0, 0x1000, 0x2000), base).is_some();
    assert!(packed(7, 0x8006));
    assert!(!packed(7, 0x8007) && !packed(0, 0) && !packed(32_768, 0));
}

/// Takes and returns buffers of a queue of random bytes. Everything in it is in memory.
fn exercise(is_packed: bool, bytes: &[u8], positions: &[(u16, u16)]) {
    let mut setup = Setup::new(is_packed);
    setup.file.write_all_at(bytes, 0).unwrap();
    let all = setup.memory.user(0, LENGTH, 1).unwrap().as_ptr() as usize;
    for (index, head) in positions {
        if is_packed {
            let at = u64::from(index % SIZE) * 16 + 14;
            setup.file.write_all_at(&head.to_le_bytes(), at).unwrap();
        } else {
            setup.offer(*index, &[*head; SIZE as usize])
        }
        for _ in 0..2 * SIZE {
            match setup.take() {
                Ok(Some(chain)) => {
                    let segments = chain.of(&setup.segments);
                    let sum: u64 = segments.iter().map(|it| u64::from(it.length)).sum();
                    assert_eq!(sum, u64::from(chain.length));
                    assert!(segments.len() <= MOST_SEGMENTS as usize);
                    for segment in segments {
                        let offset = segment.start.as_ptr() as usize - all;
                        assert!(offset + segment.length as usize <= LENGTH as usize);
                    }
                    setup.ring.give(&chain, chain.length);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        setup.ring.publish();
    }
}

/// Random descriptors, half of which are in memory.
fn descriptors() -> impl Strategy<Value = Vec<u8>> {
    let address = prop_oneof![
        GUEST..GUEST + LENGTH,
        GUEST + BUFFERS..GUEST + BUFFERS + 64,
        any::<u64>()
    ];
    let length = prop_oneof![0_u32..64, Just(16), Just(32), any::<u32>()];
    let word = prop_oneof![0_u16..10, any::<u16>(), Just(1 << 7), Just(1 << 7 | 4)];
    let one = (address, length, word.clone(), word);
    let all = prop::collection::vec(one, SIZE as usize);
    all.prop_map(|all| {
        let mut bytes = Vec::new();
        for (address, length, first, second) in all {
            bytes.extend(u64::to_le_bytes(address));
            bytes.extend(u32::to_le_bytes(length));
            bytes.extend(u16::to_le_bytes(first));
            bytes.extend(u16::to_le_bytes(second));
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn queues_of_random_bytes_are_read_within_memory(
        is_packed in any::<bool>(),
        bytes in descriptors(),
        positions in prop::collection::vec((0_u16..12, prop_oneof![0_u16..10, any::<u16>()]), 1..6),
    ) {
        exercise(is_packed, &bytes, &positions);
    }
}
