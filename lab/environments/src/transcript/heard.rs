//! What a guest and its VMM have said so far: each record checked against what was asked
//! for and what came before it.

use super::draft::{Draft, Told};
use super::{Account, Elapsed, Ending, Hello, Log, Seen, Window, Witness};
use std::collections::BTreeMap;
use trapline_abi::block::Transfer;
use trapline_abi::{Counter, Item, Job, Op, OpSet, Record, Stage, Workload};
use trapline_model::observed::{Operation, Outcome, Sample};

/// Problems that are kept.
const MOST_PROBLEMS: usize = 32;

/// What was heard so far.
pub(super) struct Heard {
    asked: OpSet,
    /// Expiries of each timer that it was asked for.
    expiries: u32,
    /// What it was asked, all told.
    job: Job,
    /// Whether the guest reads the clock of whoever started it.
    pub one_clock: bool,
    /// What it began with.
    pub hello: Option<Hello>,
    stages: BTreeMap<Stage, u64>,
    vmm_stages: BTreeMap<Stage, u64>,
    counters: BTreeMap<Counter, u64>,
    operations: Vec<Operation>,
    elapsed: Vec<Elapsed>,
    /// The operation that is being told.
    pub draft: Option<Draft>,
    /// Windows that are complete and that nobody has taken notice of.
    pub windows: Vec<Window>,
    lag: Option<i64>,
    /// What it said besides records.
    pub log: Log,
    /// What its VMM wrote to its standard error.
    pub errors: Log,
    problems: Vec<String>,
    more_problems: u64,
    damaged: u64,
    damaged_at_begin: u64,
    /// How its words end.
    pub ending: Ending,
    /// Bytes of all streams.
    pub bytes: u64,
    /// Those of the console.
    pub console_bytes: u64,
}

impl Heard {
    /// Nothing yet, of a guest that was given `job`.
    pub fn new(job: &Job) -> Self {
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

    /// Takes what the guest said, heard at `at` ticks of our clock if that is known.
    pub fn item(&mut self, item: Item<'_>, at: Option<u64>, witness: &mut dyn Witness) {
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

    /// Takes what the VMM told of itself.
    pub fn event(&mut self, item: Item<'_>) {
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

    /// The account of it. Operations that were not reached have failed for the reason
    /// `unreached`.
    pub fn finish(mut self, unreached: &str) -> Account {
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
