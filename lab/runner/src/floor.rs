//! Measures the cost of an exit without a VMM: with `/dev/kvm` of this host, and of a simulated
//! machine.

use crate::context::RunContext;
use crate::event::RunEvent;
use crate::failure::Failure;
use crate::timeout;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use trapline_environments::sim::programs::{self, Program};
use trapline_environments::{tool, Limits, TscRate};
use trapline_model::EnvironmentId;

/// File name of the program that measures.
pub const PROGRAM: &str = "trapline-floor";

/// Exit status of the program where `/dev/kvm` is missing.
const SKIPPED: i32 = 77;

/// Results of both machines.
#[derive(Default, Serialize)]
pub struct Floors {
    /// Version of Trapline.
    pub trapline: &'static str,
    /// Measured costs.
    pub floors: Vec<Floor>,
    /// Machines that were not measured.
    pub skips: Vec<Skip>,
}

/// Cost of one exit in one loop around KVM_RUN.
#[derive(Debug, PartialEq, Serialize)]
pub struct Floor {
    /// Name of the environment with the same kernel.
    pub environment: &'static str,
    /// Clock.
    pub clock: &'static str,
    /// Unit of the clock.
    pub unit: &'static str,
    /// Kind of exit.
    pub operation: String,
    /// Loop around KVM_RUN.
    #[serde(rename = "loop")]
    pub run_loop: String,
    /// Minimum over batches.
    pub min: f64,
    /// Median over batches.
    pub median: f64,
}

/// A machine that was not measured.
#[derive(Serialize)]
pub struct Skip {
    /// Name of the environment.
    pub environment: &'static str,
    /// Reason.
    pub skip: String,
}

/// Output of the program, or the reason why it could not be measured.
type Output = Result<String, String>;

/// Runs `program` on this host and on the simulated machine.
///
/// # Errors
/// It cannot be started, or fails where it should work.
pub fn measure(program: &Path, context: &RunContext<'_>) -> Result<Floors, Failure> {
    let mut floors = Floors {
        trapline: env!("CARGO_PKG_VERSION"),
        ..Floors::default()
    };
    floors.add(EnvironmentId::KVM, on_host(program)?);
    floors.add(
        EnvironmentId::SIM_KVM,
        simulated(program.to_owned(), context)?,
    );
    Ok(floors)
}

fn on_host(program: &Path) -> Result<Output, Failure> {
    let output = tool::output(&mut Command::new(program))?;
    check(output.status, &output.stdout, &output.stderr)
}

fn simulated(file: PathBuf, context: &RunContext<'_>) -> Result<Output, Failure> {
    if let Some(reason) = context.inventory.unavailable(EnvironmentId::SIM_KVM) {
        return Ok(Err(reason.to_string()));
    }
    let watch = Limits {
        timeout: timeout::EXACT,
        stop: context.interrupt.flag(),
    };
    let program = Program {
        file,
        arguments: Vec::new(),
    };
    let task = "the floor on the simulated machine";
    context.events.handle(RunEvent::TaskStarted(task));
    let ran = programs::run(context.inventory.settings(), &[program], &watch);
    context.events.handle(RunEvent::Finished);
    let (outputs, _) = ran?;
    match outputs.first() {
        Some(output) => check(output.status, &output.console, &output.errors),
        None => Err(Failure::new(
            "the simulated machine did not run the program",
        )),
    }
}

fn check(status: ExitStatus, output: &[u8], errors: &[u8]) -> Result<Output, Failure> {
    let errors = String::from_utf8_lossy(errors).trim().to_owned();
    match status.code() {
        Some(0) => Ok(Ok(String::from_utf8_lossy(output).into_owned())),
        Some(SKIPPED) => Ok(Err(errors)),
        _ => Err(Failure::new(format!(
            "{PROGRAM} failed: {status}: {errors}"
        ))),
    }
}

impl Floors {
    fn add(&mut self, environment: EnvironmentId, output: Output) {
        match output {
            Ok(text) => self.floors.extend(parse(environment, &text)),
            Err(skip) => self.skips.push(Skip {
                environment: environment.name(),
                skip,
            }),
        }
    }
}

/// Parses lines of `operation/loop/statistic`, tab, ticks.
pub fn parse(environment: EnvironmentId, text: &str) -> Vec<Floor> {
    let (unit, unit_per_tick) = if environment.clock().is_exact() {
        ("insn", 1.0)
    } else {
        ("ns", TscRate::host().ns_per_tick())
    };
    let mut floors: Vec<Floor> = Vec::new();
    for (operation, run_loop, statistic, ticks) in text.lines().filter_map(parse_line) {
        let is_same = |floor: &Floor| floor.operation == operation && floor.run_loop == run_loop;
        let index = floors.iter().position(is_same).unwrap_or_else(|| {
            floors.push(Floor {
                environment: environment.name(),
                clock: environment.clock().name(),
                unit,
                operation: operation.to_owned(),
                run_loop: run_loop.to_owned(),
                min: 0.0,
                median: 0.0,
            });
            floors.len() - 1
        });
        match statistic {
            "min" => floors[index].min = ticks * unit_per_tick,
            _ => floors[index].median = ticks * unit_per_tick,
        }
    }
    floors
}

fn parse_line(line: &str) -> Option<(&str, &str, &str, f64)> {
    let (name, ticks) = line.split_once('\t')?;
    let mut words = name.split('/');
    let (operation, run_loop, statistic) = (words.next()?, words.next()?, words.next()?);
    Some((operation, run_loop, statistic, ticks.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_program_is_parsed() {
        let output = "port-out/unfiltered/min\t3090.000\nport-out/unfiltered/median\t3091.500\n\
                      port-out/vmm/min\t3170.000\nport-out/vmm/median\t3170.000\nother text\n";
        let floors = parse(EnvironmentId::SIM_KVM, output);
        let parsed: Vec<_> = floors
            .iter()
            .map(|f| (f.run_loop.as_str(), f.min, f.median, f.unit))
            .collect();
        assert_eq!(
            parsed,
            [
                ("unfiltered", 3090.0, 3091.5, "insn"),
                ("vmm", 3170.0, 3170.0, "insn")
            ]
        );
        assert!(parse(EnvironmentId::KVM, output)[0].min > 0.0);
    }
}
