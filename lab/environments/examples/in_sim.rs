//! Runs a static program on the simulated machine and prints its output:
//! `cargo run -p trapline-environments --example in_sim -- PROGRAM ARGUMENT…`

use std::process::ExitCode;
use std::time::{Duration, Instant};
use trapline_environments::sim::programs::{run, Program};
use trapline_environments::{EnvError, Limits, Settings};

fn main() -> ExitCode {
    match try_main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn try_main() -> Result<(), EnvError> {
    let mut arguments = std::env::args_os().skip(1);
    let program = Program {
        file: arguments.next().unwrap_or_default().into(),
        arguments: arguments.collect(),
    };
    let start = Instant::now();
    let limits = Limits::timeout(Duration::from_secs(300));
    let (outputs, hash) = run(&Settings::find()?, &[program], &limits)?;
    for output in outputs {
        print!("{}", String::from_utf8_lossy(&output.console));
        eprint!("{}", String::from_utf8_lossy(&output.errors));
        eprintln!("{}, {} instructions", output.status, output.took);
    }
    eprintln!("{hash}, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
