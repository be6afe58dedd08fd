//! `trapline`: what virtualization costs, to the instruction.
//!
//! The command line is defined in [`args`]; each command is a module with one
//! function; [`failure`] is how all of them end. Measuring itself is in [`run`].

mod args;
mod bisect;
mod block;
mod boot;
mod cache;
mod compare;
mod doctor;
mod duet;
mod explain;
mod export;
mod failure;
mod files;
mod floor;
mod followers;
mod gate;
mod history;
mod interrupt;
mod irq;
mod keep;
mod keeper;
mod kernel_build;
mod lab;
mod ledgers;
mod list;
mod manual;
mod measure;
mod outcome;
mod parts;
mod place;
mod plan;
mod populate;
mod progress;
mod report;
mod resume;
mod run;
mod seed;
mod show;
mod terminal;

use args::{Cli, Command, DoctorArgs, PlainFormat};
use clap::Parser;
use failure::{Failure, Status};
use std::process::ExitCode;

fn main() -> ExitCode {
    let status = match Cli::try_parse() {
        Ok(cli) => {
            terminal::choose_color(cli.color);
            obey(cli.command).unwrap_or_else(|failure| failure.tell())
        }
        Err(error) => answer(&error),
    };
    status.into()
}

/// Help and version go to standard output; everything else is a failure.
fn answer(error: &clap::Error) -> Status {
    match Failure::from_clap(error) {
        Some(failure) => failure.tell(),
        None => {
            // A reader that has gone is no failure.
            let _ = error.print();
            Status::Done
        }
    }
}

fn obey(command: Command) -> Result<Status, Failure> {
    match command {
        Command::Doctor(args) => print_diagnosis(&args)?,
        Command::Completions { shell } => terminal::print_text(&manual::completions(shell))?,
        Command::Man => terminal::print_text(&manual::page())?,
        Command::List(args) => list::list(&args)?,
        Command::Run(args) => return run::run(&args),
        Command::Plan(args) => return plan::plan(&args),
        Command::Irq(args) => return irq::irq(&args),
        Command::Block(args) => return block::block(&args),
        Command::Populate(args) => return populate::populate(&args),
        Command::Boot(args) => return boot::boot(&args),
        Command::KernelBuild(args) => return kernel_build::kernel_build(&args),
        Command::Baseline(args) => gate::baseline(&args)?,
        Command::Check(args) => return gate::check(&args),
        Command::Bisect(args) => return bisect::bisect(&args),
        Command::Explain(args) => return explain::explain(&args),
        Command::Floor(args) => floor::floor(&args)?,
        Command::Cache(args) => cache::cache(&args)?,
        Command::Show(args) => return show::show(&args),
        Command::Export(args) => return export::export(&args),
        Command::Report(args) => return report::report(&args),
        Command::History(args) => return history::history(&args),
        Command::Compare(args) => return compare::compare(&args),
    }
    Ok(Status::Done)
}

fn print_diagnosis(args: &DoctorArgs) -> Result<(), Failure> {
    let findings = doctor::examine();
    match args.format {
        PlainFormat::Json => terminal::print_json(&doctor::to_json(&findings)),
        PlainFormat::Table => {
            terminal::print(|mut out| doctor::print(&findings, terminal::width(), &mut out))
        }
    }
}
