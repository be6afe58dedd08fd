//! `make endure`: power-cycles a Linux guest until the plan is complete or a flushed record is lost.
//! Arguments: number of runs that end by a power-off, by SIGKILL of the VMM, by a power cut of its
//! machine, and the seed.

use std::process::ExitCode;
use std::time::Instant;
use trapline_tests::cycles::{self, Parts, Plan, Sum};
use trapline_tests::settings;

/// Default plan.
const PLAN: [u64; 4] = [200, 50, 4, 1];

fn main() -> ExitCode {
    let start = Instant::now();
    let seconds = || start.elapsed().as_secs_f64();
    match endure(&mut |sum, line| say(seconds(), sum, line)) {
        Ok(sum) => {
            println!("{}", summary(seconds(), &sum));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("endure: {why}");
            ExitCode::FAILURE
        }
    }
}

fn endure(progress: &mut dyn FnMut(&Sum, &str)) -> Result<Sum, String> {
    let plan = plan(std::env::args().skip(1))?;
    let parts = Parts::find(settings())?;
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    cycles::run(&parts, &plan, place.path(), progress)
}

fn plan(words: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut numbers = PLAN;
    for (at, word) in words.enumerate() {
        let number = numbers.get_mut(at).ok_or("more than four numbers")?;
        *number = word
            .parse()
            .map_err(|_| format!("'{word}' is not a number"))?;
    }
    let [own, kills, cuts] = [0, 1, 2].map(|at| u32::try_from(numbers[at]));
    let too_many = |_| "the number of runs is too large".to_owned();
    Ok(Plan {
        own: own.map_err(too_many)?,
        kills: kills.map_err(too_many)?,
        cuts: cuts.map_err(too_many)?,
        seed: numbers[3],
    })
}

fn say(seconds: f64, sum: &Sum, line: &str) {
    println!(
        "{seconds:7.1} s  {:3} {:2} {}  {line}",
        sum.own, sum.kills, sum.cuts
    );
}

fn summary(seconds: f64, sum: &Sum) -> String {
    let runs = sum.own + sum.kills + sum.cuts;
    format!(
        "{} power-offs, {} kills and {} power cuts, {:.1} s each; {} flushed records;\n\
         all existed in {} reads",
        sum.own,
        sum.kills,
        sum.cuts,
        seconds / f64::from(runs.max(1)),
        sum.flushed,
        sum.found
    )
}
