//! How an operation is repeated and timed.
//!
//! A batch is a loop of operations between two readings of the clock. First the costs of
//! the clock and of an empty loop are calibrated ([`crate::calibration`]). Then the batch
//! grows until several in a row are long enough, which also warms up code and caches. Then
//! the batches are taken and recorded raw, each with its start, end and count. The lab
//! computes the figures.

use crate::calibration::Calibration;
use crate::system::{Reason, System};
use core::arch::asm;
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

/// The clock before a batch, as `rdtsc` gives it. [`end_batch`] puts the halves together.
pub(crate) struct Begun {
    low: u64,
    high: u64,
}

/// Reads the clock and executes a mark of this kind. No instruction of the compiler's comes
/// between them, and none is needed to keep the reading: the two moves are spelled out, so
/// that all batches have them.
#[inline(always)]
pub(crate) fn begin_batch<const KIND: u8>() -> Begun {
    let low: u64;
    let high: u64;
    // SAFETY: reads a counter, as in `ticks`; the mark is a no-op.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", "mov {low}, rax", "mov {high}, rdx",
             ".byte 0x0f, 0x1f, 0x84, 0x00, {kind}, 0x00, 0x70, 0x7a",
             kind = const KIND, low = out(reg) low, high = out(reg) high,
             out("rax") _, out("rdx") _, options(nostack, nomem, preserves_flags));
    }
    Begun { low, high }
}

/// Executes a mark of this kind and reads the clock. Returns both readings. The first passes
/// through, so that the compiler cannot put its halves together before the mark.
#[inline(always)]
pub(crate) fn end_batch<const KIND: u8>(begun: Begun) -> (u64, u64) {
    let Begun { mut low, mut high } = begun;
    let end_low: u64;
    let end_high: u64;
    // SAFETY: reads a counter, as in `ticks`; the mark is a no-op.
    unsafe {
        asm!("/* {low} {high} */",
             ".byte 0x0f, 0x1f, 0x84, 0x00, {kind}, 0x00, 0x70, 0x7a",
             "lfence", "rdtsc", "lfence",
             kind = const KIND, low = inout(reg) low, high = inout(reg) high,
             out("rax") end_low, out("rdx") end_high,
             options(nostack, nomem, preserves_flags));
    }
    (high << 32 | low, end_high << 32 | end_low)
}

/// The most repetitions of a batch: a bound on time when a clock stands still.
const MOST_REPETITIONS: u64 = 1 << 30;

/// Consecutive batches that have to be long enough before a number of repetitions is
/// accepted, judged by the shortest. One long batch proves nothing: the first of a kind
/// is slow, and any may contain an interrupt of the kernel below. Of three the shortest is
/// neither, unless two of them were disturbed.
const CONFIRMATIONS: u32 = 3;

/// Ticks that [`Bench::await_interrupt`] waits at most. Longer than the period of a kernel
/// with 100 ticks a second where an instruction is a nanosecond.
const LONGEST_WAIT: u64 = 1 << 24;

/// Ticks that [`Bench::await_regular_interrupts`] waits at most.
const LONGEST_START: u64 = 1 << 26;

/// So many intervals between interrupts, each equal to the one before, are regular: longer
/// than the 10 ms between two events of another kind, with timer interrupts every 4 ms.
const EQUAL_INTERVALS: u32 = 3;

/// An interrupt takes longer than so many readings of the clock.
const INTERRUPT: u64 = 16;

/// What a batch did.
#[derive(Clone, Copy)]
pub struct Work {
    /// Operations counted.
    pub count: u64,
    /// Input of the operation's proof.
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
    so.then_some(()).ok_or(otherwise)
}

/// A system with a job, and the costs that were calibrated on it.
pub struct Bench<'a, S> {
    /// Where the code runs.
    pub system: &'a mut S,
    /// What is asked for.
    pub job: &'a Job,
    cost: Calibration,
    /// Exits that counting them takes.
    counting: u64,
    /// Exits during the batches so far.
    exits: Option<u64>,
    /// Batches are not recorded: [`Self::warm_up`].
    warming_up: bool,
    /// No interrupt was seen for [`LONGEST_WAIT`].
    undisturbed: bool,
}

impl<'a, S: System> Bench<'a, S> {
    /// A bench whose costs are not known yet.
    pub fn new(system: &'a mut S, job: &'a Job) -> Self {
        Self {
            system,
            job,
            cost: Calibration::default(),
            counting: 0,
            exits: None,
            warming_up: false,
            undisturbed: false,
        }
    }

    /// Measures the costs of reading the clock, of an empty loop, and of counting exits.
    pub fn calibrate(&mut self) {
        self.cost = Calibration::measure();
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
        let (repetitions, last) = self.grow(&mut batch, &mut prove);
        // Operations that are counted in one turn of the loop share its cost.
        let per_turn = last.as_ref().map_or(1, |work| work.count / repetitions);
        self.begin(op, self.cost.turns / per_turn.max(1));
        let mut proved = last.map(drop);
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

    /// Returns the repetitions with which [`CONFIRMATIONS`] batches in a row take as long as
    /// the job asks and 100 times as long as their fixed part; and the work of the last one,
    /// if all on the way there was proved.
    ///
    /// The time is bounded: each number of repetitions is at least twice the one before, so
    /// that all that were too short together take about as long as the one that is accepted.
    fn grow(
        &mut self,
        batch: &mut impl FnMut(&mut S, u64) -> Work,
        prove: &mut impl FnMut(&mut S, Work) -> Result<(), Reason>,
    ) -> (u64, Result<Work, Reason>) {
        let enough = self.job.batch_ticks.max(100 * self.cost.batch);
        let mut repetitions = 1;
        let mut proved = Ok(Work::compared(0, 0_u8));
        while repetitions < MOST_REPETITIONS {
            let mut shortest = u64::MAX;
            for _ in 0..CONFIRMATIONS {
                let start = ticks();
                let work = batch(self.system, repetitions);
                shortest = shortest.min(ticks() - start);
                proved = proved.and_then(|_| prove(self.system, work).map(|()| work));
            }
            if shortest >= enough {
                break;
            }
            let factor = (enough / shortest.max(1)).clamp(2, 16);
            repetitions *= factor;
        }
        (repetitions, proved)
    }

    /// Does `batches` without recording them: code, caches and what the kernel below adapts
    /// to the load are then as they are for later batches.
    pub fn warm_up<T>(&mut self, batches: impl FnOnce(&mut Self) -> T) -> T {
        self.warming_up = true;
        let result = batches(self);
        self.warming_up = false;
        result
    }

    /// Waits until the kernel below has taken an interrupt, which shows as a gap in the
    /// clock, at most [`LONGEST_WAIT`] ticks; returns when it came. An operation then begins
    /// at the same moment between two of that kernel's timer interrupts, whatever was
    /// measured before it. On a machine without interrupts only the first call waits, and
    /// none does unless the job asks for it ([`Job::aligned`]).
    pub fn await_interrupt(&mut self) -> Option<u64> {
        if self.undisturbed || !self.job.aligned {
            return None;
        }
        let gap = INTERRUPT * self.cost.clock.max(1);
        let start = ticks();
        let mut last = start;
        while last - start < LONGEST_WAIT {
            let now = ticks();
            if now - last > gap {
                return Some(last);
            }
            last = now;
        }
        self.undisturbed = true;
        None
    }

    /// Waits until interrupts of the kernel below come at regular intervals, that is, until
    /// only its timer interrupts, at most [`LONGEST_START`] ticks. After its start a VMM still
    /// has work of its own: a thread of QEMU wakes up every 10 ms for 50 ms to free memory.
    pub fn await_regular_interrupts(&mut self) {
        let start = ticks();
        let (mut last, mut previous, mut equal) = (0, 0, 0);
        while equal < EQUAL_INTERVALS && ticks() - start < LONGEST_START {
            let Some(at) = self.await_interrupt() else {
                return;
            };
            let interval = at - last;
            let is_equal = interval.abs_diff(previous) <= previous / 128;
            equal = if is_equal { equal + 1 } else { 0 };
            (last, previous) = (at, interval);
        }
    }

    /// Times one batch and tells it, unless it counted nothing. `batch` returns
    /// what it counted, and what its caller wants to know.
    #[inline(always)]
    pub fn timed<T>(&mut self, op: Op, batch: impl FnOnce(&mut S) -> (u64, T)) -> T {
        if self.warming_up {
            return batch(self.system).1;
        }
        let (start, end, (count, result)) = self.counted(|system| {
            let begun = begin_batch::<{ mark::BEGIN }>();
            let done = batch(system);
            let (start, end) = end_batch::<{ mark::END }>(begun);
            (start, end, done)
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

    /// Records that `op` begins, whose batches are [`Self::timed`], and waits for the moment
    /// at which every operation begins. `loop_cost` is 0 where the batches have no loop like
    /// the empty one.
    pub fn begin(&mut self, op: Op, loop_cost: u64) {
        self.begin_at_cost(op, self.cost.batch, loop_cost);
        self.await_interrupt();
    }

    /// Records that `op` begins, whose samples are the times between two events.
    pub fn begin_unmarked(&mut self, op: Op) {
        self.begin_at_cost(op, self.cost.clock, 0);
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
        self.cost.turns
    }
}

/// Does `body` `repetitions` times, at least once: a loop that may turn zero times would
/// test for that, which the empty loop and the measured ones would do differently. The
/// compiler does not know how often the loop turns, so it cannot do several turns in one.
#[inline(always)]
pub fn repeat(repetitions: u64, mut body: impl FnMut()) {
    debug_assert!(repetitions != 0);
    let mut left = repetitions;
    loop {
        body();
        // SAFETY: no instruction at all.
        unsafe { asm!("/* {0} */", inout(reg) left, options(nomem, nostack, preserves_flags)) };
        left = left.wrapping_sub(1);
        if left == 0 {
            break;
        }
    }
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.wrapping_sub(before?))
}
