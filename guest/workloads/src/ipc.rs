//! Semaphores between two CPUs: a producer and a consumer with a bounded buffer, and a post that is answered.
//!
//! This CPU produces, the second one consumes. In each batch the producer starts the consumer, passes the items, and
//! waits for its result, a hash of all items in their order. The producer computes the same hash after the batch.

use crate::batches::Batches;
use crate::channel::{hash, Buffer, Channel, TURNS};
use crate::cpus::{cpus, run_beside};
use crate::measure::{ensure, repeat, Bench, Work};
use crate::semaphore::Cpu;
use crate::system::System;
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use trapline_abi::Op;

/// Not inlined, because the lab identifies these markers by the name of this module.
#[inline(never)]
pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for (op, turns) in [(Op::IpcItem, 0), (Op::IpcItemWork, TURNS)] {
        measure_items(bench, op, turns);
    }
    measure_wake(bench);
}

fn measure_items<S: System>(bench: &mut Bench<'_, S>, op: Op, turns: u64) {
    let Some(cpus) = cpus(bench, op) else {
        return;
    };
    let channel = Channel::new(bench.job.wake.poll_ticks());
    let others = |_: u32, cpu: &dyn Cpu| channel.consume(cpu, turns);
    run_beside(bench, op, (cpus, 2), &others, &mut |bench, cpu| {
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
        channel.batches.stop(cpu);
        next.get()
    });
}

fn measure_wake<S: System>(bench: &mut Bench<'_, S>) {
    let op = Op::IpcWake;
    let Some(cpus) = cpus(bench, op) else {
        return;
    };
    let dialogue = Dialogue::new(bench.job.wake.poll_ticks());
    let others = |_: u32, cpu: &dyn Cpu| dialogue.answer(cpu);
    run_beside(bench, op, (cpus, 2), &others, &mut |bench, cpu| {
        let mut asked = 0;
        bench.measure(
            op,
            |_, repetitions| {
                dialogue.batches.begin(cpu, repetitions);
                let (mut sent, mut wrong) = (0, 0);
                repeat(repetitions, || {
                    sent += 1;
                    wrong |= dialogue.ask(cpu, sent) ^ !sent;
                });
                asked += repetitions;
                let answered = dialogue.batches.finish(cpu);
                Work::new(repetitions, wrong | answered ^ repetitions)
            },
            |_, work| work.check_equal("the second CPU did not answer each post with its number"),
        );
        dialogue.batches.stop(cpu);
        asked
    });
}

/// Questions of this CPU and answers of the second one. A place is full if there is a question, and free if there is an answer.
struct Dialogue {
    buffer: Buffer,
    /// The part of the second CPU. The result of a batch is the number of answers.
    batches: Batches,
}

impl Dialogue {
    const fn new(poll: u64) -> Self {
        Self {
            buffer: Buffer::new(0, poll),
            batches: Batches::new(poll),
        }
    }

    /// Posts `question` to the second CPU. Returns its answer.
    #[inline(always)]
    fn ask(&self, cpu: &dyn Cpu, question: u64) -> u64 {
        self.buffer.items[0].store(question, Relaxed);
        self.buffer.full.post(cpu);
        self.buffer.free.wait(cpu, self.buffer.poll);
        self.buffer.items[1].load(Relaxed)
    }

    /// Answers the questions of all batches with their complement. The result is their number.
    fn answer(&self, cpu: &dyn Cpu) {
        self.batches.serve(cpu, |questions| {
            let mut answered = 0;
            repeat(questions, || {
                self.buffer.full.wait(cpu, self.buffer.poll);
                let question = self.buffer.items[0].load(Relaxed);
                self.buffer.items[1].store(!question, Relaxed);
                answered += 1;
                self.buffer.free.post(cpu);
            });
            answered
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semaphore::testing::Yielding;
    use std::thread;

    #[test]
    fn each_question_is_answered_by_its_complement() {
        let dialogue = Dialogue::new(0);
        thread::scope(|scope| {
            scope.spawn(|| dialogue.answer(&Yielding));
            dialogue.batches.begin(&Yielding, 3);
            let answers = [1, 2, 3].map(|question| dialogue.ask(&Yielding, question));
            assert_eq!(answers, [!1, !2, !3]);
            assert_eq!(dialogue.batches.finish(&Yielding), 3);
            dialogue.batches.stop(&Yielding);
        });
    }
}
