//! The conformance suite: small guests whose exits are compared literally.
//!
//! Every backend passes it. Each part is one guest of about a page; its exits must equal the text in
//! [`trace`], line by line. The parts cover port and memory accesses, attaching and detaching memory, dirty
//! tracking, registers, halts, kicks, interrupts by lines and pins, and start, IPI and TLB shootdown of a
//! second vCPU. All parts but the last run without an operating system, too, in a program that is a [`Host`]. The guest writes each value that it reads to a port, so that a wrong answer shows in the
//! trace. Parts that [`Caps`] exclude are reported as skipped, with the reason.

mod accesses;
mod dirty;
mod guest;
mod interrupts;
mod memory;
#[cfg(feature = "std")]
mod processors;
mod test_vm;
pub mod trace;

pub use self::accesses::expected_accesses;

use crate::{Caps, Controllers, Error, Hypervisor, OutOfRegion, Region, Ring0, VmSpec};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
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
    Memory(String),
    /// A write exceeds guest memory.
    #[error(transparent)]
    Range(#[from] OutOfRegion),
    /// No part has this name.
    #[error("unknown part '{0}'")]
    UnknownPart(String),
}

/// Services of the program that runs the suite.
pub trait Host {
    /// Allocates zeroed guest memory of whole pages.
    ///
    /// # Errors
    /// The reason.
    fn memory(&self, length: usize) -> Result<Region, String>;

    /// Calls `action` after [`DELAY`], while the vCPU runs.
    fn later(&self, action: Box<dyn FnOnce() + Send>);
}

/// This process.
#[cfg(feature = "std")]
pub struct Process;

#[cfg(feature = "std")]
impl Host for Process {
    fn memory(&self, length: usize) -> Result<Region, String> {
        use alloc::string::ToString;
        Region::new(length).map_err(|error| error.to_string())
    }

    fn later(&self, action: Box<dyn FnOnce() + Send>) {
        std::thread::spawn(move || {
            std::thread::sleep(DELAY);
            action();
        });
    }
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
#[derive(Clone, Copy, Debug)]
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
pub const DELAY: Duration = Duration::from_millis(20);

/// Output of the suite: a line for each exit and each skipped part.
impl core::fmt::Display for Report {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for trace in &self.traces {
            writeln!(f, "{}:", trace.part)?;
            for line in &trace.lines {
                writeln!(f, "  {line}")?;
            }
        }
        for Skipped { part, why } in &self.skipped {
            writeln!(f, "{part}: skipped: {why}")?;
        }
        Ok(())
    }
}

const NO_LINES: &str = "no local interrupt controllers in the kernel";
const NO_PINS: &str = "no interrupt controllers for devices in the kernel";

/// Names of the parts.
pub const PARTS: [&str; 7] = [
    accesses::PART,
    memory::PART,
    dirty::PART,
    interrupts::PART,
    interrupts::HALTS,
    interrupts::DELIVERY,
    PROCESSORS,
];
const PROCESSORS: &str = "processors";

/// Returns the reason for which `part` is skipped.
fn skipped(part: &str, caps: &Caps) -> Option<&'static str> {
    let lacks = |has: bool, why: &'static str| (!has).then_some(why);
    let lines = lacks(caps.irq_lines, NO_LINES);
    let pins = lines.or(lacks(caps.irq_pins, NO_PINS));
    match part {
        dirty::PART => lacks(caps.dirty, "the kernel does not track a guest's writes"),
        interrupts::PART => lines,
        interrupts::HALTS => lines.or(lacks(
            caps.halt_in_guest,
            "a guest cannot halt without leaving",
        )),
        interrupts::DELIVERY => pins,
        PROCESSORS => pins
            .or(lacks(caps.vcpus > 1, "a machine has one vCPU"))
            .or(lacks(
                caps.ring0 == Ring0::Native,
                "ring 0 and real mode of a second vCPU are emulated",
            )),
        _ => None,
    }
}

/// Runs the suite in this process.
///
/// # Errors
/// The first difference.
#[cfg(feature = "std")]
pub fn run<H: Hypervisor>(hypervisor: &H, caps: &Caps) -> Result<Report, Failure>
where
    H::Vm: Sync,
{
    let mut report = Report::default();
    for part in PARTS {
        let one = match (part, skipped(part, caps)) {
            (PROCESSORS, None) => Report {
                traces: processors::run(hypervisor)?,
                skipped: Vec::new(),
            },
            _ => run_part(hypervisor, caps, &Process, part)?,
        };
        report.traces.extend(one.traces);
        report.skipped.extend(one.skipped);
    }
    Ok(report)
}

/// Runs one of [`PARTS`] that has a single vCPU.
///
/// # Errors
/// The first difference, or an unknown part.
pub fn run_part<H: Hypervisor>(
    hypervisor: &H,
    caps: &Caps,
    host: &dyn Host,
    part: &str,
) -> Result<Report, Failure> {
    let known = PARTS.into_iter().find(|known| *known == part);
    let part = known.ok_or_else(|| Failure::UnknownPart(part.into()))?;
    let mut report = Report::default();
    if let Some(why) = skipped(part, caps) {
        report.skipped.push(Skipped { part, why });
        return Ok(report);
    }
    report.traces.push(match part {
        memory::PART => memory::run(hypervisor, caps, host)?,
        dirty::PART => dirty::run(hypervisor, host)?,
        interrupts::PART => interrupts::run(hypervisor, host)?,
        interrupts::HALTS => interrupts::run_halts(hypervisor, host)?,
        interrupts::DELIVERY => interrupts::run_delivery(hypervisor, host)?,
        PROCESSORS => {
            let why = "it needs threads";
            report.skipped.push(Skipped { part, why });
            return Ok(report);
        }
        _ => accesses::run(hypervisor, caps, host)?,
    });
    Ok(report)
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
