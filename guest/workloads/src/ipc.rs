//! Semaphores between two CPUs: a producer and a consumer with a bounded buffer, and a post that is answered.
//!
//! This CPU produces, the second one consumes. In each batch the producer starts the consumer, passes the items, and
//! waits for its result, a hash of all items in their order. The producer computes the same hash after the batch.

use crate::measure::{ensure, repeat, Bench, Work};
use crate::semaphore::{Cpu, Semaphore};
use crate::system::{CpuPair, System};
use core::cell::Cell;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use trapline_abi::Op;

/// Places of the buffer.
const PLACES: usize = 16;

/// Turns of work that each side performs per item of `item-work`: those of the published benchmark (Jiny).
const TURNS: u64 = 2_000;

/// Odd factor of the hash and of the work (Knuth, MMIX).
const FACTOR: u64 = 6_364_136_223_846_793_005;

/// State that both CPUs share.
struct Channel {
    /// Items, at their number modulo [`PLACES`].
    items: [AtomicU64; PLACES],
    /// Free places of the buffer.
    free: Semaphore,
    /// Items in the buffer.
    full: Semaphore,
    /// Posted at the start of each batch, and at the end of the operation.
    start: Semaphore,
    /// Posted when the second CPU has finished a batch.
    done: Semaphore,
    /// Items of the batch; 0 ends the second CPU's part.
    batch: AtomicU64,
    /// Result of the second CPU's last batch.
    result: AtomicU64,
    /// Duration of polling before a wait blocks, in ticks.
    poll: u64,
}

/// Not inlined, because the lab identifies these markers by the name of this module.
#[inline(never)]
pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for (op, turns) in [(Op::IpcItem, 0), (Op::IpcItemWork, TURNS)] {
        with_pair(
            bench,
            op,
            PLACES as u32,
            &|channel, cpu| {
                channel.consume(cpu, turns);
            },
            &mut |bench, channel, cpu| measure_items(bench, op, channel, cpu, turns),
        );
    }
    with_pair(bench, Op::IpcWake, 0, &Channel::answer, &mut measure_wake);
}

/// Part of the second CPU in an operation.
type Second<'a> = &'a (dyn Fn(&Channel, &dyn Cpu) + Sync);

/// Part of this CPU.
type First<'a, 'b, S> = &'a mut dyn FnMut(&mut Bench<'b, S>, &Channel, &dyn Cpu);

/// Runs both parts of `op`, or skips it. `free` is the count of [`Channel::free`] at the start.
fn with_pair<'b, S: System>(
    bench: &mut Bench<'b, S>,
    op: Op,
    free: u32,
    second: Second<'_>,
    first: First<'_, 'b, S>,
) {
    if !bench.job.selects(op) {
        return;
    }
    let pair: &'static dyn CpuPair = match bench.system.cpu_pair(bench.job) {
        Ok(pair) => pair,
        Err(reason) => return bench.skip(op, reason),
    };
    let channel = Channel::new(free, bench.job.wake.poll_ticks());
    let started = pair.run_beside(&|cpu| second(&channel, cpu), &mut |cpu| {
        first(bench, &channel, cpu);
        channel.stop(cpu);
    });
    if let Err(reason) = started {
        bench.skip(op, reason);
    }
    bench.system.quiesce();
}

fn measure_items<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    channel: &Channel,
    cpu: &dyn Cpu,
    turns: u64,
) {
    let (next, verified) = (Cell::new(0), Cell::new(0));
    bench.measure(
        op,
        |_, repetitions| {
            let first = next.replace(next.get() + repetitions);
            Work::new(repetitions, channel.produce(cpu, first, repetitions, turns))
        },
        |_, work| {
            let first = verified.replace(verified.get() + work.count);
            ensure(
                work.evidence == hash(first, work.count, turns),
                "the consumer received other items, or in another order",
            )
        },
    );
}

fn measure_wake<S: System>(bench: &mut Bench<'_, S>, channel: &Channel, cpu: &dyn Cpu) {
    bench.measure(
        Op::IpcWake,
        |_, repetitions| {
            channel.begin(cpu, repetitions);
            let (mut sent, mut wrong) = (0, 0);
            repeat(repetitions, || {
                sent += 1;
                wrong |= channel.ask(cpu, sent) ^ !sent;
            });
            let answered = channel.finish(cpu);
            Work::new(repetitions, wrong | answered ^ repetitions)
        },
        |_, work| work.check_equal("the second CPU did not answer each post with its number"),
    );
}

/// Returns the item with this number, after `turns` of work.
#[inline(always)]
fn item(number: u64, turns: u64) -> u64 {
    work(number ^ FACTOR, turns)
}

/// Returns the hash of the items consumed so far and of the next one, after `turns` of work.
#[inline(always)]
fn consumed(hash: u64, item: u64, turns: u64) -> u64 {
    work(hash.wrapping_mul(FACTOR).wrapping_add(item), turns)
}

/// Returns the hash of `count` items from number `first` on.
fn hash(first: u64, count: u64, turns: u64) -> u64 {
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
    fn new(free: u32, poll: u64) -> Self {
        Self {
            items: [const { AtomicU64::new(0) }; PLACES],
            free: Semaphore::new(free),
            full: Semaphore::new(0),
            start: Semaphore::new(0),
            done: Semaphore::new(0),
            batch: AtomicU64::new(0),
            result: AtomicU64::new(0),
            poll,
        }
    }

    /// Starts a batch of the second CPU.
    fn begin(&self, cpu: &dyn Cpu, items: u64) {
        self.batch.store(items, Relaxed);
        self.start.post(cpu);
    }

    /// Waits for the end of a batch. Returns its result.
    fn finish(&self, cpu: &dyn Cpu) -> u64 {
        self.done.wait(cpu, self.poll);
        self.result.load(Relaxed)
    }

    /// Ends the part of the second CPU.
    fn stop(&self, cpu: &dyn Cpu) {
        self.begin(cpu, 0);
    }

    /// Produces items with these numbers. Returns the result of the consumer.
    #[inline(always)]
    fn produce(&self, cpu: &dyn Cpu, first: u64, items: u64, turns: u64) -> u64 {
        self.begin(cpu, items);
        let mut number = first;
        repeat(items, || {
            let item = item(number, turns);
            self.free.wait(cpu, self.poll);
            self.items[number as usize % PLACES].store(item, Relaxed);
            self.full.post(cpu);
            number += 1;
        });
        self.finish(cpu)
    }

    /// Part of the second CPU: calls `batch` with the number of items of each batch, and keeps its result.
    #[inline(always)]
    fn serve(&self, cpu: &dyn Cpu, mut batch: impl FnMut(u64) -> u64) {
        loop {
            self.start.wait(cpu, self.poll);
            match self.batch.load(Relaxed) {
                0 => return,
                items => self.result.store(batch(items), Relaxed),
            }
            self.done.post(cpu);
        }
    }

    /// Consumes the items of all batches.
    fn consume(&self, cpu: &dyn Cpu, turns: u64) {
        self.consume_with(cpu, turns, &mut |place| place.load(Relaxed));
    }

    /// Consumes them as `read` reads them from the buffer.
    #[inline(always)]
    fn consume_with(&self, cpu: &dyn Cpu, turns: u64, read: &mut impl FnMut(&AtomicU64) -> u64) {
        let mut number = 0_usize;
        self.serve(cpu, |items| {
            let mut hash = 0;
            repeat(items, || {
                self.full.wait(cpu, self.poll);
                let item = read(&self.items[number % PLACES]);
                self.free.post(cpu);
                hash = consumed(hash, item, turns);
                number += 1;
            });
            hash
        });
    }

    /// Posts `question` to the second CPU. Returns its answer.
    #[inline(always)]
    fn ask(&self, cpu: &dyn Cpu, question: u64) -> u64 {
        self.items[0].store(question, Relaxed);
        self.full.post(cpu);
        self.free.wait(cpu, self.poll);
        self.items[1].load(Relaxed)
    }

    /// Answers the questions of all batches with their complement. The result is their number.
    fn answer(&self, cpu: &dyn Cpu) {
        self.serve(cpu, |questions| {
            let mut answered = 0;
            repeat(questions, || {
                self.full.wait(cpu, self.poll);
                let question = self.items[0].load(Relaxed);
                self.items[1].store(!question, Relaxed);
                answered += 1;
                self.free.post(cpu);
            });
            answered
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::thread;

    struct Yielding;

    impl Cpu for Yielding {
        fn block(&self, word: &AtomicU32, seen: u32) {
            while word.load(SeqCst) == seen {
                thread::yield_now();
            }
        }

        fn wake(&self, _: &AtomicU32) {}
    }

    const ITEMS: u64 = 100;

    /// Returns the results of two batches whose items `damage` changes in the buffer, by their number.
    fn results(turns: u64, damage: impl Fn(u64, u64) -> u64 + Sync) -> [u64; 2] {
        let channel = Channel::new(PLACES as u32, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0;
                channel.consume_with(&Yielding, turns, &mut |place| {
                    number += 1;
                    damage(number - 1, place.load(Relaxed))
                });
            });
            let results = [0, ITEMS].map(|first| channel.produce(&Yielding, first, ITEMS, turns));
            channel.stop(&Yielding);
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

    #[test]
    fn each_question_is_answered_by_its_complement() {
        let channel = Channel::new(0, 0);
        thread::scope(|scope| {
            scope.spawn(|| channel.answer(&Yielding));
            channel.begin(&Yielding, 3);
            let answers = [1, 2, 3].map(|question| channel.ask(&Yielding, question));
            assert_eq!(answers, [!1, !2, !3]);
            assert_eq!(channel.finish(&Yielding), 3);
            channel.stop(&Yielding);
        });
    }
}
