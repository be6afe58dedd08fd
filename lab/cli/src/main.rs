//! `trapline`: measures the cost of virtualization, to the instruction.
//!
//! The command line is defined in [`args`]; each command is a module with one function. Commands parse and
//! print; [`trapline_runner`] measures.

mod args;
mod bisect;
mod block;
mod boot;
mod cache;
mod compare;
mod completion;
mod configuration;
mod doctor;
mod explain;
mod export;
mod failure;
mod fleet;
mod floor;
mod gate;
mod history;
mod irq;
mod kernel_build;
mod layouts;
mod list;
mod manual;
mod net;
mod outcome;
mod output_file;
mod parts;
mod plan;
mod populate;
mod progress;
mod recorded_command;
mod report;
mod run;
mod session;
mod show;
mod store;
mod store_path;
mod terminal;
mod timer;

use args::{Cli, Command, EnvironmentOptions, PlainFormat};
use failure::{Failure, Status};
use std::process::ExitCode;
use trapline_runner::Interrupt;

fn main() -> ExitCode {
    end_with_parent();
    // Defines environments, which arguments and completions name.
    let invalid = configuration::read();
    completion::answer();
    let status = match Cli::of_process() {
        Ok(cli) => {
            terminal::choose_color(cli.color);
            warn(&invalid);
            let done = or_interrupted(execute(cli.command), Interrupt::received());
            done.unwrap_or_else(|failure| failure::print(&failure))
        }
        Err(error) => report_usage(&error, &invalid),
    };
    failure::exit_code(status)
}

/// Returns the result of a command. After a signal that is its likely cause, whatever the command says.
fn or_interrupted(done: Result<Status, Failure>, signal: Option<i32>) -> Result<Status, Failure> {
    match (done, signal) {
        (Ok(_), Some(signal)) => Ok(Status::Interrupted(signal)),
        (Err(_), Some(signal)) => Err(Failure::interrupted(signal)),
        (done, None) => done,
    }
}

/// Prints a warning for each invalid file of the configuration: it hinders only the use of its VMMs.
fn warn(invalid: &[Failure]) {
    for failure in invalid {
        terminal::print_error(&format!("warning: {failure}; its VMMs are not defined"));
        if let Some(help) = &failure.help {
            terminal::print_error(&format!("help: {help}"));
        }
    }
}

/// Prints help and version to standard output, and other errors of the parser as failures: a VMM may be unknown because a
/// file of the configuration is invalid. Without arguments, prints the commands to standard error.
fn report_usage(error: &clap::Error, invalid: &[Failure]) -> Status {
    let help = error.render().ansi().to_string();
    match failure::from_clap(error) {
        Some(_) if failure::lacks_command(error) && std::env::args_os().len() == 1 => {
            terminal::write_error(format_args!("{help}"));
            Status::Usage
        }
        Some(failure) => {
            warn(invalid);
            failure::print(&failure)
        }
        None => {
            let printed = terminal::print_styled(&help);
            printed.map_or_else(|failure| failure::print(&failure), |()| Status::Done)
        }
    }
}

/// Has this process ended by SIGTERM when its parent ends, if that has asked for it. Others inherit the variable.
fn end_with_parent() {
    use rustix::process::{getppid, set_parent_process_death_signal, Signal};
    let asked = std::env::var(trapline_fleet::ENDS_WITH_PARENT).ok();
    let parent = getppid().map(|parent| parent.as_raw_nonzero().to_string());
    if asked.is_some() && asked == parent {
        // Without it this process goes on alone.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
    }
}

fn execute(command: Command) -> Result<Status, Failure> {
    match command {
        Command::Doctor(args) => print_findings(args.format)?,
        Command::Completions { shell } => terminal::print_text(&completion::script(shell)?)?,
        Command::Man { command } => terminal::print_text(&manual::page(command.as_deref())?)?,
        Command::List(args) => list::list(&args)?,
        Command::Run(args) => return run::run(&args),
        Command::Plan(args) => return plan::plan(&args),
        Command::Irq(args) => return irq::irq(&args),
        Command::Block(args) => return block::block(&args),
        Command::Populate(args) => return populate::populate(&args),
        Command::Boot(args) => return boot::boot(&args),
        Command::KernelBuild(args) => return kernel_build::kernel_build(&args),
        Command::Net(args) => return net::net(&args),
        Command::Baseline(args) => gate::baseline(&args)?,
        Command::Check(args) => return gate::check(&args),
        Command::Bisect(args) => return bisect::bisect(&args),
        Command::Explain(args) => return explain::explain(&args),
        Command::Floor(args) => floor::floor(&args)?,
        Command::Cache(args) => cache::cache(&args)?,
        Command::Fleet(args) => return fleet::fleet(&args),
        Command::Store(args) => return store::store(&args),
        Command::Show(args) => return show::show(&args),
        Command::Export(args) => return export::export(&args),
        Command::Report(args) => return report::report(&args),
        Command::History(args) => return history::history(&args),
        Command::Compare(args) => return compare::compare(&args),
    }
    Ok(Status::Done)
}

fn print_findings(format: PlainFormat) -> Result<(), Failure> {
    let findings = doctor::examine(EnvironmentOptions::default().inventory());
    match format {
        PlainFormat::Json => terminal::print_json(&doctor::to_json(&findings)),
        PlainFormat::Table => terminal::print_styled(&doctor::text(&findings, terminal::width())),
    }
}
