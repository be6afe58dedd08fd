//! A bounded buffer from a producer on one CPU to a consumer on another.

use crate::batches::Batches;
use crate::measure::repeat;
use crate::semaphore::{Cpu, Semaphore};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places of a buffer.
pub const PLACES: usize = 16;

/// Turns of work that each side performs per item: those of the published benchmark (Jiny).
pub const TURNS: u64 = 2_000;

/// Odd factor of the hash and of the work (Knuth, MMIX).
const FACTOR: u64 = 6_364_136_223_846_793_005;

/// Items on their way.
pub struct Buffer {
    /// Items, at their number modulo [`PLACES`].
    pub items: [AtomicU64; PLACES],
    /// Free places.
    pub free: Semaphore,
    /// Items in the buffer.
    pub full: Semaphore,
    /// Duration of polling before a wait blocks, in ticks.
    pub poll: u64,
}

impl Buffer {
    /// Creates a buffer whose semaphore of free places has this count.
    pub const fn new(free: u32, poll: u64) -> Self {
        Self {
            items: [const { AtomicU64::new(0) }; PLACES],
            free: Semaphore::new(free),
            full: Semaphore::new(0),
            poll,
        }
    }
}

/// A buffer between this CPU, which produces, and another one, which consumes.
pub struct Channel {
    /// Items on their way.
    pub buffer: Buffer,
    /// The part of the consumer. The result of a batch is the hash of its items in their order.
    pub batches: Batches,
}

/// Returns the item with this number, after `turns` of work.
#[inline(always)]
pub fn item(number: u64, turns: u64) -> u64 {
    work(number ^ FACTOR, turns)
}

/// Returns the hash of the items consumed so far and of the next one, after `turns` of work.
#[inline(always)]
pub fn consumed(hash: u64, item: u64, turns: u64) -> u64 {
    work(hash.wrapping_mul(FACTOR).wrapping_add(item), turns)
}

/// Returns the hash of `count` items from number `first` on.
pub fn hash(first: u64, count: u64, turns: u64) -> u64 {
    let numbers = first..first + count;
    numbers.fold(0, |hash, number| consumed(hash, item(number, turns), turns))
}

/// Performs turns of a loop of dependent instructions.
#[inline(always)]
fn work(mut value: u64, turns: u64) -> u64 {
    for turn in 0..turns {
        value = black_box(value).rotate_left(1) ^ turn;
    }
    value
}

impl Channel {
    /// Creates an empty channel whose CPUs poll for `poll` ticks before they block.
    pub const fn new(poll: u64) -> Self {
        Self {
            buffer: Buffer::new(PLACES as u32, poll),
            batches: Batches::new(poll),
        }
    }

    /// Produces items with these numbers. Returns the result of the consumer.
    #[inline(always)]
    pub fn produce(&self, cpu: &dyn Cpu, first: u64, items: u64, turns: u64) -> u64 {
        self.batches.begin(cpu, items);
        let buffer = &self.buffer;
        let mut number = first;
        repeat(items, || {
            let item = item(number, turns);
            buffer.free.wait(cpu, buffer.poll);
            buffer.items[number as usize % PLACES].store(item, Relaxed);
            buffer.full.post(cpu);
            number += 1;
        });
        self.batches.finish(cpu)
    }

    /// Consumes the items of all batches.
    pub fn consume(&self, cpu: &dyn Cpu, turns: u64) {
        self.consume_with(cpu, turns, &mut |place| place.load(Relaxed));
    }

    /// Consumes them as `read` reads them from the buffer.
    #[inline(always)]
    fn consume_with(&self, cpu: &dyn Cpu, turns: u64, read: &mut impl FnMut(&AtomicU64) -> u64) {
        let buffer = &self.buffer;
        let mut number = 0_usize;
        self.batches.serve(cpu, |items| {
            let mut hash = 0;
            repeat(items, || {
                buffer.full.wait(cpu, buffer.poll);
                let item = read(&buffer.items[number % PLACES]);
                buffer.free.post(cpu);
                hash = consumed(hash, item, turns);
                number += 1;
            });
            hash
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semaphore::testing::Yielding;
    use std::thread;

    const ITEMS: u64 = 100;

    /// Returns the results of two batches whose items `damage` changes in the buffer, by their number.
    fn results(turns: u64, damage: impl Fn(u64, u64) -> u64 + Sync) -> [u64; 2] {
        let channel = Channel::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0;
                channel.consume_with(&Yielding, turns, &mut |place| {
                    number += 1;
                    damage(number - 1, place.load(Relaxed))
                });
            });
            let results = [0, ITEMS].map(|first| channel.produce(&Yielding, first, ITEMS, turns));
            channel.batches.stop(&Yielding);
            results
        })
    }

    #[test]
    fn all_items_arrive_in_their_order() {
        for turns in [0, 3] {
            let expected = [0, ITEMS].map(|first| hash(first, ITEMS, turns));
            assert_eq!(results(turns, |_, item| item), expected);
        }
    }

    #[test]
    fn a_damaged_item_a_repeated_one_and_another_order_are_detected() {
        let expected = [0, ITEMS].map(|first| hash(first, ITEMS, 0));
        let damaged = results(0, |number, it| it ^ u64::from(number == 70));
        assert_ne!(damaged[0], expected[0]);
        assert_eq!(damaged[1], expected[1], "only one batch is wrong");
        let repeated = results(0, |number, it| match number {
            101 => item(100, 0),
            _ => it,
        });
        assert_ne!(repeated[1], expected[1]);
        let swapped = results(0, |number, it| match number {
            7 => item(8, 0),
            8 => item(7, 0),
            _ => it,
        });
        assert_ne!(swapped[0], expected[0]);
    }
}
