//! The conformance suite: small guests whose exits are compared literally.
//!
//! Every backend passes it. Each part is one guest of about a page; its exits must equal the text in
//! [`trace`], line by line. The parts cover port and memory accesses, attaching and detaching memory, dirty
//! tracking, registers, halts, kicks, interrupts by lines and pins, and start, IPI and TLB shootdown of a
//! second vCPU. The guest writes each value that it reads to a port, so that a wrong answer shows in the
//! trace. Parts that [`Caps`] exclude are reported as skipped, with the reason.

mod accesses;
mod dirty;
mod guest;
mod interrupts;
mod memory;
mod processors;
mod test_vm;
pub mod trace;

pub use self::accesses::expected_accesses;

use crate::{Caps, Controllers, Error, Hypervisor, Ring0, VmSpec};
use std::io;
use std::time::Duration;
use thiserror::Error;

/// A failed conformance test.
#[derive(Debug, Error)]
pub enum Failure {
    /// The trace differs.
    #[error("{part}, exit {step}: expected '{expected}', got '{got}'")]
    Trace {
        /// Part.
        part: &'static str,
        /// Exit, from 0.
        step: usize,
        /// Expected line.
        expected: String,
        /// Actual line.
        got: String,
    },
    /// A side effect that the trace does not show is wrong.
    #[error("{part}, exit {step}: {what}")]
    Effect {
        /// Part.
        part: &'static str,
        /// Exit, from 0.
        step: usize,
        /// Difference.
        what: String,
    },
    /// The backend refused a required operation.
    #[error("{part}: {source}")]
    Backend {
        /// Part.
        part: &'static str,
        /// Cause.
        source: Error,
    },
    /// Allocation of guest memory failed.
    #[error("no memory for the guest: {0}")]
    Memory(#[from] io::Error),
}

/// The trace of one vCPU.
#[derive(Debug)]
pub struct Trace {
    /// Part.
    pub part: &'static str,
    /// Exits.
    pub lines: Vec<String>,
}

/// A skipped part.
#[derive(Debug)]
pub struct Skipped {
    /// Part.
    pub part: &'static str,
    /// Reason.
    pub why: &'static str,
}

/// Result of a successful run.
#[derive(Debug, Default)]
pub struct Report {
    /// One trace for each vCPU of each guest.
    pub traces: Vec<Trace>,
    /// Skipped parts.
    pub skipped: Vec<Skipped>,
}

/// Delay of a kick or an interrupt.
const DELAY: Duration = Duration::from_millis(20);

const NO_LINES: &str = "no local interrupt controllers in the kernel";
const NO_PINS: &str = "no interrupt controllers for devices in the kernel";

/// Runs the suite.
///
/// # Errors
/// The first difference.
pub fn run<H: Hypervisor>(hypervisor: &H, caps: &Caps) -> Result<Report, Failure>
where
    H::Vm: Sync,
{
    let mut report = Report::default();
    let lacks = |has: bool, why: &'static str| (!has).then_some(why);
    let lines = lacks(caps.irq_lines, NO_LINES);
    let pins = lines.or(lacks(caps.irq_pins, NO_PINS));
    let inside = lines.or(lacks(
        caps.halt_in_guest,
        "a guest cannot halt without leaving",
    ));
    let dirty = lacks(caps.dirty, "the kernel does not track a guest's writes");
    let several = pins
        .or(lacks(caps.vcpus > 1, "a machine has one vCPU"))
        .or(lacks(
            caps.ring0 == Ring0::Native,
            "ring 0 and real mode of a second vCPU are emulated",
        ));
    report.traces.push(accesses::run(hypervisor, caps)?);
    report.traces.push(memory::run(hypervisor, caps)?);
    report.add(dirty::PART, dirty, || one(dirty::run(hypervisor)))?;
    report.add(interrupts::PART, lines, || one(interrupts::run(hypervisor)))?;
    report.add(interrupts::HALTS, inside, || {
        one(interrupts::run_halts(hypervisor))
    })?;
    report.add(interrupts::DELIVERY, pins, || {
        one(interrupts::run_delivery(hypervisor))
    })?;
    report.add(processors::PART, several, || processors::run(hypervisor))?;
    Ok(report)
}

fn one(trace: Result<Trace, Failure>) -> Result<Vec<Trace>, Failure> {
    trace.map(|trace| vec![trace])
}

impl Report {
    fn add(
        &mut self,
        part: &'static str,
        attach_error: Option<&'static str>,
        run: impl FnOnce() -> Result<Vec<Trace>, Failure>,
    ) -> Result<(), Failure> {
        match attach_error {
            Some(why) => self.skipped.push(Skipped { part, why }),
            None => self.traces.extend(run()?),
        }
        Ok(())
    }
}

fn create<H: Hypervisor>(
    hypervisor: &H,
    part: &'static str,
    controllers: Controllers,
) -> Result<H::Vm, Failure> {
    hypervisor
        .create_vm(&VmSpec::with(controllers))
        .map_err(in_part(part))
}

fn in_part(part: &'static str) -> impl FnOnce(Error) -> Failure {
    move |source| Failure::Backend { part, source }
}

#[cfg(test)]
mod tests;
