//! State of the streams of one guest: checks each record against the job and earlier records.

use crate::operation::{EndRecord, OperationBuilder};
use crate::{Elapsed, EndState, GuestReport, Hello, Log, Usage, UsageProbe, Window};
use std::collections::BTreeMap;
use trapline_abi::block::Transfer;
use trapline_abi::{Counter, Item, Job, Op, Record, Stage, Workload};
use trapline_model::observed::{IdleWork, OperationResult, Outcome, Sample};

/// Number of problems kept.
const MAX_PROBLEMS: usize = 32;

/// Records decoded so far.
pub(super) struct Decoded {
    job: Job,
    /// Guest and host read the same clock.
    pub shared_clock: bool,
    /// The Hello record.
    pub hello: Option<Hello>,
    /// The number of the job that the guest repeated; 0 if none.
    nonce: u64,
    /// The guest waits for the lab.
    pub ready: bool,
    stages: BTreeMap<Stage, u64>,
    vmm_stages: BTreeMap<Stage, u64>,
    counters: BTreeMap<Counter, u64>,
    operations: Vec<OperationResult>,
    elapsed: Vec<Elapsed>,
    /// The operation whose records are arriving.
    pub current: Option<OperationBuilder>,
    /// Completed windows of interrupts not taken yet.
    pub windows: Vec<Window>,
    min_lag: Option<i64>,
    /// Console output besides records.
    pub log: Log,
    /// Standard error of the VMM.
    pub errors: Log,
    problems: Vec<String>,
    more_problems: u64,
    damaged: u64,
    damaged_at_begin: u64,
    /// State of the console stream.
    pub end: EndState,
    /// Bytes of all streams.
    pub bytes: u64,
    /// Bytes of the console.
    pub console_bytes: u64,
}

impl Decoded {
    /// Returns the state before the first record of a guest that runs `job`.
    pub fn new(job: &Job) -> Self {
        Self {
            job: *job,
            shared_clock: false,
            hello: None,
            nonce: 0,
            ready: false,
            stages: BTreeMap::new(),
            vmm_stages: BTreeMap::new(),
            counters: BTreeMap::new(),
            operations: Vec::new(),
            elapsed: Vec::new(),
            current: None,
            windows: Vec::new(),
            min_lag: None,
            log: Log::default(),
            errors: Log::default(),
            problems: Vec::new(),
            more_problems: 0,
            damaged: 0,
            damaged_at_begin: 0,
            end: EndState::Incomplete,
            bytes: 0,
            console_bytes: 0,
        }
    }

    /// Handles one item of the console, which arrived at `received` ticks of the host's clock, if known.
    pub fn item(&mut self, item: Item<'_>, received: Option<u64>, probe: &mut dyn UsageProbe) {
        match item {
            Item::Text(byte) => self.log.push(byte),
            Item::Damaged => self.damaged += 1,
            Item::Record(record, sent) => {
                self.compare_clocks(sent, received);
                self.record(&record, sent, received, probe);
            }
        }
    }

    /// Returns the usage without the exits for console output, one per byte.
    fn usage(&self, probe: &mut dyn UsageProbe) -> Usage {
        let usage = probe.sample();
        Usage {
            exits: usage
                .exits
                .map(|exits| exits.saturating_sub(self.console_bytes)),
            ..usage
        }
    }

    fn compare_clocks(&mut self, sent: u64, received: Option<u64>) {
        let Some(received) = received else { return };
        let lag = received.wrapping_sub(sent) as i64;
        self.min_lag = Some(self.min_lag.map_or(lag, |least| least.min(lag)));
    }

    fn record(
        &mut self,
        record: &Record<'_>,
        sent: u64,
        received: Option<u64>,
        probe: &mut dyn UsageProbe,
    ) {
        match *record {
            Record::Begin {
                op,
                clock_cost,
                loop_cost,
                exits,
            } => {
                let usage = self.usage(probe);
                let current = OperationBuilder::new(op, clock_cost, loop_cost, exits, usage);
                self.begin(current);
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
                    host_ns: received,
                    excluded: 0,
                };
                self.sample(op, sample, sent, received);
            }
            Record::Interrupts { op, packed } => self.interrupts(op, packed, sent, received),
            Record::Requests { op, packed } => self.requests(op, packed, sent, received),
            Record::Idle { op, ticks, bytes } => self.idle(op, IdleWork { ticks, bytes }),
            Record::End {
                op,
                samples,
                check,
                exits,
            } => {
                let end = EndRecord {
                    samples,
                    check,
                    exits,
                    damaged: self.damaged > self.damaged_at_begin,
                };
                let usage = self.usage(probe);
                self.end(op, &end, usage);
            }
            Record::Skip { op, reason } => self.conclude(op, Outcome::Skipped(reason.to_owned())),
            Record::Fail { op, reason } => self.conclude(op, Outcome::Failed(reason.to_owned())),
            _ => self.guest_record(record, probe),
        }
    }

    /// Handles a record that belongs to no operation.
    fn guest_record(&mut self, record: &Record<'_>, probe: &mut dyn UsageProbe) {
        match *record {
            Record::Hello {
                version,
                sender,
                ring,
                memory,
                planned: _,
            } => {
                probe.guest_started();
                self.hello(Hello {
                    version,
                    sender,
                    ring,
                    memory,
                });
            }
            Record::Stage { stage, at } => self.guest_stage(stage, at),
            Record::Panic { message } => self.end = EndState::Panicked(message.to_owned()),
            Record::Done => self.done(),
            Record::Nonce { nonce } => self.nonce = nonce,
            Record::Ready => self.ready = true,
            _ => self.problem("guest sent a record reserved for VMM and init"),
        }
    }

    /// Handles one item of the VMM's events.
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
            Item::Record(..) => self.problem("VMM sent a record reserved for guest and init"),
        }
    }

    fn hello(&mut self, hello: Hello) {
        match self.hello {
            None => self.hello = Some(hello),
            Some(_) => self.problem("guest sent Hello more than once"),
        }
    }

    fn guest_stage(&mut self, stage: Stage, at: u64) {
        match stage {
            Stage::GuestEntry | Stage::GuestMain | Stage::FirstSample | Stage::GuestExit => {
                self.stages.entry(stage).or_insert(at);
            }
            _ => self.problem("guest reported a stage of its VMM"),
        }
    }

    fn begin(&mut self, current: OperationBuilder) {
        self.fail_current("the next operation began before it ended");
        if self.is_open(current.op) {
            self.damaged_at_begin = self.damaged;
            self.current = Some(current);
        }
    }

    fn sample(&mut self, op: Op, sample: Sample, sent: u64, received: Option<u64>) {
        match &mut self.current {
            Some(current) if current.op == op && has_batches(op) => {
                current.sample(sample, sent, received);
            }
            _ => self.problem(&format!("sample of {} is out of sequence", path(op))),
        }
    }

    fn interrupts(&mut self, op: Op, packed: &[u8], sent: u64, received: Option<u64>) {
        let offset = self.timer_offset(op);
        match &mut self.current {
            Some(current) if current.op == op && op.workload() == Workload::Irq => {
                current.interrupts(packed, self.job.expiries, sent, received);
                let window = current.completed_window(self.job.expiries, offset);
                self.windows.extend(window);
            }
            _ => self.problem(&format!("interrupts of {} are out of sequence", path(op))),
        }
    }

    fn requests(&mut self, op: Op, packed: &[u8], sent: u64, received: Option<u64>) {
        let transfer = Transfer::from_op(op);
        match (&mut self.current, transfer) {
            (Some(current), Some(transfer)) if current.op == op => {
                current.requests(packed, transfer.requests(&self.job), sent, received);
            }
            _ => self.problem(&format!("requests of {} are out of sequence", path(op))),
        }
    }

    fn idle(&mut self, op: Op, work: IdleWork) {
        match &mut self.current {
            Some(current) if current.op == op && current.idle.is_none() && work.ticks != 0 => {
                current.idle = Some(work);
            }
            _ => self.problem(&format!(
                "idle work of {} is out of sequence or takes no time",
                path(op)
            )),
        }
    }

    /// Returns the guest's clock minus the clock of the timer, if known before the guest ends.
    fn timer_offset(&self, op: Op) -> Option<u64> {
        match op {
            Op::HostTimer if !self.shared_clock => self.counters.get(&Counter::TscOffset).copied(),
            _ => Some(0),
        }
    }

    fn end(&mut self, op: Op, end: &EndRecord, usage: Usage) {
        match self.current.take_if(|current| current.op == op) {
            Some(current) => {
                let (outcome, elapsed) = current.end(end, usage);
                self.conclude(op, outcome);
                let elapsed = elapsed.map(|(guest, host)| Elapsed { op, guest, host });
                self.elapsed.extend(elapsed);
            }
            None => self.problem(&format!("end of {} is out of sequence", path(op))),
        }
    }

    fn done(&mut self) {
        if self.end == EndState::Incomplete {
            self.end = EndState::Done;
        }
    }

    /// Records the outcome of an operation without one. Outcomes of the boot workload follow from
    /// the stages.
    fn conclude(&mut self, op: Op, outcome: Outcome) {
        self.current.take_if(|current| current.op == op);
        if self.is_open(op) && op.workload() != Workload::Boot {
            self.operations.push(OperationResult::new(op, outcome));
        }
    }

    fn is_open(&mut self, op: Op) -> bool {
        // A guest of any stage of a start sends its first sample.
        let asked = match op {
            Op::BootSample => Workload::Boot.set(),
            _ => op.into(),
        };
        if !self.job.run.intersects(asked) {
            self.problem(&format!("{} was not requested", path(op)));
            return false;
        }
        let concluded = self.operations.iter().any(|operation| operation.op == op);
        if concluded {
            self.problem(&format!("{} was reported more than once", path(op)));
        }
        !concluded
    }

    fn fail_current(&mut self, reason: &str) {
        if let Some(current) = self.current.take() {
            self.conclude(current.op, Outcome::Failed(reason.to_owned()));
        }
    }

    fn problem(&mut self, problem: &str) {
        if self.problems.iter().any(|known| known == problem) {
            return;
        }
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem.to_owned());
        } else {
            self.more_problems += 1;
        }
    }

    /// Returns the report. Operations without an outcome fail with the reason `unreached`.
    pub fn finish(mut self, unreached: &str) -> GuestReport {
        self.fail_current(unreached);
        for op in (self.job.run - Workload::Boot.set()).iter() {
            let concluded = self.operations.iter().any(|operation| operation.op == op);
            if !concluded {
                let outcome = Outcome::Failed(unreached.to_owned());
                self.operations.push(OperationResult::new(op, outcome));
            }
        }
        self.summarize_problems();
        GuestReport {
            requested: self.job.run,
            hello: self.hello,
            answers_job: self.nonce == self.job.nonce,
            stages: self.stages,
            vmm_stages: self.vmm_stages,
            counters: self.counters,
            operations: self.operations,
            elapsed: self.elapsed,
            min_lag: self.min_lag,
            log: self.log.text(),
            errors: self.errors.text(),
            problems: self.problems,
            end: self.end,
        }
    }

    fn summarize_problems(&mut self) {
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

/// Returns whether an operation sends one record per batch.
fn has_batches(op: Op) -> bool {
    !matches!(op.workload(), Workload::Irq | Workload::Block)
}

fn path(op: Op) -> String {
    format!("{}/{}", op.workload().name(), op.name())
}
