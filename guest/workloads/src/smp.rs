//! All CPUs at once: pairs of a producer and a consumer, on CPUs of their own or as two threads of each CPU, producers and
//! consumers with one buffer, STREAM's triad, TLB shootdowns, interrupts, and the start of a CPU.
//!
//! This CPU starts a batch of each other one and waits for all results. An odd CPU more has nothing to do, unless each has two threads.

mod own;
mod shootdown;

use crate::batches::Batches;
use crate::channel::{consumed, hash, item, Buffer, Channel, PLACES, TURNS};
use crate::cpus::{run_beside, several};
use crate::measure::{ensure, repeat, Bench, Work};
use crate::semaphore::{Cpu, Semaphore};
use crate::stream;
use crate::system::{Cpus, Reason, System};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use trapline_abi::job::MOST_CPUS;
use trapline_abi::Op;

/// Most CPUs, and most pairs of threads.
const MOST: usize = MOST_CPUS as usize;

/// Items of a producer in a repetition: with one, both sides would only wait for the begin and the end of the batch.
const ITEMS: u64 = PLACES as u64;

/// Distance between the numbers of the items of two producers.
const PRODUCER: u64 = 1 << 40;

/// Not inlined, because the lab identifies these markers by the name of this module.
#[inline(never)]
pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    if let Some(cpus) = several(bench, Op::SmpPairs) {
        measure_pairs(bench, cpus);
    }
    if let Some(cpus) = several(bench, Op::SmpThreads) {
        measure_threads(bench, cpus);
    }
    if let Some(cpus) = several(bench, Op::SmpShared) {
        measure_shared(bench, cpus);
    }
    if let Some(cpus) = several(bench, Op::SmpTriad) {
        measure_triad(bench, cpus);
    }
    shootdown::measure(bench);
    own::measure_interrupts(bench);
    own::measure_starts(bench);
}

/// CPU `2n` produces for CPU `2n + 1`.
fn measure_pairs<S: System>(bench: &mut Bench<'_, S>, cpus: &dyn Cpus) {
    let pairs = cpus.count() / 2;
    let role = |number: u32| match number % 2 {
        0 => Role::Producer(number / 2),
        _ => Role::Consumer(number / 2),
    };
    measure_channels(bench, Op::SmpPairs, (cpus, pairs), &role);
}

/// Each CPU has a thread that produces for the next CPU, and one that consumes of the previous one.
fn measure_threads<S: System>(bench: &mut Bench<'_, S>, cpus: &dyn Cpus) {
    let count = cpus.count();
    let role = |number: u32| match number.checked_sub(count) {
        None => Role::Producer(number),
        Some(cpu) => Role::Consumer((cpu + count - 1) % count),
    };
    measure_channels(bench, Op::SmpThreads, (cpus, count), &role);
}

/// Part of a thread in one of several channels.
enum Role {
    Producer(u32),
    Consumer(u32),
}

/// Items through as many channels at once. This thread is the producer of the first one. Not inlined, as the next ones:
/// their stack frames are large.
#[inline(never)]
fn measure_channels<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    (cpus, pairs): (&dyn Cpus, u32),
    role: &(dyn Fn(u32) -> Role + Sync),
) {
    let poll = bench.job.wake.poll_ticks();
    let channels: [_; MOST] = core::array::from_fn(|_| Channel::new(poll));
    let producers: [_; MOST] = core::array::from_fn(|_| Batches::new(poll));
    let others = |number: u32, cpu: &dyn Cpu| match role(number) {
        Role::Consumer(pair) => channels[pair as usize].consume(cpu, TURNS),
        Role::Producer(pair) => {
            let channel = &channels[pair as usize];
            let mut next = 0;
            producers[pair as usize].serve(cpu, |items| {
                let first = next;
                next += items;
                channel.produce(cpu, first, items, TURNS)
            });
            channel.batches.stop(cpu);
        }
    };
    let other_pairs = &producers[1..pairs as usize];
    run_beside(bench, op, (cpus, 2 * pairs), &others, &mut |bench, cpu| {
        let (next, verified) = (Cell::new(0), Cell::new(0));
        let differences = Cell::new(0);
        bench.measure(
            op,
            |_, repetitions| {
                let items = repetitions * ITEMS;
                let first = next.replace(next.get() + items);
                begin(other_pairs, cpu, items);
                let result = channels[0].produce(cpu, first, items, TURNS);
                for pair in other_pairs {
                    differences.set(differences.get() | pair.finish(cpu) ^ result);
                }
                Work::new(items * u64::from(pairs), result)
            },
            |_, work| {
                let items = work.count / u64::from(pairs);
                let first = verified.replace(verified.get() + items);
                ensure(
                    work.evidence == hash(first, items, TURNS) && differences.get() == 0,
                    "a consumer received other items, or in another order",
                )
            },
        );
        stop(other_pairs, cpu);
        channels[0].batches.stop(cpu);
        next.get() * u64::from(pairs)
    });
}

/// Even CPUs produce, odd ones consume as many items each, of any producer.
#[inline(never)]
fn measure_shared<S: System>(bench: &mut Bench<'_, S>, cpus: &dyn Cpus) {
    let op = Op::SmpShared;
    let pairs = u64::from(cpus.count() / 2);
    let poll = bench.job.wake.poll_ticks();
    let shared = Shared::new(poll);
    let parts: [_; MOST] = core::array::from_fn(|_| Batches::new(poll));
    let others = |number: u32, cpu: &dyn Cpu| {
        let producer = u64::from(number / 2) * PRODUCER;
        let mut next = producer;
        parts[number as usize].serve(cpu, |items| match number % 2 {
            0 => {
                shared.produce(cpu, next, items);
                next += items;
                0
            }
            _ => shared.consume(cpu, items),
        });
    };
    let other_parts = &parts[1..2 * pairs as usize];
    let count = 2 * pairs as u32;
    run_beside(bench, op, (cpus, count), &others, &mut |bench, cpu| {
        let (next, verified) = (Cell::new(0), Cell::new(0));
        bench.measure(
            op,
            |_, repetitions| {
                let items = repetitions * ITEMS;
                let first = next.replace(next.get() + items);
                begin(other_parts, cpu, items);
                shared.produce(cpu, first, items);
                let results = other_parts.iter().map(|part| part.finish(cpu));
                let sum = results.fold(0, u64::wrapping_add);
                Work::new(items * pairs, sum)
            },
            |_, work| {
                let items = work.count / pairs;
                let first = verified.replace(verified.get() + items);
                let sums = (0..pairs).map(|producer| sum(producer * PRODUCER + first, items));
                ensure(
                    work.evidence == sums.fold(0, u64::wrapping_add),
                    "the consumers received other items",
                )
            },
        );
        stop(other_parts, cpu);
        next.get() * pairs
    });
}

/// Each CPU computes its part of the array. A sample is one pass of all.
#[inline(never)]
fn measure_triad<S: System>(bench: &mut Bench<'_, S>, cpus: &dyn Cpus) {
    let op = Op::SmpTriad;
    let count = cpus.count();
    let parts: [_; MOST] = core::array::from_fn(|_| Batches::new(0));
    let other_parts = &parts[1..count as usize];
    stream::with_arrays(bench, [op].into_iter(), |bench, arrays| {
        let triad = |number: u32| {
            let part = arrays.part(number as usize, count as usize);
            // SAFETY: the arrays are page-aligned, and this CPU's alone in its part while the first one waits for the result.
            unsafe { stream::triad(&part) }
        };
        let others =
            |number: u32, cpu: &dyn Cpu| parts[number as usize].serve(cpu, |_| triad(number));
        run_beside(bench, op, (cpus, count), &others, &mut |bench, cpu| {
            let mut passes = 0;
            let pass = || {
                passes += 1;
                begin(other_parts, cpu, 1);
                let own = triad(0);
                let moved = other_parts.iter().map(|part| part.finish(cpu));
                moved.fold(own, u64::wrapping_add)
            };
            // SAFETY: the arrays are accessed by `pass` only.
            unsafe { stream::run_one(bench, &arrays, op, pass, stream::is_triad) };
            stop(other_parts, cpu);
            passes
        });
    });
}

/// Records a sample of each of several operations that `measure_one` does, after `warm_up` of them without one. Inlined, so that
/// the markers have the name of the caller's module.
#[inline(always)]
fn measure_each<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    warm_up: u32,
    mut measure_one: impl FnMut(&mut Bench<'_, S>) -> Result<(), Reason>,
) {
    let mut verified = Ok(());
    let mut measure_next = |bench: &mut Bench<'_, S>| verified = verified.and(measure_one(bench));
    bench.warm_up(|bench| (0..warm_up).for_each(|_| measure_next(bench)));
    bench.begin(op, 0);
    let samples = bench.job.batches;
    (0..samples).for_each(|_| measure_next(bench));
    match verified {
        Ok(()) => bench.end(op, samples, u64::from(op.number())),
        Err(reason) => bench.fail(op, reason),
    }
}

fn begin(parts: &[Batches], cpu: &dyn Cpu, size: u64) {
    parts.iter().for_each(|part| part.begin(cpu, size));
}

fn stop(parts: &[Batches], cpu: &dyn Cpu) {
    parts.iter().for_each(|part| part.stop(cpu));
}

/// Returns the sum of the results of these items, which does not depend on their order.
fn sum(first: u64, items: u64) -> u64 {
    let results = (first..first + items).map(|number| consumed(0, item(number, TURNS), TURNS));
    results.fold(0, u64::wrapping_add)
}

/// A buffer of several producers and consumers, with a third semaphore as its lock (Dijkstra, Cooperating sequential processes,
/// 1965, 4.3).
struct Shared {
    buffer: Buffer,
    lock: Semaphore,
    /// Number of the next item that is put into the buffer, and of the next one that is taken. Accessed by the owner of the lock.
    put: AtomicU64,
    taken: AtomicU64,
}

impl Shared {
    const fn new(poll: u64) -> Self {
        Self {
            buffer: Buffer::new(PLACES as u32, poll),
            lock: Semaphore::new(1),
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Accesses the next place by the number of `next`.
    #[inline(always)]
    fn access<T>(
        &self,
        cpu: &dyn Cpu,
        next: &AtomicU64,
        access: impl FnOnce(&AtomicU64) -> T,
    ) -> T {
        self.lock.wait(cpu, self.buffer.poll);
        let number = next.load(Relaxed);
        let result = access(&self.buffer.items[number as usize % PLACES]);
        next.store(number + 1, Relaxed);
        self.lock.post(cpu);
        result
    }

    fn produce(&self, cpu: &dyn Cpu, first: u64, items: u64) {
        let (buffer, mut number) = (&self.buffer, first);
        repeat(items, || {
            let item = item(number, TURNS);
            buffer.free.wait(cpu, buffer.poll);
            self.access(cpu, &self.put, |place| place.store(item, Relaxed));
            buffer.full.post(cpu);
            number += 1;
        });
    }

    /// Returns the sum of the results of the items.
    fn consume(&self, cpu: &dyn Cpu, items: u64) -> u64 {
        let (buffer, mut sum) = (&self.buffer, 0_u64);
        repeat(items, || {
            buffer.full.wait(cpu, buffer.poll);
            let item = self.access(cpu, &self.taken, |place| place.load(Relaxed));
            buffer.free.post(cpu);
            sum = sum.wrapping_add(consumed(0, item, TURNS));
        });
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semaphore::testing::Yielding;
    use std::thread;

    const COUNT: u64 = 50;

    /// Returns the sum of two consumers of two producers. `damage` changes the buffer before the consumers start.
    fn consumed_of_two(damage: impl FnOnce(&Shared)) -> u64 {
        let shared = Shared::new(0);
        shared.produce(&Yielding, 0, PLACES as u64);
        damage(&shared);
        thread::scope(|scope| {
            let consume = || scope.spawn(|| shared.consume(&Yielding, COUNT));
            let consumers = [consume(), consume()];
            scope.spawn(|| shared.produce(&Yielding, PRODUCER, COUNT));
            shared.produce(&Yielding, PLACES as u64, COUNT - PLACES as u64);
            let sums = consumers.map(|it| it.join().unwrap_or_default());
            sums[0].wrapping_add(sums[1])
        })
    }

    #[test]
    fn all_items_of_all_producers_arrive_once() {
        let expected = sum(0, COUNT).wrapping_add(sum(PRODUCER, COUNT));
        assert_eq!(consumed_of_two(|_| ()), expected);
        let repeat_first = |shared: &Shared| {
            let first = shared.buffer.items[0].load(Relaxed);
            shared.buffer.items[1].store(first, Relaxed);
        };
        assert_ne!(consumed_of_two(repeat_first), expected);
    }
}
