//! Boots one environment once and prints what was observed:
//! `cargo run -p trapline-environments --example boot -- sim/linux basic,boot`
//! with the parts in $TRAPLINE_PARTS.

use std::process::ExitCode;
use std::time::{Duration, Instant};
use trapline_abi::job::operations_named;
use trapline_abi::OpSet;
use trapline_environments::{all, boot, EnvError, Environment};
use trapline_environments::{Limits, Settings};
use trapline_model::{expand, EnvironmentId, Observation, Outcome, Request};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "host".to_owned());
    let names = arguments
        .next()
        .unwrap_or_else(|| "basic,exits,boot".to_owned());
    let operations = names.split(',').filter_map(operations_named).collect();
    match run(&name, operations) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, operations: OpSet) -> Result<(), EnvError> {
    let unknown = || EnvError::unavailable(format!("there is no environment {name}"));
    let id = EnvironmentId::from_name(name).ok_or_else(unknown)?;
    let settings = Settings::find()?;
    let environments = all(&settings);
    let environment = environments.iter().find(|found| found.id() == id);
    observe(
        environment.ok_or_else(unknown)?.as_ref(),
        operations,
        &settings,
    )
}

fn observe(
    environment: &dyn Environment,
    operations: OpSet,
    settings: &Settings,
) -> Result<(), EnvError> {
    let id = environment.id();
    let plan = expand(&Request {
        configs: vec![id.into()],
        ready: vec![id.into()],
        operations,
        boots: Some(1),
        seed: 1,
        ..Request::default()
    });
    let planned = &plan.boots[0];
    environment.check(&planned.guest)?;
    let image = settings.parts.image()?;
    let start = Instant::now();
    let limits = Limits::timeout(Duration::from_secs(120));
    let booted = boot(environment, &image, planned, &limits, &mut |_| {})?;
    print(&booted.observation);
    println!("wall time {:.3} s", start.elapsed().as_secs_f64());
    booted.error.map_or(Ok(()), Err)
}

fn print(observation: &Observation) {
    for (name, value) in &observation.facts {
        println!("{name}: {value}");
    }
    for problem in &observation.problems {
        println!("problem: {problem}");
    }
    println!("log: {}", observation.log);
    for launch in &observation.launches {
        println!("launch: {:?} {:?}", launch.timeline, launch.counters);
    }
    for operation in &observation.operations {
        let path = operation.op.path();
        println!(
            "{path:24} {}",
            summary(&operation.outcome, observation.unit_per_tick)
        );
    }
}

fn summary(outcome: &Outcome, unit_per_tick: f64) -> String {
    match outcome {
        Outcome::Measured {
            samples,
            exits,
            host_cpu_ns,
            elapsed,
            ..
        } => {
            let per_operation = |sample: &trapline_model::Sample| {
                (sample.end - sample.start) as f64 * unit_per_tick / sample.count as f64
            };
            let least = samples.iter().map(per_operation).fold(f64::MAX, f64::min);
            let count = samples.len();
            format!(
                "{least:14.2} ({count}) exits {exits:?} cpu {host_cpu_ns:?} elapsed {elapsed:?}"
            )
        }
        Outcome::Skipped(reason) => format!("skipped: {reason}"),
        Outcome::Failed(reason) => format!("failed: {reason}"),
    }
}
