//! Random queues, many of them: whatever is in a queue, the switch accesses the guest's memory only.

use std::ptr::NonNull;
use trapline_switch::driver::{memory_file, PackedDriver, Random, SplitDriver};
use trapline_switch::memory::{Memory, Spec};
use trapline_switch::ring::{Addresses, Direction, Packed, Ring, Segment, Split};

const SIZE: u16 = 8;
const GUEST: u64 = 0x10_0000;
const LENGTH: u64 = 0x1_0000;

/// Two queues at the start of a guest's memory.
struct Guest {
    memory: Memory,
    start: NonNull<u8>,
    segments: Vec<Segment>,
}

impl Guest {
    fn new() -> Self {
        let spec = Spec {
            guest: GUEST,
            size: LENGTH,
            user: 0,
            offset: 0,
        };
        let memory = Memory::new(&[(spec, memory_file(LENGTH).unwrap())]).unwrap();
        Self {
            start: memory.user(0, LENGTH, 16).unwrap(),
            memory,
            segments: Vec::new(),
        }
    }

    fn write<T>(&self, at: u64, value: T) {
        assert!(at as usize + size_of::<T>() <= LENGTH as usize);
        // SAFETY: the bytes are in the mapping.
        unsafe {
            self.start
                .as_ptr()
                .add(at as usize)
                .cast::<T>()
                .write_unaligned(value)
        };
    }

    fn descriptor(&self, at: u64, random: &mut Random) {
        self.write(at, GUEST.wrapping_add(random.interesting(LENGTH)));
        let length = match random.below(3) {
            0 => 16 * random.below(6),
            _ => random.interesting(LENGTH),
        };
        self.write(at + 8, length as u32);
        self.write(at + 12, random.interesting(SIZE.into()) as u16);
        let flags = match random.below(4) {
            0 => random.number() as u16,
            _ => random.below(8) as u16 | 1 << 7,
        };
        self.write(at + 14, flags);
    }

    /// Takes and returns what a queue of random descriptors has. Returns the number of buffers.
    fn exercise(&mut self, is_packed: bool, random: &mut Random) -> u64 {
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
        for index in 0..u64::from(SIZE) {
            self.descriptor(16 * index, random);
        }
        // A table somewhere.
        let table = random.below(LENGTH - 0x8000 - 64) + 0x8000;
        for index in 0..3 {
            self.descriptor(table + 16 * index, random);
        }
        let mut ring = if is_packed {
            Ring::Packed(Packed::new(&self.memory, SIZE.into(), &at, 0x8000).unwrap())
        } else {
            self.write(driver + 2, random.interesting(u64::from(SIZE) + 1) as u16);
            for slot in 0..u64::from(SIZE) {
                self.write(
                    driver + 4 + 2 * slot,
                    random.interesting(SIZE.into()) as u16,
                );
            }
            Ring::Split(Split::new(&self.memory, SIZE.into(), &at, 0, true).unwrap())
        };
        let direction = match random.below(2) {
            0 => Direction::Readable,
            _ => Direction::Writable,
        };
        let mut taken = 0;
        for _ in 0..2 * SIZE {
            self.segments.clear();
            let Ok(Some(chain)) = ring.take(&self.memory, direction, &mut self.segments) else {
                break;
            };
            for segment in chain.of(&self.segments) {
                let offset = segment.start.addr().get() - self.start.addr().get();
                assert!(offset as u64 + u64::from(segment.length) <= LENGTH);
            }
            taken += 1;
            ring.give(&chain, chain.length);
        }
        ring.publish();
        taken
    }
}

fn exercise(count: u64) {
    let (mut guest, mut random) = (Guest::new(), Random(1));
    let mut taken = [0_u64; 2];
    for number in 0..count {
        let is_packed = number % 2 == 1;
        taken[usize::from(is_packed)] += guest.exercise(is_packed, &mut random);
    }
    eprintln!("{count} queues: {taken:?} buffers were taken");
    // The queues are not all invalid at their first descriptor.
    assert!(taken.iter().all(|taken| *taken > count / 50), "{taken:?}");
}

#[test]
fn a_million_random_queues_are_read_within_memory() {
    exercise(1_000_000);
}

#[test]
#[ignore = "long: make fuzz"]
fn a_hundred_million_random_queues_are_read_within_memory() {
    exercise(100_000_000);
}
