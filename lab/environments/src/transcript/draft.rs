//! One operation while it is being told.

use super::window::{self, Window};
use super::Seen;
use trapline_abi::interrupt::unpack;
use trapline_abi::{block, Interrupt, Op};
use trapline_model::observed::{Outcome, Sample};

/// Batches of one operation that are kept. The largest job asks for some
/// hundreds; a guest that sends more only wants our memory.
pub const MOST_SAMPLES: usize = 1 << 14;

/// An operation that has begun.
pub struct Draft {
    /// Which.
    pub op: Op,
    clock_cost: u64,
    loop_cost: u64,
    exits: Option<u64>,
    seen: Seen,
    samples: Vec<Sample>,
    surplus: u64,
    interrupts: Vec<Interrupt>,
    /// Whether there were more requests than were asked for.
    too_many: bool,
    /// What cannot be believed of interrupts, of the first where that is so.
    nonsense: Option<&'static str>,
    /// Windows that were told of.
    windows: u32,
    /// When each batch was told and when it was heard, where that is known.
    stamps: Vec<Stamp>,
}

/// One batch by two clocks, in ticks of each.
#[derive(Clone, Copy)]
struct Stamp {
    said: u64,
    heard: u64,
}

impl Stamp {
    /// How late it was heard, give or take a constant. Only comparable.
    fn lag(&self) -> i64 {
        self.heard.wrapping_sub(self.said) as i64
    }
}

/// What an operation was told to have come to.
pub struct Told {
    /// Samples that the guest says it has sent.
    pub samples: u32,
    /// The checksum.
    pub check: u64,
    /// The exits it counted so far.
    pub exits: Option<u64>,
    /// Whether records were lost since the operation began.
    pub damaged: bool,
}

impl Draft {
    /// An operation that begins now.
    pub fn new(op: Op, clock_cost: u64, loop_cost: u64, exits: Option<u64>, seen: Seen) -> Self {
        Self {
            op,
            clock_cost,
            loop_cost,
            exits,
            seen,
            samples: Vec::new(),
            surplus: 0,
            interrupts: Vec::new(),
            too_many: false,
            nonsense: None,
            windows: 0,
            stamps: Vec::new(),
        }
    }

    /// Another batch, told by the guest at `said` (its clock) and heard at
    /// `heard` (ours), both in ticks.
    pub fn sample(&mut self, sample: Sample, said: u64, heard: Option<u64>) {
        if self.samples.len() < MOST_SAMPLES {
            self.samples.push(sample);
            self.stamps.extend(heard.map(|heard| Stamp { said, heard }));
        } else {
            self.surplus += 1;
        }
    }

    /// Further interrupts, of a timer that expires so many times. Their numbers ascend
    /// and none is beyond the last expiry, so no guest can make us keep more.
    pub fn interrupts(&mut self, packed: &[u8], expiries: u32, said: u64, heard: Option<u64>) {
        let Self {
            interrupts,
            nonsense,
            ..
        } = self;
        // What was received was looked through, so nothing is found wrong here.
        let _ = unpack(packed, &mut |interrupt| {
            let before = interrupts.last().map(|last| last.sequence);
            if nonsense.is_none() {
                *nonsense = window::nonsense(&interrupt, before, expiries);
            }
            if nonsense.is_none() {
                interrupts.push(interrupt);
            }
        });
        self.stamps.extend(heard.map(|heard| Stamp { said, heard }));
    }

    /// Further requests to a disk, of which so many were asked for.
    pub fn requests(&mut self, packed: &[u8], asked: u32, said: u64, heard: Option<u64>) {
        let Self {
            samples, too_many, ..
        } = self;
        // What was received was looked through, so nothing is found wrong here.
        let _ = block::unpack(
            packed,
            &mut |block::Request { start, end }| match samples.len() < asked as usize {
                true => samples.push(Sample {
                    start,
                    end,
                    count: 1,
                    host_ns: None,
                }),
                false => *too_many = true,
            },
        );
        self.stamps.extend(heard.map(|heard| Stamp { said, heard }));
    }

    /// The window that is complete with what was told last, if one is and was not
    /// told of before. `offset` is how far the guest's clock is ahead of that by which
    /// the timer is due, if that is known.
    pub fn window_told(&mut self, expiries: u32, offset: Option<u64>) -> Option<Window> {
        let window = Window::complete(self.op, &self.interrupts, expiries, offset)?;
        let is_new = window.number >= self.windows;
        self.windows = self.windows.max(window.number + 1);
        is_new.then_some(window)
    }

    /// What came of it, and time that passed meanwhile by the guest's clock and by
    /// ours, in ticks.
    pub fn end(self, told: &Told, seen: Seen) -> (Outcome, Option<(u64, u64)>) {
        if let Some(reason) = self.objection(told) {
            return (Outcome::Failed(reason), None);
        }
        let elapsed = self.elapsed();
        let counted = difference(self.exits, told.exits);
        let counted = counted.or_else(|| difference(self.seen.exits, seen.exits));
        let outcome = Outcome::Measured {
            clock_cost: self.clock_cost,
            loop_cost: self.loop_cost,
            samples: self.samples,
            interrupts: self.interrupts,
            check: told.check,
            exits: counted,
            host_cpu_ns: difference(self.seen.cpu_ns, seen.cpu_ns),
            elapsed: None,
        };
        (outcome, elapsed)
    }

    /// The time from an early batch to a late one. A batch is heard late whenever we
    /// are not scheduled at once, so of either half the quickest is taken.
    fn elapsed(&self) -> Option<(u64, u64)> {
        let (early, late) = self.stamps.split_at(self.stamps.len() / 2);
        let quickest = |half: &[Stamp]| half.iter().copied().min_by_key(Stamp::lag);
        let (from, to) = (quickest(early)?, quickest(late)?);
        Some((
            to.said.checked_sub(from.said)?,
            to.heard.checked_sub(from.heard)?,
        ))
    }

    /// Why what was told cannot be believed.
    fn objection(&self, told: &Told) -> Option<String> {
        if self.surplus > 0 {
            return Some(format!("more than {MOST_SAMPLES} samples were sent"));
        }
        if self.too_many {
            return Some("more requests were told than were asked for".to_owned());
        }
        if let Some(nonsense) = self.nonsense {
            return Some(nonsense.to_owned());
        }
        let heard = (self.samples.len() + self.interrupts.len()) as u64;
        let lost = heard < u64::from(told.samples) && told.damaged;
        if heard != u64::from(told.samples) && !lost {
            return Some(format!(
                "the guest says that it sent {} samples, but {heard} arrived",
                told.samples
            ));
        }
        if self.samples.iter().any(|sample| sample.count == 0) {
            return Some("a sample of no operations was sent".to_owned());
        }
        (heard == 0).then(|| "no sample was sent".to_owned())
    }
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after?.checked_sub(before?)
}
