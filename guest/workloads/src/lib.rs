//! The measured code, written once against [`System`].
//!
//! The image and the Linux agent both call [`run`]. It says hello, takes each
//! operation of the job in turn, and says for each what was measured, or
//! why it was not. How an operation is repeated and timed is in [`measure`], what that itself
//! costs in [`calibration`]; the operations themselves are in [`basic`], [`stream`],
//! [`exits`], [`irq`], [`populate`], [`block`] and [`processes`].
#![no_std]

#[cfg(test)]
extern crate std;

mod basic;
pub mod block;
pub mod calibration;
mod exits;
pub mod irq;
pub mod measure;
mod populate;
mod processes;
mod stream;
pub mod system;

pub use measure::ticks;
pub use system::{Block, Machine, NoProcesses, Processes, Reason, System, Wake};

use measure::Bench;
use trapline_abi::record::Speaker;
use trapline_abi::{stamp, Job, Op, Record, Stage, Workload, VERSION};

/// Who runs a job, and when it began.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The program.
    pub speaker: Speaker,
    /// Its privilege ring.
    pub ring: u8,
    /// Memory it may use, in bytes.
    pub memory: u64,
    /// Clock at its first instruction, in ticks.
    pub entry: u64,
    /// Clock at its main function, in ticks.
    pub main: u64,
}

/// Runs `job` from the first word to the last. What comes after - ending the
/// machine or the process - is the caller's.
pub fn run<S: System>(system: &mut S, job: &Job, origin: &Origin) {
    system.say(&Record::Hello {
        version: VERSION,
        speaker: origin.speaker,
        ring: origin.ring,
        memory: origin.memory,
        planned: job.run,
    });
    if job.wait {
        system.say(&Record::Ready);
        system.wait_for_go();
    }
    let mut bench = Bench::new(system, job);
    first_sample(&mut bench, origin);
    // A job that only boots calibrates nothing, which would make `boot/exit` longer.
    if job.run & !Workload::Boot.set() != 0 {
        measure_all(&mut bench);
    }
    bench.stage(Stage::GuestExit, stamp!(GuestExit));
    bench.system.say(&Record::Done);
}

/// Measures the operations of all workloads but `boot`. Inlined, so that ledgers name the
/// measured code after [`run`].
#[inline(always)]
fn measure_all<S: System>(bench: &mut Bench<'_, S>) {
    bench.system.quiesce();
    bench.calibrate();
    // Timers and requests to a disk are measured for long, and as a share of the VMM's CPU time.
    let unaligned = Workload::Boot.set() | Workload::Irq.set() | Workload::Block.set();
    if bench.job.run & !unaligned != 0 {
        bench.await_regular_interrupts();
    }
    // First, for a fork costs more the more this process has done.
    processes::run(bench);
    basic::run(bench);
    exits::run(bench);
    stream::run(bench);
    irq::run(bench);
    populate::run(bench);
    block::run(bench);
}

/// The sample that the boot workload waits for: from the first instruction to
/// here. It is sent before anything is calibrated, and the stages are told
/// afterwards, so that neither delays it.
fn first_sample<S: System>(bench: &mut Bench<'_, S>, origin: &Origin) {
    if Workload::Boot.operations().any(|op| bench.job.wants(op)) {
        let op = Op::BootSample;
        bench.begin_unmarked(op);
        bench.sample(op, origin.entry, ticks(), 1);
        bench.stage(Stage::FirstSample, stamp!(FirstSample));
        bench.end(op, 1, 0);
    }
    bench.stage(Stage::GuestEntry, origin.entry);
    bench.stage(Stage::GuestMain, origin.main);
}
