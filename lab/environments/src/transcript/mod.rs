//! From the bytes that one guest sent to an account of what it did. Pure: no
//! process, no clock, so that the most hostile guest can be played in a test.
//!
//! A guest's console is untrusted. Whatever arrives, memory stays bounded: so
//! many samples an operation, so much log, so many problems, and after
//! [`MOST_BYTES`] the guest counts as flooding. Nothing that it says about itself
//! is believed without the check that is possible: an operation must have been
//! asked for, must end once, and must have sent what it says it sent.

mod draft;
mod log;
#[cfg(test)]
mod tests;
mod window;

pub use log::Log;
pub use window::{Lateness, Window};

use draft::{Draft, Told};
use std::collections::BTreeMap;
use trapline_abi::block::Transfer;
use trapline_abi::job::Wait;
use trapline_abi::record::Speaker;
use trapline_abi::{Counter, Decoder, Item, Job, Op, OpSet, Record, Stage, Workload, VERSION};
use trapline_plan::irq;
use trapline_plan::observed::{Operation, Outcome, Sample};

/// Bytes of all streams of one guest after which it counts as flooding, unless it was
/// asked for more, see [`most_bytes`].
pub const MOST_BYTES: u64 = 64 << 20;

/// Bytes that an interrupt takes in a record at the most, nearly always far fewer.
const INTERRUPT_BYTES: u64 = 64;

/// Bytes of all streams after which a guest with this job counts as flooding. One that
/// was asked to flood its console is limited by time alone: what it writes is not kept.
pub fn most_bytes(job: &Job) -> u64 {
    let timers = (job.run & irq::operations()).count_ones();
    match (timers, job.between) {
        (1.., Wait::Flood) => u64::MAX,
        _ => MOST_BYTES + u64::from(timers) * u64::from(job.expiries) * INTERRUPT_BYTES,
    }
}

/// Problems that are kept.
const MOST_PROBLEMS: usize = 32;

/// What can be seen of a VMM from outside, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// CPU time of its process so far, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Exits of its guest so far, as the kernel counts them.
    pub exits: Option<u64>,
}

/// Somebody who can look at a VMM when its guest begins or ends something.
pub trait Witness {
    /// Looks.
    fn look(&mut self) -> Seen;
}

/// A witness who sees nothing.
pub struct Blind;

impl Witness for Blind {
    fn look(&mut self) -> Seen {
        Seen::default()
    }
}

/// What a guest says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version it was built with.
    pub version: u16,
    /// Who speaks.
    pub speaker: Speaker,
    /// Its ring.
    pub ring: u8,
    /// Its memory, in bytes.
    pub memory: u64,
}

/// How a guest's words end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It said that it was done.
    Done,
    /// It panicked.
    Panicked(String),
    /// In the middle.
    Cut,
}

/// How time passed from an early batch of an operation to a late one: by the
/// guest's clock and by ours, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// Which operation.
    pub op: Op,
    /// By the guest's clock.
    pub guest: u64,
    /// By ours.
    pub host: u64,
}

/// What one guest did from its start to its end, in ticks of its own clock
/// where nothing else is said.
#[derive(Debug)]
pub struct Account {
    /// The set of operations it was asked for.
    pub asked: OpSet,
    /// What it said of itself.
    pub hello: Option<Hello>,
    /// Stages of the guest.
    pub stages: BTreeMap<Stage, u64>,
    /// Stages of its VMM, in ticks of our clock.
    pub vmm_stages: BTreeMap<Stage, u64>,
    /// What its VMM counted.
    pub counters: BTreeMap<Counter, u64>,
    /// What came of each operation asked for, those of the boot workload excepted.
    pub operations: Vec<Operation>,
    /// Time by two clocks, for operations that were measured.
    pub elapsed: Vec<Elapsed>,
    /// The least difference between when we heard something and when the guest
    /// says it said it. The difference of the clocks is at most this.
    pub lag: Option<i64>,
    /// What else it printed.
    pub log: String,
    /// What its VMM wrote to its standard error.
    pub errors: String,
    /// What was wrong.
    pub problems: Vec<String>,
    /// How it ended.
    pub ending: Ending,
}

/// Listens to one guest.
pub struct Transcript {
    console: Decoder,
    events: Decoder,
    /// What comes after the guest's last record is not that guest's.
    ends_with_last_record: bool,
    most_bytes: u64,
    heard: Heard,
}

/// What was heard so far.
struct Heard {
    asked: OpSet,
    /// Expiries of each timer that it was asked for.
    expiries: u32,
    /// What it was asked, all told.
    job: Job,
    /// Whether the guest reads the clock of whoever started it.
    one_clock: bool,
    hello: Option<Hello>,
    stages: BTreeMap<Stage, u64>,
    vmm_stages: BTreeMap<Stage, u64>,
    counters: BTreeMap<Counter, u64>,
    operations: Vec<Operation>,
    elapsed: Vec<Elapsed>,
    draft: Option<Draft>,
    /// Windows that are complete and that nobody has taken notice of.
    windows: Vec<Window>,
    lag: Option<i64>,
    log: Log,
    errors: Log,
    problems: Vec<String>,
    more_problems: u64,
    damaged: u64,
    damaged_at_begin: u64,
    ending: Ending,
    bytes: u64,
    /// Those of the console.
    console_bytes: u64,
}

impl Transcript {
    /// Listens to a guest that was given `job`.
    pub fn new(job: &Job) -> Self {
        Self {
            console: Decoder::new(),
            events: Decoder::new(),
            ends_with_last_record: false,
            most_bytes: most_bytes(job),
            heard: Heard::new(job),
        }
    }

    /// Listens no more after the guest's last record: a VMM that we know nothing
    /// about may print what it likes then, or even start the guest again.
    pub fn to_the_last_record(job: &Job) -> Self {
        Self {
            ends_with_last_record: true,
            ..Self::new(job)
        }
    }

    /// The guest reads the clock of whoever started it.
    pub fn on_one_clock(mut self) -> Self {
        self.heard.one_clock = true;
        self
    }

    /// Takes what the guest wrote to its console, heard at `at` ticks of our
    /// clock if that is known.
    pub fn console(&mut self, bytes: &[u8], at: Option<u64>, witness: &mut dyn Witness) {
        let Self {
            console,
            heard,
            ends_with_last_record,
            ..
        } = self;
        heard.bytes += bytes.len() as u64;
        heard.console_bytes += bytes.len() as u64;
        console.feed(bytes, &mut |item| {
            if !(*ends_with_last_record && heard.ending != Ending::Cut) {
                heard.item(item, at, witness);
            }
        });
    }

    /// Takes what the VMM told of itself.
    pub fn events(&mut self, bytes: &[u8]) {
        let Self { events, heard, .. } = self;
        heard.bytes += bytes.len() as u64;
        events.feed(bytes, &mut |item| heard.event(item));
    }

    /// Takes what the VMM wrote to its standard error.
    pub fn errors(&mut self, bytes: &[u8]) {
        self.heard.bytes += bytes.len() as u64;
        self.heard.errors.extend(bytes);
    }

    /// Whether it has sent more than any honest guest would.
    pub fn flooded(&self) -> bool {
        self.heard.bytes > self.most_bytes
    }

    /// The version of a guest that speaks another one than we do.
    pub fn foreign_version(&self) -> Option<u16> {
        let version = self.heard.hello?.version;
        (version != VERSION).then_some(version)
    }

    /// The operation that it is telling.
    pub fn doing(&self) -> Option<Op> {
        self.heard.draft.as_ref().map(|draft| draft.op)
    }

    /// Windows of interrupts that it has told since this was last asked.
    pub fn take_windows(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.heard.windows)
    }

    /// Whether it said anything that is a guest's to say.
    pub fn spoke(&self) -> bool {
        self.heard.hello.is_some() || self.heard.ending != Ending::Cut
    }

    /// How its words end, as far as they were heard.
    pub fn ending(&self) -> &Ending {
        &self.heard.ending
    }

    /// The last that it or its VMM said, for a message about its end.
    pub fn last_words(&self) -> String {
        let heard = &self.heard;
        let lines = [heard.log.last_lines(3), heard.errors.last_lines(3)];
        let lines: Vec<_> = lines.into_iter().filter(|text| !text.is_empty()).collect();
        lines.join("\n")
    }

    /// The streams have ended: what was held back as the beginning of a frame is
    /// none, and may have whole frames in it.
    pub fn close(&mut self) {
        let Self {
            console,
            events,
            heard,
            ends_with_last_record,
            ..
        } = self;
        console.finish(&mut |item| {
            if !(*ends_with_last_record && heard.ending != Ending::Cut) {
                heard.item(item, None, &mut Blind);
            }
        });
        events.finish(&mut |item| heard.event(item));
    }

    /// The account of it. Operations that were not reached have failed for the
    /// reason `unreached`.
    pub fn finish(mut self, unreached: &str) -> Account {
        self.close();
        self.heard.finish(unreached)
    }
}

impl Heard {
    fn new(job: &Job) -> Self {
        Self {
            asked: job.run,
            expiries: job.expiries,
            job: *job,
            one_clock: false,
            hello: None,
            stages: BTreeMap::new(),
            vmm_stages: BTreeMap::new(),
            counters: BTreeMap::new(),
            operations: Vec::new(),
            elapsed: Vec::new(),
            draft: None,
            windows: Vec::new(),
            lag: None,
            log: Log::default(),
            errors: Log::default(),
            problems: Vec::new(),
            more_problems: 0,
            damaged: 0,
            damaged_at_begin: 0,
            ending: Ending::Cut,
            bytes: 0,
            console_bytes: 0,
        }
    }

    fn item(&mut self, item: Item<'_>, at: Option<u64>, witness: &mut dyn Witness) {
        match item {
            Item::Text(byte) => self.log.push(byte),
            Item::Damaged => self.damaged += 1,
            Item::Record(record, said) => {
                self.compare_clocks(said, at);
                self.record(&record, said, at, witness);
            }
        }
    }

    /// What is seen from outside, its exits less one for each byte that came over
    /// the console: that is what telling the batches took.
    fn look(&self, by: &mut dyn Witness) -> Seen {
        let seen = by.look();
        let told = self.console_bytes;
        Seen {
            exits: seen.exits.map(|exits| exits.saturating_sub(told)),
            ..seen
        }
    }

    fn compare_clocks(&mut self, said: u64, heard: Option<u64>) {
        let Some(heard) = heard else { return };
        let lag = heard.wrapping_sub(said) as i64;
        self.lag = Some(self.lag.map_or(lag, |least| least.min(lag)));
    }

    fn record(&mut self, record: &Record<'_>, said: u64, at: Option<u64>, by: &mut dyn Witness) {
        match *record {
            Record::Hello {
                version,
                speaker,
                ring,
                memory,
                planned: _,
            } => self.hello(Hello {
                version,
                speaker,
                ring,
                memory,
            }),
            Record::Stage { stage, at } => self.guest_stage(stage, at),
            Record::Begin {
                op,
                clock_cost,
                loop_cost,
                exits,
            } => {
                let seen = self.look(by);
                self.begin(Draft::new(op, clock_cost, loop_cost, exits, seen));
            }
            Record::Sample {
                op,
                start,
                end,
                count,
            } => {
                let sample = Sample {
                    start,
                    end,
                    count,
                    host_ns: at,
                };
                self.sample(op, sample, said, at);
            }
            Record::Interrupts { op, packed } => self.interrupts(op, packed, said, at),
            Record::Requests { op, packed } => self.requests(op, packed, said, at),
            Record::End {
                op,
                samples,
                check,
                exits,
            } => {
                let damaged = self.damaged > self.damaged_at_begin;
                let told = Told {
                    samples,
                    check,
                    exits,
                    damaged,
                };
                let seen = self.look(by);
                self.end(op, &told, seen);
            }
            Record::Skip { op, reason } => self.conclude(op, Outcome::Skipped(reason.to_owned())),
            Record::Fail { op, reason } => self.conclude(op, Outcome::Failed(reason.to_owned())),
            Record::Panic { message } => self.ending = Ending::Panicked(message.to_owned()),
            Record::Done => self.done(by),
            Record::Ready => {}
            Record::Count { .. }
            | Record::Launch { .. }
            | Record::Relay { .. }
            | Record::Reaped { .. } => self.problem("the guest said what only a VMM or init says"),
        }
    }

    fn event(&mut self, item: Item<'_>) {
        match item {
            Item::Text(byte) => self.errors.push(byte),
            Item::Damaged => self.damaged += 1,
            Item::Record(Record::Stage { stage, at }, _) => {
                self.vmm_stages.entry(stage).or_insert(at);
            }
            Item::Record(Record::Count { counter, value }, _) => {
                self.counters.insert(counter, value);
            }
            Item::Record(..) => self.problem("the VMM said what only a guest or init says"),
        }
    }

    fn hello(&mut self, hello: Hello) {
        match self.hello {
            None => self.hello = Some(hello),
            Some(_) => self.problem("the guest said hello more than once"),
        }
    }

    fn guest_stage(&mut self, stage: Stage, at: u64) {
        match stage {
            Stage::GuestEntry | Stage::GuestMain | Stage::FirstSample | Stage::GuestExit => {
                self.stages.entry(stage).or_insert(at);
            }
            _ => self.problem("the guest claimed a stage that is not its own"),
        }
    }

    fn begin(&mut self, draft: Draft) {
        self.give_up_draft("the next operation began before it had ended");
        if self.is_open(draft.op) {
            self.damaged_at_begin = self.damaged;
            self.draft = Some(draft);
        }
    }

    fn sample(&mut self, op: Op, sample: Sample, said: u64, at: Option<u64>) {
        match &mut self.draft {
            Some(draft) if draft.op == op && is_in_batches(op) => {
                draft.sample(sample, said, at);
            }
            _ => self.problem(&format!("a sample of {} came out of turn", path(op))),
        }
    }

    fn interrupts(&mut self, op: Op, packed: &[u8], said: u64, at: Option<u64>) {
        let offset = self.raiser_offset(op);
        match &mut self.draft {
            Some(draft) if draft.op == op && op.workload() == Workload::Irq => {
                draft.interrupts(packed, self.expiries, said, at);
                let window = draft.window_told(self.expiries, offset);
                self.windows.extend(window);
            }
            _ => self.problem(&format!("interrupts of {} came out of turn", path(op))),
        }
    }

    fn requests(&mut self, op: Op, packed: &[u8], said: u64, at: Option<u64>) {
        let transfer = Transfer::of(op);
        match (&mut self.draft, transfer) {
            (Some(draft), Some(transfer)) if draft.op == op => {
                draft.requests(packed, transfer.requests(&self.job), said, at);
            }
            _ => self.problem(&format!("requests of {} came out of turn", path(op))),
        }
    }

    /// How far the guest's clock is ahead of that by which its timer is due, as far as
    /// that is known while it speaks.
    fn raiser_offset(&self, op: Op) -> Option<u64> {
        match op {
            Op::HostTimer if !self.one_clock => self.counters.get(&Counter::TscOffset).copied(),
            _ => Some(0),
        }
    }

    fn end(&mut self, op: Op, told: &Told, seen: Seen) {
        match self.draft.take_if(|draft| draft.op == op) {
            Some(draft) => {
                let (outcome, elapsed) = draft.end(told, seen);
                self.conclude(op, outcome);
                let elapsed = elapsed.map(|(guest, host)| Elapsed { op, guest, host });
                self.elapsed.extend(elapsed);
            }
            None => self.problem(&format!("{} ended out of turn", path(op))),
        }
    }

    fn done(&mut self, witness: &mut dyn Witness) {
        witness.look();
        if self.ending == Ending::Cut {
            self.ending = Ending::Done;
        }
    }

    /// Notes what came of an operation that is still open. The boot workload's
    /// own are not told by the guest: they follow from the stages.
    fn conclude(&mut self, op: Op, outcome: Outcome) {
        self.draft.take_if(|draft| draft.op == op);
        if self.is_open(op) && op.workload() != Workload::Boot {
            self.operations.push(Operation { op, outcome });
        }
    }

    fn is_open(&mut self, op: Op) -> bool {
        if self.asked & op.bit() == 0 {
            self.problem(&format!("{} was not asked for", path(op)));
            return false;
        }
        let concluded = self.operations.iter().any(|operation| operation.op == op);
        if concluded {
            self.problem(&format!("{} was told more than once", path(op)));
        }
        !concluded
    }

    fn give_up_draft(&mut self, reason: &str) {
        if let Some(draft) = self.draft.take() {
            self.conclude(draft.op, Outcome::Failed(reason.to_owned()));
        }
    }

    fn problem(&mut self, problem: &str) {
        if self.problems.iter().any(|known| known == problem) {
            return;
        }
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem.to_owned());
        } else {
            self.more_problems += 1;
        }
    }

    fn finish(mut self, unreached: &str) -> Account {
        self.give_up_draft(unreached);
        for op in Op::ALL {
            let told = self.operations.iter().any(|operation| operation.op == op);
            if self.asked & op.bit() != 0 && op.workload() != Workload::Boot && !told {
                let outcome = Outcome::Failed(unreached.to_owned());
                self.operations.push(Operation { op, outcome });
            }
        }
        self.sum_up_problems();
        Account {
            asked: self.asked,
            hello: self.hello,
            stages: self.stages,
            vmm_stages: self.vmm_stages,
            counters: self.counters,
            operations: self.operations,
            elapsed: self.elapsed,
            lag: self.lag,
            log: self.log.text(),
            errors: self.errors.text(),
            problems: self.problems,
            ending: self.ending,
        }
    }

    fn sum_up_problems(&mut self) {
        if self.more_problems > 0 {
            let more = self.more_problems;
            self.problems.push(format!("and {more} more problems"));
        }
        if self.damaged > 0 {
            let damaged = self.damaged;
            self.problems.push(format!("{damaged} damaged records"));
        }
    }
}

/// Whether it is told in batches, one a record.
fn is_in_batches(op: Op) -> bool {
    !matches!(op.workload(), Workload::Irq | Workload::Block)
}

fn path(op: Op) -> String {
    format!("{}/{}", op.workload().name(), op.name())
}
