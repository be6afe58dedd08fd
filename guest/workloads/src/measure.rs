//! Repetition and timing of operations.
//!
//! A batch is a loop of operations between two readings of the clock. First the costs of the
//! clock and of an empty loop are calibrated ([`crate::calibration`]). Then the number of
//! repetitions grows until several batches in a row are long enough, which also warms up code and
//! caches. Then the batches are recorded, each with its start, end and count. The lab computes the
//! figures.

use crate::calibration::Calibration;
use crate::clock::{begin_batch, end_batch};
use crate::system::{Reason, System};
use trapline_abi::frame::truncate;
use trapline_abi::{marker, Job, Op, Record, Stage};

pub use crate::clock::{repeat, ticks};

/// Maximum number of repetitions, in case the clock stands still.
const MOST_REPETITIONS: u64 = 1 << 30;

/// Consecutive batches that must be long enough before a number of repetitions is accepted. The
/// shortest decides: a first batch is slow, and any batch may contain an interrupt of the host
/// kernel.
const CONFIRMATIONS: u32 = 3;

/// Fewest batches of an operation that has exceeded its budget.
const FEWEST_BATCHES: u32 = 3;

/// Maximum wait of [`Bench::await_interrupt`], in ticks. Longer than the period of a kernel with
/// HZ=100 if an instruction takes a nanosecond.
const LONGEST_WAIT: u64 = 1 << 24;

/// Maximum wait of [`Bench::await_regular_interrupts`], in ticks.
const LONGEST_START: u64 = 1 << 26;

/// Number of equal consecutive intervals that are regular: with timer interrupts every 4 ms it is
/// longer than the 10 ms between two events of other kinds.
const EQUAL_INTERVALS: u32 = 3;

/// Minimum duration of an interrupt, in readings of the clock.
const INTERRUPT: u64 = 16;

/// Result of a batch.
#[derive(Clone, Copy)]
pub struct Work {
    /// Number of operations.
    pub count: u64,
    /// Input of the verification.
    pub evidence: u64,
}

impl Work {
    /// `count` operations, which all returned the expected value if `differences` is 0.
    pub fn new(count: u64, differences: impl Into<u64>) -> Self {
        Self {
            count,
            evidence: differences.into(),
        }
    }

    /// Returns an error unless all operations returned the expected value.
    pub fn check_equal(&self, reason: Reason) -> Result<(), Reason> {
        ensure(self.evidence == 0, reason)
    }
}

/// Returns an error with `reason` unless `condition` holds.
pub fn ensure(condition: bool, reason: Reason) -> Result<(), Reason> {
    condition.then_some(()).ok_or(reason)
}

/// System with a job and calibrated costs.
pub struct Bench<'a, S> {
    /// System that runs the job.
    pub system: &'a mut S,
    /// Job to run.
    pub job: &'a Job,
    cost: Calibration,
    /// Exits caused by reading the number of exits.
    counting: u64,
    /// Exits during all batches so far.
    exits: Option<u64>,
    /// Begin of the current operation, in ticks.
    begun: u64,
    /// Batches are not recorded, see [`Self::warm_up`].
    warming_up: bool,
    /// No interrupt occurred for [`LONGEST_WAIT`].
    has_no_interrupts: bool,
}

impl<'a, S: System> Bench<'a, S> {
    /// Creates a bench without calibrated costs.
    pub fn new(system: &'a mut S, job: &'a Job) -> Self {
        Self {
            system,
            job,
            cost: Calibration::default(),
            counting: 0,
            exits: None,
            begun: 0,
            warming_up: false,
            has_no_interrupts: false,
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

    /// Measures `op` if the job selects it: chooses the number of repetitions, then records the
    /// batches. `batch` performs the given number of operations; `verify` checks its result outside
    /// of the measured time.
    pub fn measure(
        &mut self,
        op: Op,
        mut batch: impl FnMut(&mut S, u64) -> Work,
        mut verify: impl FnMut(&mut S, Work) -> Result<(), Reason>,
    ) {
        if !self.job.selects(op) {
            return;
        }
        let (repetitions, last) = self.choose_repetitions(&mut batch, &mut verify);
        // Several operations in one turn of the loop share its cost.
        let per_turn = last.as_ref().map_or(1, |work| work.count / repetitions);
        self.begin(op, self.cost.turns / per_turn.max(1));
        let mut verified = last.map(drop);
        let mut recorded = 0;
        while self.continues(recorded, self.job.batches) {
            let work = self.timed(op, |system| {
                let work = batch(system, repetitions);
                (work.count, work)
            });
            verified = verified.and(verify(self.system, work));
            recorded += 1;
        }
        match verified {
            Ok(()) => self.end(op, recorded, u64::from(op.number())),
            Err(reason) => self.fail(op, reason),
        }
    }

    /// Returns the number of repetitions with which [`CONFIRMATIONS`] batches in a row are at
    /// least as long as the job requires, and 100 times as long as their fixed cost; and the
    /// result of the last batch, or the first failed verification.
    ///
    /// Each number of repetitions is at least twice the previous one, so all shorter batches
    /// together take about as long as the accepted ones.
    fn choose_repetitions(
        &mut self,
        batch: &mut impl FnMut(&mut S, u64) -> Work,
        verify: &mut impl FnMut(&mut S, Work) -> Result<(), Reason>,
    ) -> (u64, Result<Work, Reason>) {
        let enough = self.job.batch_ticks.max(100 * self.cost.batch);
        let mut repetitions = 1;
        let mut verified = Ok(Work::new(0, 0_u8));
        while repetitions < MOST_REPETITIONS {
            let mut shortest = u64::MAX;
            for _ in 0..CONFIRMATIONS {
                let start = ticks();
                let work = batch(self.system, repetitions);
                shortest = shortest.min(ticks() - start);
                verified = verified.and_then(|_| verify(self.system, work).map(|()| work));
            }
            if shortest >= enough {
                break;
            }
            let factor = (enough / shortest.max(1)).clamp(2, 16);
            repetitions *= factor;
        }
        (repetitions, verified)
    }

    /// Runs `batches` without recording them, to warm up code, caches and adaptive mechanisms of
    /// the host kernel.
    pub fn warm_up<T>(&mut self, batches: impl FnOnce(&mut Self) -> T) -> T {
        self.warming_up = true;
        let result = batches(self);
        self.warming_up = false;
        result
    }

    /// Waits until the host kernel handles an interrupt, which is visible as a gap in the clock,
    /// for at most [`LONGEST_WAIT`] ticks. Returns the time of the interrupt. So each operation
    /// begins at the same point between two timer interrupts, independent of previous
    /// measurements. On a machine without interrupts only the first call waits. Does nothing
    /// unless [`Job::aligned`] is set.
    pub fn await_interrupt(&mut self) -> Option<u64> {
        if self.has_no_interrupts || !self.job.aligned {
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
        self.has_no_interrupts = true;
        None
    }

    /// Waits until interrupts of the host kernel occur at regular intervals, that is, until only
    /// its timer interrupts, for at most [`LONGEST_START`] ticks. A VMM still works after its
    /// start: a thread of QEMU wakes up every 10 ms for 50 ms to free memory.
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

    /// Times one batch and records it, unless its count is 0. `batch` returns the count and a
    /// result for the caller.
    #[inline(always)]
    pub fn timed<T>(&mut self, op: Op, batch: impl FnOnce(&mut S) -> (u64, T)) -> T {
        if self.warming_up {
            return batch(self.system).1;
        }
        let (start, end, (count, result)) = self.count_exits(|system| {
            let begun = begin_batch::<{ marker::BEGIN }>();
            let done = batch(system);
            let (start, end) = end_batch::<{ marker::END }>(begun);
            (start, end, done)
        });
        if count != 0 {
            self.sample(op, start, end, count);
        }
        result
    }

    /// Runs `batch` and adds its exits to [`Self::exits`].
    #[inline(always)]
    pub fn count_exits<T>(&mut self, batch: impl FnOnce(&mut S) -> T) -> T {
        let before = self.system.exits();
        let result = batch(self.system);
        let during = difference(before, self.system.exits());
        if let (Some(sum), Some(during)) = (&mut self.exits, during) {
            *sum += during.saturating_sub(self.counting);
        }
        result
    }

    /// Sends the begin of `op`, whose batches are [`Self::timed`], and waits for an interrupt.
    /// `loop_cost` is 0 if the batches have no loop like the empty one.
    pub fn begin(&mut self, op: Op, loop_cost: u64) {
        self.begin_at_cost(op, self.cost.batch, loop_cost);
        self.await_interrupt();
        self.begun = ticks();
    }

    /// Returns true if another batch follows `recorded` ones: at most `wanted`, and no more than [`FEWEST_BATCHES`] after
    /// [`Job::budget_ticks`].
    pub fn continues(&self, recorded: u32, wanted: u32) -> bool {
        let is_within_budget = || ticks().wrapping_sub(self.begun) < self.job.budget_ticks;
        recorded < wanted && (recorded < FEWEST_BATCHES || is_within_budget())
    }

    /// Sends the begin of `op`, whose samples are times between two events.
    pub fn begin_unmarked(&mut self, op: Op) {
        self.begin_at_cost(op, self.cost.clock, 0);
    }

    fn begin_at_cost(&mut self, op: Op, clock_cost: u64, loop_cost: u64) {
        let exits = self.exits;
        self.system.send(&Record::Begin {
            op,
            clock_cost,
            loop_cost,
            exits,
        });
    }

    /// Sends one sample.
    pub fn sample(&mut self, op: Op, start: u64, end: u64, count: u64) {
        self.system.send(&Record::Sample {
            op,
            start,
            end,
            count,
        });
    }

    /// Sends the end of `op`, whose work is verified.
    pub fn end(&mut self, op: Op, samples: u32, check: u64) {
        let exits = self.exits;
        self.system.send(&Record::End {
            op,
            samples,
            check,
            exits,
        });
    }

    /// Sends the failure of `op`.
    pub fn fail(&mut self, op: Op, reason: &str) {
        self.system.send(&Record::Fail {
            op,
            reason: truncate(reason),
        });
    }

    /// Sends the reason why `op` is skipped, if the job selects it.
    pub fn skip(&mut self, op: Op, reason: &str) {
        if self.job.selects(op) {
            self.system.send(&Record::Skip {
                op,
                reason: truncate(reason),
            });
        }
    }

    /// Sends the time of a stage.
    pub fn stage(&mut self, stage: Stage, at: u64) {
        self.system.send(&Record::Stage { stage, at });
    }

    /// Returns the cost of the empty loop, for operations timed outside of [`Self::measure`].
    pub fn loop_cost(&self) -> u64 {
        self.cost.turns
    }
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.wrapping_sub(before?))
}
