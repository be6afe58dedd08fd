//! From the accounts of a boot's launches to its [`Observation`]. Pure.
//!
//! Each launch has two clocks: that of whoever started the VMM (*ours*: the
//! host's TSC, or the simulated machine's) and the guest's. They tick at one
//! rate and differ by an offset. Where it is known, every stage is placed on our
//! clock; where it can only be bounded - nothing is heard before it was said -
//! the bound is used and the observation says so.

use crate::environment::{Progress, SampleSink};
use std::collections::BTreeMap;
use trapline_abi::job::LOAD_PREFIX;
use trapline_abi::record::Sender;
use trapline_abi::{block, Counter, Interrupt, Op, OpSet, Stage, Workload};
use trapline_host::Facts;
use trapline_model::observed::{Launch, Observation, Operation, Outcome, Sample, Timeline};
use trapline_model::{irq, EnvironmentId};
use trapline_protocol::{Elapsed, EndState, GuestReport};

/// How the guest's clock relates to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// They are one clock.
    Same,
    /// The guest's is ahead of ours by this many ticks.
    Known(i64),
    /// Only what was heard bounds the offset.
    Heard,
}

/// A launch that is over.
#[derive(Debug)]
pub struct Finished {
    /// What was heard.
    pub report: GuestReport,
    /// When it was started, in ticks of our clock.
    pub exec: u64,
    /// When it was seen to have ended, in ticks of our clock, if it was.
    pub reaped: Option<u64>,
    /// How its clock relates to ours.
    pub offset: Offset,
    /// Peak memory of the VMM beyond guest RAM that was seen, in bytes.
    pub own_memory: Option<u64>,
    /// Whether the VMM stayed when its guest was done, so that it had to be killed.
    pub outlived_guest: bool,
}

/// What the observation of an environment needs to know about it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The environment.
    pub environment: EnvironmentId,
    /// Which repetition.
    pub replicate: u32,
    /// Nanoseconds or instructions per tick, of the guest's clock and of ours.
    pub unit_per_tick: f64,
}

/// Returns the reason why an operation of workload boot is not applicable to an environment.
fn not_applicable(environment: EnvironmentId, op: Op) -> Option<&'static str> {
    let is_before_entry = matches!(op, Op::BootCreated | Op::BootEntry);
    let is_created = op == Op::BootCreated;
    match environment {
        id if id.is_xen() && id.starts_with_machine() => {
            Some("Xen's first domain starts with the machine, and no VMM is executed")
        }
        id if id.starts_with_machine() => {
            Some("the bare machine has no VMM that could be executed")
        }
        id if id.is_native() && is_before_entry => {
            Some("a process has no virtual machine around it")
        }
        id if id.is_user_mode() && is_before_entry => {
            Some("user-mode Linux is the program that is executed: nothing comes before its kernel")
        }
        id if id.is_linux_guest() && id.has_qemu_vmm() && op == Op::BootEntry => {
            Some("QEMU does not tell when its guest's kernel is entered")
        }
        id if id.has_qemu_vmm() && is_created => {
            Some("QEMU does not tell when it has created the machine")
        }
        id if id.is_xen() && op != Op::BootExit => Some(match id.clock() {
            trapline_model::Clock::Insn => {
                "Xen does not tell how a domain's clock relates to the machine's; \
                            'trapline explain' of boot/exit tells the stages"
            }
            _ => "Xen does not tell how a domain's clock relates to the machine's",
        }),
        id if id.is_custom() && is_created => {
            Some("a VMM given with --vmm does not tell when it has created the machine")
        }
        _ => None,
    }
}

/// What there is to say of a VMM that had to be killed.
const OUTLIVED_GUEST: &str = "the VMM did not end with its guest, and was killed";

/// The stage until which an operation of the boot workload counts.
pub fn last_stage(op: Op) -> Option<Stage> {
    match op {
        Op::BootCreated => Some(Stage::VmCreated),
        Op::BootEntry => Some(Stage::GuestEntry),
        Op::BootMain => Some(Stage::GuestMain),
        Op::BootSample => Some(Stage::FirstSample),
        Op::BootExit => Some(Stage::Reaped),
        _ => None,
    }
}

/// Takes the launches of a boot and makes its observation.
pub struct Recorder<'a> {
    setting: Setting,
    wanted_of_boot: OpSet,
    operations: Vec<Operation>,
    launches: Vec<Launch>,
    boot_samples: BTreeMap<Op, Vec<Sample>>,
    facts: Facts,
    log: String,
    problems: Vec<String>,
    outlived_guest: bool,
    progress: &'a mut dyn FnMut(Progress),
}

/// Log that is kept of one boot, in bytes.
const MOST_LOG: usize = 256 << 10;

impl<'a> Recorder<'a> {
    /// A recorder of a boot in which operations `wanted_of_boot` of the boot
    /// workload are measured.
    pub fn new(
        setting: Setting,
        wanted_of_boot: OpSet,
        facts: Facts,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        Self {
            setting,
            wanted_of_boot,
            operations: Vec::new(),
            launches: Vec::new(),
            boot_samples: BTreeMap::new(),
            facts,
            log: String::new(),
            problems: Vec::new(),
            outlived_guest: false,
            progress,
        }
    }

    /// The observation. Operations of the boot workload that no launch reached
    /// have failed for the reason `unreached`.
    pub fn finish(mut self, unreached: &str) -> Observation {
        self.conclude_boot(unreached);
        Observation {
            environment: self.setting.environment,
            overrides: Default::default(),
            clock: self.setting.environment.clock(),
            replicate: self.setting.replicate,
            unit_per_tick: self.setting.unit_per_tick,
            operations: self.operations,
            launches: self.launches,
            facts: self.facts,
            log: self.log,
            problems: self.problems,
        }
    }

    fn conclude_boot(&mut self, unreached: &str) {
        for op in Workload::Boot.operations() {
            if self.wanted_of_boot & op.bit() == 0 {
                continue;
            }
            let samples = self.boot_samples.remove(&op).unwrap_or_default();
            let outcome = match not_applicable(self.setting.environment, op) {
                Some(reason) => Outcome::Skipped(reason.to_owned()),
                None if samples.is_empty() && op == Op::BootExit && self.outlived_guest => {
                    Outcome::Skipped(OUTLIVED_GUEST.to_owned())
                }
                None if samples.is_empty() => Outcome::Failed(unreached.to_owned()),
                None => measured(samples),
            };
            self.operations.push(Operation { op, outcome });
        }
    }

    /// Ticks of our clock in units of the observation's clock.
    fn units(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.setting.unit_per_tick).round() as u64
    }

    fn problem(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn stages(&mut self, finished: &Finished) -> BTreeMap<Stage, u64> {
        let report = &finished.report;
        let mut stages = report.vmm_stages.clone();
        if let Some(offset) = self.offset(finished) {
            let on_our_clock =
                |(&stage, &at): (&Stage, &u64)| (stage, at.wrapping_sub(offset as u64));
            stages.extend(report.stages.iter().map(on_our_clock));
        }
        if self.setting.environment.is_linux_guest() {
            // The agent tells of itself; the guest's first instruction is its kernel's.
            stages.remove(&Stage::GuestEntry);
        }
        stages.extend(finished.reaped.map(|at| (Stage::Reaped, at)));
        let possible = finished.exec..=finished.reaped.unwrap_or(u64::MAX);
        for (stage, _) in stages.iter().filter(|(_, at)| !possible.contains(at)) {
            let name = stage.name();
            self.problem(format!(
                "stage {name} is said to be before the start or after the end"
            ));
        }
        stages.retain(|_, at| possible.contains(at));
        stages.insert(Stage::Exec, finished.exec);
        stages
    }

    /// The guest's clock minus ours, in ticks.
    fn offset(&mut self, finished: &Finished) -> Option<i64> {
        let report = &finished.report;
        let told = report.counters.get(&Counter::TscOffset);
        match (finished.offset, told) {
            (Offset::Same, _) => Some(0),
            (Offset::Known(offset), _) => Some(offset),
            (Offset::Heard, Some(&told)) => Some(told as i64),
            (Offset::Heard, None) => {
                let lag = report.min_lag?;
                self.facts.insert(
                    "guest-clock".to_owned(),
                    "the offset of the guest's clock is not told; stages of the guest are placed \
                     by when its words arrived, and are late by the delay of the quickest"
                        .to_owned(),
                );
                Some(lag.wrapping_neg())
            }
        }
    }

    /// No record marks the first instruction of a Linux, but our VMM reports when it is about to
    /// enter it.
    fn last_stage(&self, op: Op) -> Option<Stage> {
        match op {
            Op::BootEntry if self.setting.environment.is_linux_guest() => Some(Stage::VmmEntry),
            _ => last_stage(op),
        }
    }

    fn boot_samples_of(&mut self, stages: &BTreeMap<Stage, u64>) {
        for op in Workload::Boot.operations() {
            let end = self.last_stage(op).and_then(|stage| stages.get(&stage));
            if let (Some(&end), Some(&start)) = (end, stages.get(&Stage::Exec)) {
                self.boot_samples.entry(op).or_default().push(Sample {
                    start,
                    end,
                    count: 1,
                    host_ns: None,
                });
            }
        }
    }

    fn timeline(&self, stages: &BTreeMap<Stage, u64>, exec: u64) -> Timeline {
        let since_exec = |(&stage, &at): (&Stage, &u64)| (stage, self.units(at - exec));
        stages.iter().map(since_exec).collect()
    }

    /// Puts the stamps of the host's clock into nanoseconds since the start.
    fn stamped(&self, mut operation: Operation, finished: &Finished) -> Operation {
        let elapsed_here = |elapsed: &&Elapsed| elapsed.op == operation.op;
        let found = finished.report.elapsed.iter().find(elapsed_here);
        if let (Op::HostTimer, Outcome::Measured { interrupts, .. }) =
            (operation.op, &mut operation.outcome)
        {
            match self.raiser_offset(finished) {
                Some(offset) => put_on_guests_clock(interrupts, offset),
                None => operation.outcome = Outcome::Failed(NO_OFFSET.to_owned()),
            }
        }
        if let Outcome::Measured {
            samples, elapsed, ..
        } = &mut operation.outcome
        {
            for sample in samples {
                let heard = sample.host_ns.map(|at| at.saturating_sub(finished.exec));
                sample.host_ns = heard.map(|ticks| self.units(ticks));
            }
            *elapsed = found
                .map(|elapsed| (elapsed.guest, self.units(elapsed.host)))
                .filter(|(_, host_ns)| *host_ns >= COMPARABLE_NS);
        }
        operation
    }

    /// The guest's clock minus that of whoever raises its interrupts, in ticks, if it
    /// is known. When words arrived is no answer to that: they arrive later than most
    /// interrupts.
    fn raiser_offset(&self, finished: &Finished) -> Option<i64> {
        let told = finished.report.counters.get(&Counter::TscOffset);
        match finished.offset {
            Offset::Same => Some(0),
            Offset::Known(offset) => Some(offset),
            Offset::Heard => told.map(|&told| told as i64),
        }
    }

    fn counters(&self, finished: &Finished) -> BTreeMap<Counter, u64> {
        let mut counters = finished.report.counters.clone();
        if let Some(seen) = finished.own_memory {
            let told = counters.entry(Counter::OwnMemory).or_default();
            *told = seen.max(*told);
        }
        if let (Offset::Known(offset), false) =
            (finished.offset, counters.contains_key(&Counter::TscOffset))
        {
            counters.insert(Counter::TscOffset, offset as u64);
        }
        if let Some(hello) = finished.report.hello {
            counters.insert(Counter::Ring, hello.ring.into());
        }
        counters
    }

    /// On an exact clock a VMM's own word is all that is known of the CPU time that
    /// interrupts take: what polling costs has to be seen there, too.
    fn take_cpu_time(&mut self, finished: &Finished) {
        let is_exact = self.setting.environment.clock().is_exact();
        let asked = finished.report.requested & irq::operations() != 0;
        let told = finished.report.counters.get(&Counter::CpuTime);
        if let (Some(ns), true) = (told, is_exact && asked) {
            let us = (ns / 1000).to_string();
            self.facts.insert(irq::CPU_TIME_US.to_owned(), us);
        }
    }

    /// What the init of a simulated machine tells of loads is among what its programs
    /// wrote.
    fn take_loads(&mut self, errors: &str) {
        let told = errors.lines().filter_map(|line| {
            let (load, did) = line.strip_prefix(LOAD_PREFIX)?.split_once(' ')?;
            Some((format!("load-{load}"), did.to_owned()))
        });
        self.facts.extend(told);
    }

    /// What the agent tells of its disk is among what it printed.
    fn take_disk(&mut self, finished: &Finished) {
        if finished.report.requested & block::operations() == 0 {
            return;
        }
        let told = finished.report.log.lines().filter_map(|line| {
            let (name, fact) = line.strip_prefix(block::FACT_PREFIX)?.split_once(' ')?;
            Some((format!("disk-{name}"), fact.to_owned()))
        });
        self.facts.extend(told);
    }

    fn take_log(&mut self, report: &GuestReport) {
        for text in [&report.log, &report.errors] {
            if !text.trim().is_empty() && self.log.len() + text.len() < MOST_LOG {
                self.log.push_str(text);
                if !text.ends_with('\n') {
                    self.log.push('\n');
                }
            }
        }
    }
}

/// Time over which clocks can be compared, in nanoseconds: how irregularly words
/// arrive must not matter at the percent at which clocks are called wrong.
const COMPARABLE_NS: u64 = 20_000_000;

/// Why interrupts of the host's timer may have no figures.
const NO_OFFSET: &str = "how the guest's clock relates to the host's is not known here, \
    so nobody can tell how late an interrupt of the host's timer is";

fn put_on_guests_clock(interrupts: &mut [Interrupt], offset: i64) {
    let moved = |at: u64| at.wrapping_add(offset as u64);
    for interrupt in interrupts {
        interrupt.due = moved(interrupt.due);
        interrupt.woke = interrupt.woke.map(moved);
        interrupt.marked = interrupt.marked.map(moved);
    }
}

fn measured(samples: Vec<Sample>) -> Outcome {
    Outcome::Measured {
        clock_cost: 0,
        loop_cost: 0,
        samples,
        interrupts: Vec::new(),
        check: 0,
        exits: None,
        host_cpu_ns: None,
        elapsed: None,
    }
}

impl SampleSink for Recorder<'_> {
    fn progress(&mut self, progress: Progress) {
        let in_units = |ticks| self.units(ticks);
        let progress = match progress {
            Progress::Window(window) => Progress::Window(window.map(in_units)),
            other => other,
        };
        (self.progress)(progress);
    }

    fn fact(&mut self, name: &str, value: String) {
        self.facts.insert(name.to_owned(), value);
    }

    fn finished(&mut self, finished: Finished) {
        if finished.outlived_guest {
            self.outlived_guest = true;
            self.fact("custom-vmm-end", OUTLIVED_GUEST.to_owned());
        }
        let stages = self.stages(&finished);
        let of_boot = Workload::Boot
            .operations()
            .any(|op| finished.report.requested & op.bit() != 0);
        if of_boot && finished.report.end == EndState::Done {
            self.boot_samples_of(&stages);
        }
        for operation in &finished.report.operations {
            let stamped = self.stamped(operation.clone(), &finished);
            self.operations.push(stamped);
        }
        self.launches.push(Launch {
            timeline: self.timeline(&stages, finished.exec),
            counters: self.counters(&finished),
        });
        if let Some(hello) = finished.report.hello {
            let sender = match hello.sender {
                Sender::Image => "image",
                Sender::Agent => "agent",
            };
            let ring = format!("{sender} at ring {}", hello.ring);
            self.facts.insert("guest".to_owned(), ring);
        }
        self.take_cpu_time(&finished);
        self.take_loads(&finished.report.errors);
        self.take_disk(&finished);
        self.take_log(&finished.report);
        for problem in finished.report.problems {
            self.problem(problem);
        }
    }
}

#[cfg(test)]
mod tests;
