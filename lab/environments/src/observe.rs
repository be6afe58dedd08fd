//! Converts the launches of a boot to its [`Observation`]. Pure.
//!
//! Each launch has two clocks, the host clock and the guest's, see [`ClockOffset`]. They have the same rate
//! and differ by an offset. If it is known, all stages are converted to the host clock. Otherwise the
//! arrival of records bounds it; the bound is used, and a fact says so.

mod stages;

pub use stages::last_stage;

use crate::environment::{Progress, SampleSink};
use crate::launch::{ClockOffset, FinishedLaunch};
use std::collections::BTreeMap;
use trapline_abi::job::LOAD_PREFIX;
use trapline_abi::platform::{ISOLATION_FACT_PREFIX, VIRTIO_FACT_PREFIX, WAKES_FACT_PREFIX};
use trapline_abi::record::Sender;
use trapline_abi::{block, files, Counter, Interrupt, Op, OpSet, Stage, Workload};
use trapline_host::Facts;
use trapline_model::observed::{Launch, Observation, OperationResult, Outcome, Sample, Timeline};
use trapline_model::{irq, Config, Feature};
use trapline_protocol::{Elapsed, EndState, GuestReport};

/// The boot to observe.
#[derive(Clone, Debug)]
pub struct BootInfo {
    /// Its configuration.
    pub config: Config,
    /// Number of its repetition.
    pub replicate: u32,
    /// Nanoseconds or instructions per tick of both clocks.
    pub unit_per_tick: f64,
    /// Memory that the guest was to have, in MiB.
    pub memory_mib: u32,
}

/// Reason and fact for a VMM that had to be killed.
const OUTLIVED_GUEST: &str = "the VMM did not exit with its guest, and was killed";

/// Reason for the failure of operations that need the offset of the guest's clock.
const NO_OFFSET: &str = "the offset between the guest's clock and the host's is unknown here, \
    and with it the lateness of interrupts of the host's timer";

/// Reason for the failure of operations whose records are of another boot.
const OTHER_JOB: &str =
    "the guest did not repeat the number of its job: its output is that of another boot";

/// Memory, in bytes, of which a guest reports at least half: a kernel keeps a part of it for itself, and the image uses
/// the largest range below 4 GiB.
const MOST_COMPARED: u64 = 3 << 30;

/// Bytes of log kept per boot.
const MAX_LOG: usize = 256 << 10;

/// Shortest time over which clocks are compared, in nanoseconds. Jitter of record arrival must stay below
/// the 1% at which clocks count as different.
const MIN_COMPARED_NS: u64 = 20_000_000;

/// Builds the observation of a boot from its launches.
pub struct Recorder<'a> {
    info: BootInfo,
    boot_operations: OpSet,
    operations: Vec<OperationResult>,
    launches: Vec<Launch>,
    boot_samples: BTreeMap<Op, Vec<Sample>>,
    /// Launches that measured their start.
    starts: usize,
    facts: Facts,
    log: String,
    problems: Vec<String>,
    outlived_guest: bool,
    /// Why figures of this boot are not those that were asked for.
    wrong_guest: Option<String>,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Recorder<'a> {
    /// Returns a recorder of a boot that measures `boot_operations` of the boot workload.
    pub fn new(
        info: BootInfo,
        boot_operations: OpSet,
        facts: Facts,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        Self {
            info,
            boot_operations,
            operations: Vec::new(),
            launches: Vec::new(),
            boot_samples: BTreeMap::new(),
            starts: 0,
            facts,
            log: String::new(),
            problems: Vec::new(),
            outlived_guest: false,
            wrong_guest: None,
            progress,
        }
    }

    /// Returns the observation. Operations of the boot workload that no launch reached failed with
    /// `unreached`.
    pub fn finish(mut self, unreached: &str) -> Observation {
        self.finish_boot_operations(unreached);
        Observation {
            clock: self.info.config.clock(),
            config: self.info.config,
            replicate: self.info.replicate,
            unit_per_tick: self.info.unit_per_tick,
            operations: self.operations,
            launches: self.launches,
            facts: self.facts,
            log: self.log,
            problems: self.problems,
            host: String::new(),
        }
    }

    fn finish_boot_operations(&mut self, unreached: &str) {
        let unreached = self.wrong_guest.as_deref().unwrap_or(unreached);
        for op in (self.boot_operations & Workload::Boot.set()).iter() {
            let samples = self.boot_samples.remove(&op).unwrap_or_default();
            let outcome = match stages::not_applicable(self.info.config.environment, op) {
                Some(reason) => Outcome::Skipped(reason.to_owned()),
                None if samples.is_empty() && op == Op::BootExit && self.outlived_guest => {
                    Outcome::Skipped(OUTLIVED_GUEST.to_owned())
                }
                None if samples.is_empty() => Outcome::Failed(unreached.to_owned()),
                None if samples.len() < self.starts => Outcome::Failed(format!(
                    "{} of {} starts reported this stage",
                    samples.len(),
                    self.starts
                )),
                None => measured(samples),
            };
            self.operations.push(OperationResult::new(op, outcome));
        }
    }

    /// Converts ticks to units of the observation's clock.
    fn units(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.info.unit_per_tick).round() as u64
    }

    fn problem(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Returns the stages on the host clock. Impossible ones are reported and left out.
    fn stages(&mut self, launch: &FinishedLaunch) -> BTreeMap<Stage, u64> {
        let offset = self.offset(launch);
        let mut stages = stages::on_host_clock(&launch.report, offset);
        if self.info.config.environment.is_linux_guest() {
            // The agent reports its own entry; the guest's first instruction is the kernel's.
            stages.remove(&Stage::GuestEntry);
        }
        stages.extend(launch.reaped.map(|at| (Stage::Reaped, at)));
        let possible = launch.exec..=launch.reaped.unwrap_or(u64::MAX);
        for (stage, _) in stages.iter().filter(|(_, at)| !possible.contains(at)) {
            let name = stage.name();
            self.problem(format!(
                "stage {name} was reported before the start or after the end"
            ));
        }
        stages.retain(|_, at| possible.contains(at));
        stages.insert(Stage::Exec, launch.exec);
        stages
    }

    /// Returns the guest's clock minus the host clock in ticks, or its bound.
    fn offset(&mut self, launch: &FinishedLaunch) -> Option<i64> {
        let exact = launch.exact_offset();
        if exact.is_some() {
            return exact;
        }
        let lag = launch.report.min_lag?;
        self.facts.insert(
            "guest-clock".to_owned(),
            "the offset of the guest's clock is not reported; stages of the guest are placed by the \
             arrival of records, and are late by the delay of the quickest"
                .to_owned(),
        );
        Some(lag.wrapping_neg())
    }

    fn add_boot_samples(&mut self, stages: &BTreeMap<Stage, u64>) {
        for op in Workload::Boot.operations() {
            let end = stages::last_stage_in(self.info.config.environment, op);
            let end = end.and_then(|stage| stages.get(&stage));
            if let (Some(&end), Some(&start)) = (end, stages.get(&Stage::Exec)) {
                self.boot_samples.entry(op).or_default().push(Sample {
                    start,
                    end,
                    count: 1,
                    host_ns: None,
                    excluded: 0,
                });
            }
        }
    }

    fn timeline(&self, stages: &BTreeMap<Stage, u64>, exec: u64) -> Timeline {
        let since_exec = |(&stage, &at): (&Stage, &u64)| (stage, self.units(at - exec));
        stages.iter().map(since_exec).collect()
    }

    /// Converts host timestamps to nanoseconds since the start.
    fn with_host_time(
        &self,
        mut operation: OperationResult,
        launch: &FinishedLaunch,
    ) -> OperationResult {
        let is_same = |elapsed: &&Elapsed| operation.op == elapsed.op;
        let found = launch.report.elapsed.iter().find(is_same);
        let is_host_timer = operation.op == Op::HostTimer;
        if let (true, Outcome::Measured { interrupts, .. }) =
            (is_host_timer, &mut operation.outcome)
        {
            // The bound from record arrival would not do: records arrive later than most interrupts.
            match launch.exact_offset() {
                Some(offset) => to_guest_clock(interrupts, offset),
                None => operation.outcome = Outcome::Failed(NO_OFFSET.to_owned()),
            }
        }
        if let Outcome::Measured {
            samples, elapsed, ..
        } = &mut operation.outcome
        {
            for sample in samples {
                let since_exec = sample.host_ns.map(|at| at.saturating_sub(launch.exec));
                sample.host_ns = since_exec.map(|ticks| self.units(ticks));
            }
            *elapsed = found
                .map(|elapsed| (elapsed.guest, self.units(elapsed.host)))
                .filter(|(_, host_ns)| *host_ns >= MIN_COMPARED_NS);
        }
        operation
    }

    /// Returns what is wrong if the guest is not the one that was asked for: if its records are of another job, or if it
    /// has other memory than it was to have.
    fn wrong_guest(&self, report: &GuestReport) -> Option<String> {
        let memory = report.hello?.memory;
        if !report.answers_job {
            return Some(OTHER_JOB.to_owned());
        }
        let asked = u64::from(self.info.memory_mib) << 20;
        let fits = (asked.min(MOST_COMPARED) / 2..=asked).contains(&memory);
        let is_set = self.info.config.environment.has(Feature::MemorySize);
        (is_set && !fits).then(|| {
            let (mib, asked) = (memory >> 20, self.info.memory_mib);
            format!("the guest has {mib} MiB of memory, and was to have {asked} MiB")
        })
    }

    /// Adds the CPU time that the VMM reports. On an exact clock it is the only measure of CPU time, and
    /// shows the cost of polling.
    fn add_cpu_time(&mut self, launch: &FinishedLaunch) {
        let is_exact = self.info.config.environment.clock().is_exact();
        let is_requested = launch.report.requested.intersects(irq::operations());
        let reported = launch.report.counters.get(&Counter::CpuTime);
        if let (Some(ns), true) = (reported, is_exact && is_requested) {
            let us = (ns / 1000).to_string();
            self.facts.insert(irq::CPU_TIME_US.to_owned(), us);
        }
    }

    /// Adds the facts that the guest prints, and those about loads, which the init of a simulated machine prints to standard
    /// error.
    fn add_printed_facts(&mut self, report: &GuestReport) {
        let printed = [
            (&report.errors, LOAD_PREFIX, "load-"),
            (&report.log, ISOLATION_FACT_PREFIX, "isolation-"),
            (&report.log, VIRTIO_FACT_PREFIX, "virtio-"),
            (&report.log, WAKES_FACT_PREFIX, "wakes-"),
            (&report.log, block::FACT_PREFIX, "disk-"),
            (&report.log, files::FACT_PREFIX, "files-"),
        ];
        for (text, prefix, name) in printed {
            self.facts.extend(printed_facts(text, prefix, name));
        }
    }

    fn add_log(&mut self, report: &GuestReport) {
        for text in [&report.log, &report.errors] {
            if !text.trim().is_empty() && self.log.len() + text.len() < MAX_LOG {
                self.log.push_str(text);
                if !text.ends_with('\n') {
                    self.log.push('\n');
                }
            }
        }
    }
}

fn counters(launch: &FinishedLaunch) -> BTreeMap<Counter, u64> {
    let mut counters = launch.report.counters.clone();
    if let Some(sampled) = launch.own_memory {
        // What a VMM reports is its peak.
        counters.entry(Counter::OwnMemory).or_insert(sampled);
    }
    if let ClockOffset::Known(offset) = launch.offset {
        let offset = offset as u64;
        counters.entry(Counter::TscOffset).or_insert(offset);
    }
    if let Some(hello) = launch.report.hello {
        counters.insert(Counter::Ring, hello.ring.into());
    }
    counters
}

/// Returns facts from lines `PREFIX NAME VALUE` of `text`, with `namespace` before their names.
fn printed_facts(text: &str, prefix: &str, namespace: &str) -> Facts {
    let lines = text.lines();
    let facts = lines.filter_map(|line| {
        let (name, value) = line.strip_prefix(prefix)?.split_once(' ')?;
        Some((format!("{namespace}{name}"), value.to_owned()))
    });
    facts.collect()
}

fn to_guest_clock(interrupts: &mut [Interrupt], offset: i64) {
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
        trials: Vec::new(),
        check: 0,
        exits: None,
        host_cpu_ns: None,
        idle: None,
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

    fn finished(&mut self, launch: FinishedLaunch) {
        if launch.outlived_guest {
            self.outlived_guest = true;
            self.fact("custom-vmm-end", OUTLIVED_GUEST.to_owned());
        }
        let stages = self.stages(&launch);
        let wrong_guest = self.wrong_guest(&launch.report);
        let has_boot_operations = launch.report.requested.intersects(Workload::Boot.set());
        let is_done = launch.report.end == EndState::Done && wrong_guest.is_none();
        if has_boot_operations && is_done {
            self.starts += 1;
            self.add_boot_samples(&stages);
        }
        for operation in &launch.report.operations {
            let mut operation = self.with_host_time(operation.clone(), &launch);
            if let (Outcome::Measured { .. }, Some(reason)) = (&operation.outcome, &wrong_guest) {
                operation.outcome = Outcome::Failed(reason.clone());
            }
            self.operations.push(operation);
        }
        self.wrong_guest = self.wrong_guest.take().or(wrong_guest);
        self.launches.push(Launch {
            timeline: self.timeline(&stages, launch.exec),
            counters: counters(&launch),
        });
        if let Some(hello) = launch.report.hello {
            let sender = match hello.sender {
                Sender::Image => "image",
                Sender::Agent => "agent",
            };
            let ring = format!("{sender} at ring {}", hello.ring);
            self.facts.insert("guest".to_owned(), ring);
        }
        self.add_cpu_time(&launch);
        self.add_printed_facts(&launch.report);
        self.add_log(&launch.report);
        for problem in launch.report.problems {
            self.problem(problem);
        }
    }
}

#[cfg(test)]
mod tests;
