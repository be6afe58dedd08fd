//! Latency of disk requests.
//!
//! The content of the disk is a test pattern: every sector of every unit of 4 KiB depends on its
//! number and on the generation in which it was written, so that misplaced and stale sectors are
//! detected. The places of random requests are all different and in the same order in each run.

use crate::clock::{begin_batch, end_batch};
use crate::measure::Bench;
use crate::system::System;
use core::mem::size_of;
use trapline_abi::block::{mix, pack, DiskRequest, Transfer, LARGE, MAX_PACKED, SMALL};
use trapline_abi::{marker, Op, Record};

/// Words of a unit.
pub const WORDS: usize = SMALL as usize / size_of::<u64>();

/// Generation of the content before all measurements.
pub const PREPARED: u8 = 0;

/// Returns the generation of the content that `op` writes.
pub fn generation(op: Op) -> u8 {
    op.number()
}

/// Words of a sector, the smallest unit of disk accesses.
const SECTOR: usize = 512 / size_of::<u64>();

/// Units of a large request. Between the stamps, all large requests have the same content.
const UNITS: u64 = (LARGE / SMALL) as u64;

/// Difference of consecutive words between stamps: odd, and not compressible.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Calls `each` with the index and value of every word of a unit: a stamp of unit, sector and
/// generation at both ends of each sector, and words that differ between the units of a large
/// request in between.
#[inline(always)]
fn visit(number: u64, generation: u8, mut each: impl FnMut(usize, u64)) {
    stamps(number, generation, &mut each);
    let mut word = mix(number % UNITS);
    for sector in (0..WORDS).step_by(SECTOR) {
        for place in sector + 1..sector + SECTOR - 1 {
            each(place, word);
            word = word.wrapping_add(STEP);
        }
    }
}

/// Calls `each` with the stamps only.
#[inline(always)]
fn stamps(number: u64, generation: u8, each: &mut impl FnMut(usize, u64)) {
    for sector in 0..WORDS / SECTOR {
        let stamp = mix((number << 3 | sector as u64) << 8 | u64::from(generation));
        each(sector * SECTOR, stamp);
        each(sector * SECTOR + SECTOR - 1, !stamp);
    }
}

/// Writes the content of unit `number` in this generation.
pub fn fill(unit: &mut [u64; WORDS], number: u64, generation: u8) {
    visit(number, generation, |place, word| unit[place] = word);
}

/// Writes only the stamps, into a buffer that has the content of a unit whose number differs by a
/// multiple of a large request.
pub fn stamp(unit: &mut [u64; WORDS], number: u64, generation: u8) {
    stamps(number, generation, &mut |place, word| unit[place] = word);
}

/// Returns true if `unit` has the content that [`fill`] writes.
pub fn holds(unit: &[u64; WORDS], number: u64, generation: u8) -> bool {
    let mut different = 0;
    visit(number, generation, |place, word| {
        different |= unit[place] ^ word
    });
    different == 0
}

/// Returns true if `unit` has the stamps that [`fill`] writes.
pub fn is_stamped(unit: &[u64; WORDS], number: u64, generation: u8) -> bool {
    let mut different = 0;
    stamps(number, generation, &mut |place, word| {
        different |= unit[place] ^ word;
    });
    different == 0
}

/// Performs a request that is the only one in flight, with markers around it, and takes its
/// timestamps.
#[inline(always)]
pub fn timed<T>(request: impl FnOnce() -> T) -> (DiskRequest, T) {
    let begun = begin_batch::<{ marker::BEGIN }>();
    let result = request();
    let (start, end) = end_batch::<{ marker::END }>(begun);
    (DiskRequest { start, end }, result)
}

/// Places of the requests of a transfer, in multiples of the request size.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    number: u64,
    /// Seed of the random order; `None` for ascending order.
    seed: Option<u64>,
}

impl Places {
    /// Places of `transfer` on a disk with room for `number` requests.
    pub fn new(transfer: &Transfer, number: u32) -> Self {
        let random = Self::random(transfer.op, number);
        Self {
            seed: random.seed.filter(|_| transfer.is_random()),
            ..random
        }
    }

    /// Random places of the calls of `op` in a file of this number of pages.
    pub fn random(op: Op, number: u32) -> Self {
        Self {
            number: number.into(),
            seed: Some(op.number().into()),
        }
    }

    /// Returns the place of request `index`. The places of all indices below the number of places
    /// are different.
    pub fn place(&self, index: u64) -> u64 {
        let Some(seed) = self.seed else {
            return index;
        };
        // Each step is a bijection of numbers with this many bits. Numbers that are not places
        // are mapped again.
        let bits = (u64::BITS - (self.number - 1).leading_zeros()).max(2);
        let mask = (1 << bits) - 1;
        let mut place = index;
        loop {
            for round in 1..=3_u64 {
                place = place.wrapping_add(mix(seed << 8 | round)) & mask;
                place = place.wrapping_mul(STEP) & mask;
                place ^= place >> (bits / 2);
            }
            if place < self.number {
                return place;
            }
        }
    }
}

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for transfer in Transfer::ALL {
        if bench.job.selects(transfer.op) {
            measure(bench, &transfer);
            bench.system.quiesce();
        }
    }
}

fn measure<S: System>(bench: &mut Bench<'_, S>, transfer: &Transfer) {
    let op = transfer.op;
    if let Err(reason) = bench.system.open_disk(bench.job) {
        return bench.skip(op, reason);
    }
    let wanted = transfer.requests(bench.job) as usize;
    let Some(block) = bench.system.allocate(wanted * size_of::<DiskRequest>()) else {
        return bench.fail(op, "not enough memory for the timestamps of all requests");
    };
    // SAFETY: the block is as long as the slots, page-aligned, exclusive until it is released below,
    // and all slots are initialised here.
    let slots = unsafe {
        let first = block.start.as_ptr().cast::<DiskRequest>();
        for slot in 0..wanted {
            first.add(slot).write(DiskRequest::default());
        }
        core::slice::from_raw_parts_mut(first, wanted)
    };
    bench.begin_unmarked(op);
    let job = bench.job;
    let made = bench.count_exits(|system| system.transfer(transfer, job, slots));
    let verified = made.and_then(|made| {
        let written = bench.system.read_back(transfer, job, made);
        written.map(|()| made)
    });
    match verified {
        Ok(0) => bench.fail(op, "no request was completed"),
        Ok(count) => {
            let count = count.min(wanted);
            send_requests(bench.system, op, &slots[..count]);
            bench.end(
                op,
                count as u32,
                u64::from(transfer.bytes) << 8 | u64::from(op.number()),
            );
        }
        Err(reason) => bench.fail(op, reason),
    }
    // SAFETY: allocated above; the slots are no longer used.
    unsafe { bench.system.release(block) };
}

fn send_requests<S: System>(system: &mut S, op: Op, mut requests: &[DiskRequest]) {
    while !requests.is_empty() {
        let mut buffer = [0; MAX_PACKED];
        let (count, used) = pack(requests, &mut buffer);
        let packed = &buffer[..used];
        system.send(&Record::Requests { op, packed });
        requests = &requests[count.max(1)..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn other_units_generations_and_bit_errors_are_detected() {
        let mut unit = [0; WORDS];
        fill(&mut unit, 7, PREPARED);
        assert!(holds(&unit, 7, PREPARED));
        assert!(!holds(&unit, 8, PREPARED), "another place");
        assert!(!holds(&unit, 7, 100), "another time");
        unit[WORDS - 2] ^= 1;
        assert!(!holds(&unit, 7, PREPARED), "one bit");
        assert!(is_stamped(&unit, 7, PREPARED), "not of a stamp");
        unit[WORDS - 1] ^= 1;
        assert!(!is_stamped(&unit, 7, PREPARED));
        let mut other = [0; WORDS];
        fill(&mut other, 7 + UNITS, 100);
        stamp(&mut other, 7, PREPARED);
        assert!(holds(&other, 7, PREPARED), "as if it were filled");
    }

    #[test]
    fn random_places_are_different_and_unordered() {
        for number in [1, 2, 3, 256, 1000, 65_536] {
            let places = Places::new(&Transfer::ALL[0], number);
            let number = u64::from(number);
            let all: BTreeSet<_> = (0..number).map(|index| places.place(index)).collect();
            assert_eq!(all.len() as u64, number);
            assert!(all.iter().all(|place| *place < number));
        }
        let places = Places::new(&Transfer::ALL[0], 65_536);
        let next = |index: &u64| places.place(*index) + 1 == places.place(index + 1);
        let in_order = (0..65_535).filter(next).count();
        assert!(in_order < 20, "{in_order} follow the one before");
        let half = (0..1000)
            .filter(|index| places.place(*index) < 32_768)
            .count();
        assert!((400..600).contains(&half), "{half} in the first half");
        let large = Places::new(&Transfer::ALL[2], 256);
        assert!((0..256).all(|index| large.place(index) == index));
    }
}
