//! How an operation is repeated and timed.
//!
//! A batch is a loop of operations between two readings of the clock. First the
//! cost of the clock and of an empty loop are measured; then the batch grows
//! until reading the clock is less than 1% of it; then the batches are taken
//! and told raw, each with its start, end and count. Nothing is computed here that the
//! lab could compute later.

use crate::system::{Reason, System};
use core::arch::asm;
use core::hint::black_box;
use trapline_abi::frame::clip;
use trapline_abi::{mark, Job, Op, Record, Stage};

/// The clock: the time stamp counter, with nothing before or after it in
/// flight (Intel SDM volume 2, RDTSC: lfence on both sides).
#[inline(always)]
pub fn ticks() -> u64 {
    let low: u64;
    let high: u64;
    // SAFETY: reads a counter; no environment of ours sets CR4.TSD.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", out("rax") low, out("rdx") high,
             options(nostack, nomem, preserves_flags));
    }
    high << 32 | low
}

/// The clock as [`ticks`] reads it, and a mark of this kind right behind: nothing
/// of the compiler's comes between them.
#[inline(always)]
fn ticks_then_mark<const KIND: u8>() -> u64 {
    let low: u64;
    let high: u64;
    // SAFETY: reads a counter, as in `ticks`; the mark is a no-op.
    unsafe {
        asm!("lfence", "rdtsc", "lfence",
             ".byte 0x0f, 0x1f, 0x84, 0x00, {kind}, 0x00, 0x70, 0x7a",
             kind = const KIND, out("rax") low, out("rdx") high,
             options(nostack, nomem, preserves_flags));
    }
    high << 32 | low
}

/// A mark of this kind, and the clock right behind.
#[inline(always)]
fn mark_then_ticks<const KIND: u8>() -> u64 {
    let low: u64;
    let high: u64;
    // SAFETY: reads a counter, as in `ticks`; the mark is a no-op.
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x84, 0x00, {kind}, 0x00, 0x70, 0x7a",
             "lfence", "rdtsc", "lfence",
             kind = const KIND, out("rax") low, out("rdx") high,
             options(nostack, nomem, preserves_flags));
    }
    high << 32 | low
}

/// Turns of the empty loop that [`Record::Begin::loop_cost`] stands for.
pub const LOOP_TURNS: u64 = 1024;

/// How many repetitions a batch may have at most: a bound on time when a clock
/// stands still.
const MOST_REPETITIONS: u64 = 1 << 30;

/// What a batch did.
#[derive(Clone, Copy)]
pub struct Work {
    /// Operations counted.
    pub count: u64,
    /// What its proof is judged by: what that is, the operation knows.
    pub evidence: u64,
}

impl Work {
    /// `count` operations that all gave what was expected if `differences` is 0.
    pub fn compared(count: u64, differences: impl Into<u64>) -> Self {
        Self {
            count,
            evidence: differences.into(),
        }
    }

    /// The judgement of [`Self::compared`].
    pub fn alike(&self, otherwise: Reason) -> Result<(), Reason> {
        proved(self.evidence == 0, otherwise)
    }
}

/// A proof's outcome.
pub fn proved(so: bool, otherwise: Reason) -> Result<(), Reason> {
    if so {
        Ok(())
    } else {
        Err(otherwise)
    }
}

/// A system with a job, and the costs that were calibrated on it.
pub struct Bench<'a, S> {
    /// Where the code runs.
    pub system: &'a mut S,
    /// What is asked for.
    pub job: &'a Job,
    clock_cost: u64,
    /// The same with the marks around a batch.
    batch_cost: u64,
    loop_cost: u64,
    /// Exits that counting them takes.
    counting: u64,
    /// Exits during the batches so far.
    exits: Option<u64>,
}

impl<'a, S: System> Bench<'a, S> {
    /// A bench whose costs are not known yet.
    pub fn new(system: &'a mut S, job: &'a Job) -> Self {
        Self {
            system,
            job,
            clock_cost: 0,
            batch_cost: 0,
            loop_cost: 0,
            counting: 0,
            exits: None,
        }
    }

    /// Measures what reading the clock and an empty loop cost here.
    pub fn calibrate(&mut self) {
        self.clock_cost = least(16, || {
            let start = ticks();
            ticks() - start
        });
        self.batch_cost = least(16, || {
            let start = ticks_then_mark::<{ mark::IDLE }>();
            mark_then_ticks::<{ mark::IDLE }>() - start
        });
        self.loop_cost = least(16, time_empty_loop).saturating_sub(self.clock_cost);
        let before = self.system.exits();
        let after = self.system.exits();
        self.exits = before.map(|_| 0);
        self.counting = difference(before, after).unwrap_or(0);
    }

    /// Measures `op` if the job wants it: grows a batch, then takes the samples.
    /// `batch` does the given number of operations; `prove` judges them when the
    /// clock has been read.
    pub fn measure(
        &mut self,
        op: Op,
        mut batch: impl FnMut(&mut S, u64) -> Work,
        mut prove: impl FnMut(&mut S, Work) -> Result<(), Reason>,
    ) {
        if !self.job.wants(op) {
            return;
        }
        let (repetitions, mut proved) = self.grow(&mut batch, &mut prove);
        self.begin(op, self.loop_cost);
        for _ in 0..self.job.batches {
            let work = self.timed(op, |system| {
                let work = batch(system, repetitions);
                (work.count, work)
            });
            proved = proved.and(prove(self.system, work));
        }
        match proved {
            Ok(()) => self.end(op, self.job.batches, u64::from(op.number())),
            Err(reason) => self.fail(op, reason),
        }
    }

    /// The repetitions with which reading the clock is less than 1% of a batch
    /// and a batch is as long as the job asks; and whether all work on the way
    /// there was proved.
    fn grow(
        &mut self,
        batch: &mut impl FnMut(&mut S, u64) -> Work,
        prove: &mut impl FnMut(&mut S, Work) -> Result<(), Reason>,
    ) -> (u64, Result<(), Reason>) {
        let enough = self.job.batch_ticks.max(100 * self.clock_cost);
        let mut repetitions = 1;
        let mut proved = Ok(());
        while repetitions < MOST_REPETITIONS {
            let start = ticks();
            let work = batch(self.system, repetitions);
            let took = ticks() - start;
            proved = proved.and(prove(self.system, work));
            if took >= enough {
                break;
            }
            let factor = (enough / took.max(1)).clamp(2, 16);
            repetitions *= factor;
        }
        (repetitions, proved)
    }

    /// Times one batch and tells it, unless it counted nothing. `batch` returns
    /// what it counted, and what its caller wants to know.
    #[inline(always)]
    pub fn timed<T>(&mut self, op: Op, batch: impl FnOnce(&mut S) -> (u64, T)) -> T {
        let (start, end, (count, result)) = self.counted(|system| {
            let start = ticks_then_mark::<{ mark::BEGIN }>();
            let done = batch(system);
            (start, mark_then_ticks::<{ mark::END }>(), done)
        });
        if count != 0 {
            self.sample(op, start, end, count);
        }
        result
    }

    /// Does `batch` and adds the exits that it took to those of the operation.
    #[inline(always)]
    pub fn counted<T>(&mut self, batch: impl FnOnce(&mut S) -> T) -> T {
        let before = self.system.exits();
        let result = batch(self.system);
        let during = difference(before, self.system.exits());
        if let (Some(sum), Some(during)) = (&mut self.exits, during) {
            *sum += during.saturating_sub(self.counting);
        }
        result
    }

    /// Tells that `op` begins, whose batches are [`Self::timed`]. `loop_cost` is 0
    /// where they have no loop like the empty one.
    pub fn begin(&mut self, op: Op, loop_cost: u64) {
        self.begin_at_cost(op, self.batch_cost, loop_cost);
    }

    /// Tells that `op` begins, whose samples are from bare readings of the clock.
    pub fn begin_unmarked(&mut self, op: Op) {
        self.begin_at_cost(op, self.clock_cost, 0);
    }

    fn begin_at_cost(&mut self, op: Op, clock_cost: u64, loop_cost: u64) {
        let exits = self.exits;
        self.system.say(&Record::Begin {
            op,
            clock_cost,
            loop_cost,
            exits,
        });
    }

    /// Tells one batch.
    pub fn sample(&mut self, op: Op, start: u64, end: u64, count: u64) {
        self.system.say(&Record::Sample {
            op,
            start,
            end,
            count,
        });
    }

    /// Tells that `op` is complete and its work proved.
    pub fn end(&mut self, op: Op, samples: u32, check: u64) {
        let exits = self.exits;
        self.system.say(&Record::End {
            op,
            samples,
            check,
            exits,
        });
    }

    /// Tells that `op` did not do its work.
    pub fn fail(&mut self, op: Op, reason: &str) {
        self.system.say(&Record::Fail {
            op,
            reason: clip(reason),
        });
    }

    /// Tells, if the job wants `op`, that it cannot be measured here.
    pub fn skip(&mut self, op: Op, reason: &str) {
        if self.job.wants(op) {
            self.system.say(&Record::Skip {
                op,
                reason: clip(reason),
            });
        }
    }

    /// Tells when a stage was reached.
    pub fn stage(&mut self, stage: Stage, at: u64) {
        self.system.say(&Record::Stage { stage, at });
    }

    /// The empty loop's cost for operations timed outside [`Self::measure`].
    pub fn loop_cost(&self) -> u64 {
        self.loop_cost
    }
}

/// Does `body` `repetitions` times. The loop is the one that is calibrated: the
/// compiler does not know how often it turns, so it cannot do several turns in one.
#[inline(always)]
pub fn repeat(repetitions: u64, mut body: impl FnMut()) {
    let mut left = repetitions;
    while left != 0 {
        body();
        // SAFETY: no instruction at all.
        unsafe { asm!("/* {0} */", inout(reg) left, options(nomem, nostack, preserves_flags)) };
        left -= 1;
    }
}

fn time_empty_loop() -> u64 {
    let turns = black_box(LOOP_TURNS);
    let start = ticks();
    // SAFETY: no instruction at all; it only keeps the loop from being removed.
    repeat(turns, || unsafe {
        asm!("", options(nomem, nostack, preserves_flags))
    });
    ticks() - start
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.wrapping_sub(before?))
}

fn least(tries: u32, mut measure: impl FnMut() -> u64) -> u64 {
    (0..tries).map(|_| measure()).min().unwrap_or(0)
}
