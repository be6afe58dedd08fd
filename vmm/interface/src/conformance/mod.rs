//! The conformance suite: tiny guests whose exits are compared literally.
//!
//! Every backend passes it. Each part is a guest of about a page, and the trace of its exits must
//! be, line by line, the text in [`trace`]: port and memory accesses of every kind, memory that
//! comes and goes under its feet, writes that are tracked, registers, halts, recalls, interrupts
//! from lines and pins, a second vCPU that the first one starts, interrupts and makes forget a
//! mapping. What a guest reads it writes to a port, so that a wrong answer shows in the trace as
//! well. A part that the backend's [`Caps`] rule out is told as skipped, with the reason.

mod accesses;
mod dirty;
mod guest;
mod interrupts;
mod memory;
mod processors;
mod stand;
pub mod trace;

pub use self::accesses::expected_accesses;

use crate::{Caps, Controllers, Error, Hypervisor, Ring0, VmSpec};
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Why a backend does not conform.
#[derive(Debug, Error)]
pub enum Failure {
    /// The trace differs.
    #[error("{part}, exit {step}: expected '{expected}', got '{got}'")]
    Trace {
        /// Which guest.
        part: &'static str,
        /// Which exit, from 0.
        step: usize,
        /// What the trace should say.
        expected: String,
        /// What the guest was seen doing.
        got: String,
    },
    /// Something that no trace shows is wrong.
    #[error("{part}, exit {step}: {what}")]
    Effect {
        /// Which guest.
        part: &'static str,
        /// At which exit, from 0.
        step: usize,
        /// What is wrong.
        what: String,
    },
    /// The backend refused something that it must be able to do.
    #[error("{part}: {source}")]
    Backend {
        /// Which guest.
        part: &'static str,
        /// Its refusal.
        source: Error,
    },
    /// No memory for the guest.
    #[error("no memory for the guest: {0}")]
    Memory(#[from] io::Error),
}

/// One guest's trace, as it was seen and found right.
#[derive(Debug)]
pub struct Trace {
    /// Which guest.
    pub part: &'static str,
    /// Its exits.
    pub lines: Vec<String>,
}

/// A part that was not tried.
#[derive(Debug)]
pub struct Skipped {
    /// Which guest.
    pub part: &'static str,
    /// Why not.
    pub why: &'static str,
}

/// What the suite found of a backend that conforms.
#[derive(Debug, Default)]
pub struct Report {
    /// One for each vCPU of each guest.
    pub traces: Vec<Trace>,
    /// What was not tried.
    pub skipped: Vec<Skipped>,
}

/// How long the guest is left alone before somebody kicks it.
const SPELL: Duration = Duration::from_millis(20);

const NO_LINES: &str = "no local interrupt controllers in the kernel";
const NO_PINS: &str = "no interrupt controllers for devices in the kernel";

/// Runs the suite.
///
/// # Errors
/// The first difference from what every backend must do.
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
        obstacle: Option<&'static str>,
        run: impl FnOnce() -> Result<Vec<Trace>, Failure>,
    ) -> Result<(), Failure> {
        match obstacle {
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
