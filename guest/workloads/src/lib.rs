//! The measured code, written once against [`System`].
//!
//! The image and the Linux agent both call [`run`]. It runs the operations of the job one after
//! the other and sends the samples of each, or the reason why it was skipped. [`measure`] repeats
//! and times operations, [`calibration`] measures the cost of that; the operations are in
//! [`basic`], [`calloc`], [`stream`], [`memory`], [`exits`], [`irq`], [`populate`], [`block`], [`files`],
//! [`net`], [`ipc`], [`smp`] and [`processes`].
#![no_std]

#[cfg(test)]
extern crate std;

mod arch;
mod basic;
mod batches;
pub mod block;
pub mod calibration;
mod calloc;
mod channel;
mod clock;
mod cpus;
mod exits;
mod files;
mod first_touch;
mod ipc;
pub mod irq;
pub mod measure;
mod memory;
mod net;
mod null_device;
pub mod packets;
mod populate;
mod processes;
pub mod script;
pub mod semaphore;
mod smp;
mod stream;
pub mod system;
mod timer;

pub use clock::ticks;
pub use system::{
    Block, CacheCounts, Cpus, DeviceRegisters, Doorbell, Files, Machine, Needed, NoMachine,
    NoProcesses, Processes, Reason, System, Wake,
};

use measure::Bench;
use trapline_abi::record::Sender;
use trapline_abi::{stamp, Job, Op, Record, Stage, Workload, VERSION};

/// Program that runs a job, and timestamps of its start.
#[derive(Clone, Copy, Debug)]
pub struct GuestInfo {
    /// Sender of the records.
    pub sender: Sender,
    /// Privilege ring.
    pub ring: u8,
    /// Usable memory, in bytes.
    pub memory: u64,
    /// Clock at the first instruction, in ticks.
    pub entry: u64,
    /// Clock at the main function, in ticks.
    pub main: u64,
}

impl GuestInfo {
    /// Returns the first record of a guest with this job.
    #[inline(always)]
    pub fn hello(&self, job: &Job) -> Record<'static> {
        Record::Hello {
            version: VERSION,
            sender: self.sender,
            ring: self.ring,
            memory: self.memory,
            planned: job.run,
        }
    }
}

/// Runs `job` and sends all its records. The caller ends the machine or process afterwards.
pub fn run<S: System>(system: &mut S, job: &Job, info: &GuestInfo) {
    system.send(&info.hello(job));
    if job.nonce != 0 {
        system.send(&Record::Nonce { nonce: job.nonce });
    }
    if job.wait_for_go {
        system.send(&Record::Ready);
        system.wait_for_go();
    }
    let mut bench = Bench::new(system, job);
    first_sample(&mut bench, info);
    // Without calibration if the job only boots, because it would extend `boot/exit`.
    if !job.run.is_subset(Workload::Boot.set()) {
        measure_all(&mut bench);
    }
    bench.stage(Stage::GuestExit, stamp!(GuestExit));
    bench.system.send(&Record::Done);
}

/// Measures the operations of workload `system` in the calling process, with costs calibrated
/// there.
pub fn run_in_process<S: System>(system: &mut S, job: &Job) {
    let mut bench = Bench::new(system, job);
    bench.calibrate();
    processes::run(&mut bench);
}

/// Measures the operations of all workloads except `boot`. Inlined, so that profiles attribute the
/// measured code to [`run`].
#[inline(always)]
fn measure_all<S: System>(bench: &mut Bench<'_, S>) {
    bench.system.quiesce();
    bench.calibrate();
    // Timers and disk requests run for long, and are measured as a share of the VMM's CPU time.
    let unaligned = Workload::Boot.set() | Workload::Irq.set() | Workload::Block.set();
    if !bench.job.run.is_subset(unaligned) {
        bench.await_regular_interrupts();
    }
    // First, because the cost of a fork grows with the memory of this process.
    let is_process = bench.system.processes().is_ok();
    if is_process {
        processes::run(bench);
    }
    basic::run(bench);
    memory::run(bench);
    exits::run(bench);
    stream::run(bench);
    irq::run(bench);
    populate::run(bench);
    block::run(bench);
    files::run(bench);
    net::run(bench);
    ipc::run(bench);
    smp::run(bench);
    calloc::run(bench);
    first_touch::run_huge(bench);
    // Last in a kernel, so that all other figures are the same without processes.
    let selects_processes = bench.job.run.intersects(Workload::System.set());
    if !is_process && selects_processes && !bench.system.run_in_process(bench.job) {
        processes::run(bench);
    }
}

/// Sends the first sample: the time from the first instruction to here. Calibration and the records
/// of the stages come later, so that they do not delay it.
fn first_sample<S: System>(bench: &mut Bench<'_, S>, info: &GuestInfo) {
    if Workload::Boot.operations().any(|op| bench.job.selects(op)) {
        let op = Op::BootSample;
        bench.begin_unmarked(op);
        bench.sample(op, info.entry, ticks(), 1);
        bench.stage(Stage::FirstSample, stamp!(FirstSample));
        bench.end(op, 1, 0);
    }
    bench.stage(Stage::GuestEntry, info.entry);
    bench.stage(Stage::GuestMain, info.main);
}
