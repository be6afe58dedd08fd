//! One operation while its records arrive.

use crate::window::{self, Window};
use crate::Usage;
use trapline_abi::interrupt::unpack;
use trapline_abi::operation::Measure;
use trapline_abi::{block, Interrupt, Op};
use trapline_model::observed::{IdleWork, Outcome, Sample};

/// Largest difference of the clocks of two CPUs of a guest, in ticks.
const CLOCK_SKEW: u64 = 1_000_000;

/// Reason of a batch that ends after its own record.
const FROM_THE_FUTURE: &str = "a batch ends after the guest reported it";

/// Reason of a batch that begins before the one before it has ended.
const OVERLAPPING: &str = "a batch begins before the end of the one before";

/// Reason of a batch of more than [`MOST_PER_TICK`] operations a tick.
const TOO_FAST: &str = "a batch has more operations than instructions or cycles";

/// Operations that a processor completes in one tick, at most: a clock of instructions counts at least one for each, and a
/// core executes fewer than this many instructions in a tick of the TSC.
const MOST_PER_TICK: u64 = 16;

/// Limit of the batches of one operation. The largest job requests some hundreds.
pub const MAX_SAMPLES: usize = 1 << 14;

/// Collects the records of an operation from Begin to End.
pub struct OperationBuilder {
    /// The operation.
    pub op: Op,
    clock_cost: u64,
    loop_cost: u64,
    exits: Option<u64>,
    usage: Usage,
    samples: Vec<Sample>,
    too_many_samples: bool,
    interrupts: Vec<Interrupt>,
    too_many_requests: bool,
    /// Work between the batches.
    pub idle: Option<IdleWork>,
    /// Reason why the first implausible interrupt or batch was rejected.
    implausible: Option<&'static str>,
    /// Number of windows returned by [`Self::completed_window`].
    windows: u32,
    /// Arrival of each batch, where known.
    stamps: Vec<Stamp>,
}

/// One batch on both clocks, in ticks.
#[derive(Clone, Copy)]
struct Stamp {
    sent: u64,
    received: u64,
}

impl Stamp {
    /// Returns the delay of the batch plus an unknown constant.
    fn lag(&self) -> i64 {
        self.received.wrapping_sub(self.sent) as i64
    }
}

/// The End record of an operation.
pub struct EndRecord {
    /// Number of samples sent.
    pub samples: u32,
    /// The checksum.
    pub check: u64,
    /// Exits counted so far.
    pub exits: Option<u64>,
    /// Records were damaged since the operation began.
    pub damaged: bool,
}

impl OperationBuilder {
    /// Starts an operation.
    pub fn new(op: Op, clock_cost: u64, loop_cost: u64, exits: Option<u64>, usage: Usage) -> Self {
        Self {
            op,
            clock_cost,
            loop_cost,
            exits,
            usage,
            samples: Vec::new(),
            too_many_samples: false,
            interrupts: Vec::new(),
            too_many_requests: false,
            idle: None,
            implausible: None,
            windows: 0,
            stamps: Vec::new(),
        }
    }

    /// Adds a batch: `sent` and `received` are ticks of the guest's and of the host's clock.
    pub fn sample(&mut self, sample: Sample, sent: u64, received: Option<u64>) {
        if self.samples.len() == MAX_SAMPLES {
            self.too_many_samples = true;
            return;
        }
        if sample.end > sent.saturating_add(CLOCK_SKEW) {
            self.implausible.get_or_insert(FROM_THE_FUTURE);
        }
        if self.op.measure() == Measure::Batch {
            self.check_batch(&sample);
        }
        self.samples.push(sample);
        self.stamp(sent, received);
    }

    /// Checks a batch between two readings of the clock. One that ends before it begins is a matter of the statistics.
    fn check_batch(&mut self, sample: &Sample) {
        let before = self.samples.last().map_or(0, |before| before.end);
        if sample.start.saturating_add(CLOCK_SKEW) < before {
            self.implausible.get_or_insert(OVERLAPPING);
        }
        let ticks = sample.end.checked_sub(sample.start);
        if ticks.is_some_and(|ticks| sample.count > ticks.saturating_mul(MOST_PER_TICK)) {
            self.implausible.get_or_insert(TOO_FAST);
        }
    }

    /// Adds interrupts of a timer with `expiries` expiries. Their sequence numbers ascend below
    /// `expiries`, which bounds their count.
    pub fn interrupts(&mut self, packed: &[u8], expiries: u32, sent: u64, received: Option<u64>) {
        let Self {
            interrupts,
            implausible,
            ..
        } = self;
        // The frame decoder has validated the packing.
        let _ = unpack(packed, &mut |interrupt| {
            let before = interrupts.last().map(|last| last.sequence);
            if implausible.is_none() {
                *implausible = window::implausible(&interrupt, before, expiries);
            }
            if implausible.is_none() {
                interrupts.push(interrupt);
            }
        });
        self.stamp(sent, received);
    }

    /// Adds disk requests, of at most `requested`.
    pub fn requests(&mut self, packed: &[u8], requested: u32, sent: u64, received: Option<u64>) {
        let Self {
            samples,
            too_many_requests,
            ..
        } = self;
        // The frame decoder has validated the packing.
        let _ = block::unpack(packed, &mut |block::DiskRequest { start, end }| {
            if samples.len() < requested as usize {
                samples.push(Sample {
                    start,
                    end,
                    count: 1,
                    host_ns: None,
                    excluded: 0,
                })
            } else {
                *too_many_requests = true
            }
        });
        self.stamp(sent, received);
    }

    fn stamp(&mut self, sent: u64, received: Option<u64>) {
        let stamp = received.map(|received| Stamp { sent, received });
        self.stamps.extend(stamp);
    }

    /// Returns the window completed by the last record, once. `offset` is the guest's clock minus
    /// the clock of the timer, if known.
    pub fn completed_window(&mut self, expiries: u32, offset: Option<u64>) -> Option<Window> {
        let window = Window::complete(self.op, &self.interrupts, expiries, offset)?;
        let is_new = window.number >= self.windows;
        self.windows = self.windows.max(window.number + 1);
        is_new.then_some(window)
    }

    /// Returns the outcome, and the ticks between an early and a late batch on the guest's and on the
    /// host's clock.
    pub fn end(self, end: &EndRecord, usage: Usage) -> (Outcome, Option<(u64, u64)>) {
        if let Some(reason) = self.rejection(end) {
            return (Outcome::Failed(reason), None);
        }
        let elapsed = self.elapsed();
        let counted = difference(self.exits, end.exits);
        let outcome = Outcome::Measured {
            clock_cost: self.clock_cost,
            loop_cost: self.loop_cost,
            samples: self.samples,
            interrupts: self.interrupts,
            trials: Vec::new(),
            check: end.check,
            exits: counted.or_else(|| difference(self.usage.exits, usage.exits)),
            host_cpu_ns: difference(self.usage.cpu_ns, usage.cpu_ns),
            idle: self.idle,
            elapsed: None,
        };
        (outcome, elapsed)
    }

    /// Returns the time between the least delayed batch of the first half and that of the second,
    /// because scheduling delays arrivals.
    fn elapsed(&self) -> Option<(u64, u64)> {
        let (early, late) = self.stamps.split_at(self.stamps.len() / 2);
        let least_delayed = |half: &[Stamp]| half.iter().copied().min_by_key(Stamp::lag);
        let (from, to) = (least_delayed(early)?, least_delayed(late)?);
        Some((
            to.sent.checked_sub(from.sent)?,
            to.received.checked_sub(from.received)?,
        ))
    }

    /// Returns the reason why the records cannot be used, if any.
    fn rejection(&self, end: &EndRecord) -> Option<String> {
        if self.too_many_samples {
            return Some(format!("more than {MAX_SAMPLES} samples arrived"));
        }
        if self.too_many_requests {
            return Some("more disk requests arrived than were requested".to_owned());
        }
        if let Some(reason) = self.implausible {
            return Some(reason.to_owned());
        }
        let arrived = (self.samples.len() + self.interrupts.len()) as u64;
        let lost = arrived < u64::from(end.samples) && end.damaged;
        if arrived != u64::from(end.samples) && !lost {
            return Some(format!(
                "guest sent {} samples, but {arrived} arrived",
                end.samples
            ));
        }
        if self.samples.iter().any(|sample| sample.count == 0) {
            return Some("a sample has zero repetitions".to_owned());
        }
        (arrived == 0).then(|| "no sample arrived".to_owned())
    }
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after?.checked_sub(before?)
}
