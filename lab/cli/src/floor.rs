//! `trapline floor`: what the kernel itself charges for an exit, with no VMM
//! around it: on this host's `/dev/kvm`, and on the simulated machine's.

use crate::args::{FloorArgs, PlainFormat};
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::progress::Bar;
use crate::{parts, terminal};
use serde::Serialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use trapline_environments::sim::programs::{self, Program};
use trapline_environments::{Rate, Watch};
use trapline_model::EnvironmentId;

/// Trapline's own program for it.
const PROGRAM: &str = "trapline-floor";

/// It ends so where there is no `/dev/kvm`.
const SKIPPED: i32 = 77;

/// The most time that the simulated machine may take.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Serialize)]
struct Floors {
    trapline: &'static str,
    floors: Vec<Floor>,
    skips: Vec<Skip>,
}

/// What one exit costs in one loop around KVM_RUN.
#[derive(Debug, PartialEq, Serialize)]
struct Floor {
    environment: &'static str,
    clock: &'static str,
    unit: &'static str,
    operation: String,
    #[serde(rename = "loop")]
    around: String,
    min: f64,
    median: f64,
}

#[derive(Serialize)]
struct Skip {
    environment: &'static str,
    skip: String,
}

/// Measures the floor here and on the simulated machine, and prints it.
///
/// # Errors
/// The program for it is not there, or fails where it should work.
pub fn floor(args: &FloorArgs) -> Result<(), Failure> {
    if args.simulated.vmm.is_some() {
        let told = "the floor is what an exit costs without any VMM";
        let help = "leave --vmm out";
        return Err(Failure::new(told).help(help).status(Status::Usage));
    }
    let program = parts::directory().join(PROGRAM);
    if !program.is_file() {
        let missing = format!("{PROGRAM} is not in {}", parts::directory().display());
        return Err(Failure::new(missing).help("make build, or set TRAPLINE_PARTS"));
    }
    let mut floors = Floors {
        trapline: env!("CARGO_PKG_VERSION"),
        floors: Vec::new(),
        skips: Vec::new(),
    };
    floors.add(EnvironmentId::Kvm, on_host(&program)?);
    floors.add(EnvironmentId::SimKvm, simulated(&program, args)?);
    match args.format {
        PlainFormat::Json => terminal::print_json(&serde_json::json!(floors)),
        PlainFormat::Table => terminal::print_text(&table(&floors)),
    }
}

/// What the program printed, or why it could not be run.
type Printed = Result<String, String>;

fn on_host(program: &Path) -> Result<Printed, Failure> {
    let output = Command::new(program).stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        Failure::new(format!("{} cannot be started: {error}", program.display()))
    })?;
    judge(output.status, &output.stdout, &output.stderr)
}

fn simulated(program: &Path, args: &FloorArgs) -> Result<Printed, Failure> {
    let interrupt = Interrupt::watch()?;
    let lab = Lab::open(&args.simulated)?;
    if let Some(reason) = lab.why_not(EnvironmentId::SimKvm) {
        return Ok(Err(reason.to_owned()));
    }
    let bar = Bar::of_one("the floor on the simulated machine");
    let watch = Watch {
        patience: PATIENCE,
        stop: interrupt.flag(),
    };
    let only = Program {
        file: program.to_owned(),
        arguments: Vec::new(),
    };
    let ran = programs::run(lab.settings(), &[only], &watch);
    bar.finish();
    let (outputs, _) = ran.map_err(|error| interrupt.explain(&error))?;
    match outputs.first() {
        Some(output) => judge(output.status, &output.console, &output.errors),
        None => Err(Failure::new(
            "the simulated machine did not run the program",
        )),
    }
}

fn judge(
    status: std::process::ExitStatus,
    output: &[u8],
    errors: &[u8],
) -> Result<Printed, Failure> {
    let words = String::from_utf8_lossy(errors).trim().to_owned();
    match status.code() {
        Some(0) => Ok(Ok(String::from_utf8_lossy(output).into_owned())),
        Some(SKIPPED) => Ok(Err(words)),
        _ => Err(Failure::new(format!(
            "{PROGRAM} failed ({status}): {words}"
        ))),
    }
}

impl Floors {
    fn add(&mut self, environment: EnvironmentId, printed: Printed) {
        match printed {
            Ok(text) => self.floors.extend(read(environment, &text)),
            Err(skip) => self.skips.push(Skip {
                environment: environment.name(),
                skip,
            }),
        }
    }
}

/// Reads lines of `operation/loop/statistic`, tab, ticks.
fn read(environment: EnvironmentId, text: &str) -> Vec<Floor> {
    let (unit, unit_per_tick) = match environment {
        EnvironmentId::Kvm => ("ns", Rate::of_this_host().ns_per_tick()),
        _ => ("insn", 1.0),
    };
    let mut floors: Vec<Floor> = Vec::new();
    for (operation, around, statistic, ticks) in text.lines().filter_map(read_line) {
        let known = |floor: &Floor| floor.operation == operation && floor.around == around;
        let index = floors.iter().position(known).unwrap_or_else(|| {
            floors.push(Floor {
                environment: environment.name(),
                clock: environment.clock().name(),
                unit,
                operation: operation.to_owned(),
                around: around.to_owned(),
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

fn read_line(line: &str) -> Option<(&str, &str, &str, f64)> {
    let (name, ticks) = line.split_once('\t')?;
    let mut words = name.split('/');
    let (operation, around, statistic) = (words.next()?, words.next()?, words.next()?);
    Some((operation, around, statistic, ticks.parse().ok()?))
}

fn table(floors: &Floors) -> String {
    let mut text = String::from(
        "What one exit costs around KVM_RUN, for a guest that does nothing else.\n\
         unfiltered: no look at why it came back; filtered: the same under the seccomp\n\
         filter of trapline-vmm; vmm: the real loop of trapline-vmm, filter on; kernel:\n\
         a doorbell, which no VMM is asked about.\n\n",
    );
    text.push_str(&format!(
        "{:<10} {:<12} {:<11} {:>12} {:>12}\n",
        "", "", "", "minimum", "median"
    ));
    for floor in &floors.floors {
        let line = format!(
            "{:<10} {:<12} {:<11} {:>7.0} {:<4} {:>7.0} {}\n",
            floor.environment,
            floor.operation,
            floor.around,
            floor.min,
            floor.unit,
            floor.median,
            floor.unit
        );
        text.push_str(&line);
    }
    for skip in &floors.skips {
        text.push_str(&format!(
            "{:<10} not measured: {}\n",
            skip.environment, skip.skip
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
port-out/unfiltered/min\t3090.000
port-out/unfiltered/median\t3091.500
port-out/vmm/min\t3170.000
port-out/vmm/median\t3170.000
and something else
";

    #[test]
    fn what_the_program_prints_is_read() {
        let floors = read(EnvironmentId::SimKvm, PRINTED);
        let told: Vec<_> = floors
            .iter()
            .map(|f| (f.around.as_str(), f.min, f.median))
            .collect();
        assert_eq!(
            told,
            [("unfiltered", 3090.0, 3091.5), ("vmm", 3170.0, 3170.0)]
        );
        assert_eq!(floors[0].unit, "insn");
        assert!(read(EnvironmentId::Kvm, PRINTED)[0].min > 0.0);
    }

    #[test]
    fn the_table_fits_and_tells_what_was_skipped() {
        let text = table(&Floors {
            trapline: "",
            floors: read(EnvironmentId::SimKvm, PRINTED),
            skips: vec![Skip {
                environment: "kvm",
                skip: "no /dev/kvm".to_owned(),
            }],
        });
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(
            text.contains("sim/kvm    port-out     vmm            3170 insn    3170 insn"),
            "{text}"
        );
        assert!(
            text.ends_with("kvm        not measured: no /dev/kvm\n"),
            "{text}"
        );
    }
}
