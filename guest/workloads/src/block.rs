//! How long a disk takes for a request, each of them told.
//!
//! What the disk holds is known: every unit of 4 KiB is a function of its number and of
//! the generation in which it was written, and so is each of its sectors, so that one that
//! is not at its place, or of another time, is found out. Where requests go is known, too: random places are all
//! different and in the same order each time.

use crate::measure::Bench;
use crate::system::System;
use core::mem::size_of;
use trapline_abi::block::{pack, Request, Transfer, LARGE, MAX_PACKED, SMALL};
use trapline_abi::{Op, Record};

/// Words of a unit of a disk.
pub const WORDS: usize = SMALL as usize / size_of::<u64>();

/// The generation of what was there before anything is measured.
pub const PREPARED: u8 = 0;

/// The generation of what `op` writes.
pub fn generation(op: Op) -> u8 {
    op.number()
}

/// Words of a sector, which a disk reads and writes whole.
const SECTOR: usize = 512 / size_of::<u64>();

/// Units of a large request: what is between the stamps of its units is the same wherever
/// it goes.
const UNITS: u64 = (LARGE / SMALL) as u64;

/// From a word between stamps to the next: odd, and without a pattern that would compress.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Gives `each` every word of a unit with what it must be: at both ends of a sector a stamp
/// of unit, sector and generation, between them a filling that no two units of a large
/// request share.
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

/// The same for stamps alone.
#[inline(always)]
fn stamps(number: u64, generation: u8, each: &mut impl FnMut(usize, u64)) {
    for sector in 0..WORDS / SECTOR {
        let stamp = mix((number << 3 | sector as u64) << 8 | u64::from(generation));
        each(sector * SECTOR, stamp);
        each(sector * SECTOR + SECTOR - 1, !stamp);
    }
}

/// Writes what the unit of this number holds in this generation.
pub fn fill(unit: &mut [u64; WORDS], number: u64, generation: u8) {
    visit(number, generation, |place, word| unit[place] = word);
}

/// The same where the filling is there already: that of a unit whose number is this or
/// differs by whole large requests.
pub fn stamp(unit: &mut [u64; WORDS], number: u64, generation: u8) {
    stamps(number, generation, &mut |place, word| unit[place] = word);
}

/// Whether `unit` holds what [`fill`] would write.
pub fn holds(unit: &[u64; WORDS], number: u64, generation: u8) -> bool {
    let mut different = 0;
    visit(number, generation, |place, word| {
        different |= unit[place] ^ word
    });
    different == 0
}

/// Whether each sector of `unit` has the stamps that [`fill`] would write.
pub fn is_stamped(unit: &[u64; WORDS], number: u64, generation: u8) -> bool {
    let mut different = 0;
    stamps(number, generation, &mut |place, word| {
        different |= unit[place] ^ word;
    });
    different == 0
}

/// A number that shows nothing of `value` (the finalizer of SplitMix64, Steele et al.
/// 2014); no two values give one number.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Where the requests of a transfer go: the place of each, counted in requests.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    number: u64,
    /// What order, where there is none by place.
    seed: Option<u64>,
}

impl Places {
    /// Those of `transfer` on a disk that has room for so many requests.
    pub fn new(transfer: &Transfer, number: u32) -> Self {
        let seed = u64::from(transfer.op.number());
        Self {
            number: number.into(),
            seed: transfer.is_random().then_some(seed),
        }
    }

    /// The place of request `index`. Those of all indices below the number of places are
    /// all different.
    pub fn of(&self, index: u64) -> u64 {
        let Some(seed) = self.seed else {
            return index;
        };
        // Each step is one to one among the numbers of so many bits; what is no place is
        // sent round again.
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
        if bench.job.wants(transfer.op) {
            measure(bench, &transfer);
        }
    }
}

fn measure<S: System>(bench: &mut Bench<'_, S>, transfer: &Transfer) {
    let op = transfer.op;
    if let Err(reason) = bench.system.open_disk(bench.job) {
        return bench.skip(op, reason);
    }
    let wanted = transfer.requests(bench.job) as usize;
    let Some(block) = bench.system.allocate(wanted * size_of::<Request>()) else {
        return bench.fail(op, "memory is too small for the times of all requests");
    };
    // SAFETY: the block is as long as the slots, aligned to pages, nobody else's until it
    // is released below, and any bytes that are written here are a request.
    let slots = unsafe {
        let first = block.start.as_ptr().cast::<Request>();
        for slot in 0..wanted {
            first.add(slot).write(Request::default());
        }
        core::slice::from_raw_parts_mut(first, wanted)
    };
    bench.begin_unmarked(op);
    let job = bench.job;
    let made = bench.counted(|system| system.transfer(transfer, job, slots));
    match made {
        Ok(0) => bench.fail(op, "no request was made"),
        Ok(count) => {
            let count = count.min(wanted);
            tell(bench.system, op, &slots[..count]);
            bench.end(
                op,
                count as u32,
                u64::from(transfer.bytes) << 8 | u64::from(op.number()),
            );
        }
        Err(reason) => bench.fail(op, reason),
    }
    // SAFETY: allocated above, and the slots are used no more.
    unsafe { bench.system.release(block) };
}

fn tell<S: System>(system: &mut S, op: Op, mut requests: &[Request]) {
    while !requests.is_empty() {
        let mut buffer = [0; MAX_PACKED];
        let (count, used) = pack(requests, &mut buffer);
        let packed = &buffer[..used];
        system.say(&Record::Requests { op, packed });
        requests = &requests[count.max(1)..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_unit_is_only_itself() {
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
    fn random_places_are_all_different_and_in_no_order() {
        for number in [1, 2, 3, 256, 1000, 65_536] {
            let places = Places::new(&Transfer::ALL[0], number);
            let number = u64::from(number);
            let all: BTreeSet<_> = (0..number).map(|index| places.of(index)).collect();
            assert_eq!(all.len() as u64, number);
            assert!(all.iter().all(|place| *place < number));
        }
        let places = Places::new(&Transfer::ALL[0], 65_536);
        let next = |index: &u64| places.of(*index) + 1 == places.of(index + 1);
        let in_order = (0..65_535).filter(next).count();
        assert!(in_order < 20, "{in_order} follow the one before");
        let half = (0..1000).filter(|index| places.of(*index) < 32_768).count();
        assert!((400..600).contains(&half), "{half} in the first half");
        let large = Places::new(&Transfer::ALL[2], 256);
        assert!((0..256).all(|index| large.of(index) == index));
    }
}
