//! `trapline compare`: compares two configs, measured in the same blocks or stored, operation by
//! operation.

mod page;
mod remarks;
mod since;
mod stored;

pub use since::since;

use crate::args::{selected, CompareArgs, FailOn, Side};
use crate::outcome;
use crate::session::{open_store, Session};
use std::time::Instant;
use trapline_model::{Config, Observation, Request};
use trapline_report::compare::CompareReport;
use trapline_report::Report;
use trapline_runner::comparison::MeasuredComparison;
use trapline_runner::{check_concurrent, random_seed, BootOptions, Failure, Inventory, Status};
use trapline_stats::compare::boots_of;
use trapline_stats::verdict::{Design, Settings};

/// Compares two sides, measuring them if they are not stored, and prints the verdicts.
///
/// # Errors
/// A part is missing, the store cannot be read or written, the sides cannot be compared, or output
/// cannot be written.
pub fn compare(args: &CompareArgs) -> Result<Status, Failure> {
    let page = page::requested(args)?;
    let compared = match (&args.a, &args.b) {
        (Side::New(a), Side::New(b)) => measure(args, a, b)?,
        (Side::Stored { runs: a, .. }, Side::Stored { runs: b, .. }) => {
            stored::compare(args, [a, b])?
        }
        _ => {
            return Err(Failure::usage(
                "one side is stored and the other is not: changes of the host would look like \
                 differences between them",
                "name two environments, or two runs that 'trapline show --list' lists",
            ))
        }
    };
    outcome::print(&compared.versus.document(), args.format)?;
    if let Some(page) = page {
        page.write(&compared)?;
    }
    let counts = compared.versus.counts();
    let fails = match args.fail_on {
        None => false,
        Some(FailOn::Changed) => counts.better + counts.worse > 0,
        Some(FailOn::Worse) => counts.worse > 0,
    };
    Ok(if fails && compared.status == Status::Done {
        Status::Failed
    } else {
        compared.status
    })
}

/// A comparison, and the status of the command.
struct Compared {
    versus: CompareReport,
    status: Status,
    /// Boots of both runs, or twice those of one.
    boots: [Vec<Observation>; 2],
}

fn settings(args: &CompareArgs, seed: u64) -> Settings {
    Settings {
        alpha: args.alpha / 100.0,
        margin: args.margin / 100.0,
        seed,
        most_blocks: if args.sequential {
            args.most_blocks() as usize
        } else {
            Settings::default().most_blocks
        },
        ..Settings::default()
    }
}

/// Measures both sides in the same blocks of one run.
fn measure(args: &CompareArgs, a: &Config, b: &Config) -> Result<Compared, Failure> {
    same_clock(a, b)?;
    // In an A/A comparison the store keeps the sides apart by a mark on the second.
    let is_aa = a == b;
    let b = if is_aa { &a.control() } else { b };
    let both = [a.clone(), b.clone()];
    let mut store = open_store(&args.run_options)?;
    let inventory = args.environment_options.inventory()?;
    let inventory = inventory.with_overrides(&both)?;
    for config in &both {
        require_ready(&inventory, config)?;
    }
    if args.concurrent {
        require_concurrent(args, a)?;
    }
    let session = Session::open(&args.run_options, inventory)?;
    let options = BootOptions {
        deadline: Instant::now().checked_add(args.budget),
        concurrent: args.concurrent,
        ..BootOptions::default()
    };
    let settings = settings(args, args.seed.unwrap_or_else(random_seed));
    let comparison = MeasuredComparison {
        sides: [a, b],
        request: request(args, &both, &settings, &session.inventory),
        looks: args.looks(),
        is_sequential: args.sequential,
        settings,
    };
    let (run, matches) = comparison.measure(&mut store, &session.context(), &options)?;
    let design = Design::Blocked;
    let mut remarks = remarks::remarks(&matches, is_aa.then_some(a), &settings, design);
    let [of_a, of_b] = [a, b].map(|config| boots_of(&run.observations, config));
    remarks.extend(remarks::differing_facts(&of_a, &of_b));
    if options.is_expired() {
        let blocks = run.observations.iter().filter(|seen| seen.config == *a);
        remarks.push(format!(
            "The time was over after {} blocks (--budget).",
            blocks.count()
        ));
    }
    let status = outcome::status(&Report {
        allowed_losses: args.run_options.allow_lost.unwrap_or_default(),
        ..outcome::report_of_all(&run)
    });
    let versus = CompareReport {
        version: run.info.version,
        facts: run.info.facts,
        a: a.to_string(),
        b: b.to_string(),
        settings,
        design,
        remarks,
        matches,
    };
    let boots = [run.observations.clone(), run.observations];
    Ok(Compared {
        versus,
        status,
        boots,
    })
}

fn request(
    args: &CompareArgs,
    both: &[Config],
    settings: &Settings,
    inventory: &Inventory,
) -> Request {
    let (operations, named) = selected(&args.workloads);
    Request {
        configs: both.to_vec(),
        ready: both.to_vec(),
        without_taps: inventory.without_taps(operations),
        operations,
        named,
        preset: args.preset.into(),
        boots: Some(args.most_blocks()),
        overrides: inventory.overrides().clone(),
        seed: settings.seed,
        ..Request::default()
    }
}

fn require_ready(inventory: &Inventory, config: &Config) -> Result<(), Failure> {
    match inventory.unavailable_config(config, &[]) {
        None => Ok(()),
        Some(unavailable) => {
            let failure = Failure::new(format!("{config} cannot be measured: {unavailable}"));
            let failure = failure.help("'trapline list' lists the environments that can");
            Err(failure.status(Status::Unmeasured))
        }
    }
}

/// # Errors
/// `--concurrent` is not supported by the clock, the operations, or the number of CPUs.
fn require_concurrent(args: &CompareArgs, config: &Config) -> Result<(), Failure> {
    if config.environment.clock().is_exact() {
        return Err(Failure::usage(
            "--concurrent is not supported by exact clocks: they have no noise",
            "leave it out",
        ));
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    check_concurrent(selected(&args.workloads).0, cpus)
}

fn same_clock(a: &Config, b: &Config) -> Result<(), Failure> {
    let (of_a, of_b) = (a.environment.clock(), b.environment.clock());
    if of_a == of_b {
        Ok(())
    } else {
        Err(Failure::usage(
            format!("figures of different clocks cannot be compared: {a} has {of_a}, {b} {of_b}"),
            "compare environments of one clock; 'trapline list' names them",
        ))
    }
}
