//! `trapline explain`: where the instructions of operations go, in one environment,
//! or what differs in a second.

mod flame;
mod show;

use crate::args::ExplainArgs;
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::ledgers::{has_ledger, Counted, Desk};
use flame::Canvas;
use show::Page;
use std::time::Duration;
use trapline_abi::{Op, Workload};
use trapline_model::{names, Clock, EnvironmentId, Outcome};
use trapline_profile::Ledger;

/// A ledger and what it is of.
struct Explained<'a> {
    environment: EnvironmentId,
    ledger: &'a Ledger,
}

/// Explains operations and prints their ledgers, or the differences of two each.
///
/// # Errors
/// They cannot be measured there, or two runs disagree.
pub fn explain(args: &ExplainArgs) -> Result<Status, Failure> {
    let operations = explainable(args)?;
    let canvas = canvas(args, &operations)?;
    let lab = Lab::open(&args.simulated)?;
    let interrupt = Interrupt::watch()?;
    let desk = Desk {
        lab: &lab,
        interrupt: &interrupt,
        timeout: args.timeout.map(Duration::from_secs),
        quiet: false,
        stacks: canvas.is_some(),
    };
    let set = operations.iter().fold(0, |set, op| set | op.bit());
    let counted = desk.count(&args.environments, set)?;
    let page = |op: &Op| page(&counted, *op, &args.environments);
    let pages: Vec<Page<'_>> = match operations.as_slice() {
        [op] => vec![page(op)?],
        // Of a whole workload, what is not measured here is told and passed over.
        all => all.iter().filter_map(|op| told(page(op))).collect(),
    };
    if let (Some(canvas), [page]) = (canvas, pages.as_slice()) {
        canvas.draw(page.op, &page.first)?;
    }
    show::print(&pages, operations.len() == 1, args.format)?;
    Ok(Status::Done)
}

/// The file to draw into, if one is named and there is one thing to draw.
fn canvas(args: &ExplainArgs, operations: &[Op]) -> Result<Option<Canvas>, Failure> {
    match (&args.flamegraph, operations, args.environments.as_slice()) {
        (None, ..) => Ok(None),
        (Some(_), [op], _) if op.workload() == Workload::Boot => {
            let told = "--flamegraph does not draw starts";
            let help = "leave it out to see a start by stage, component and function";
            Err(Failure::new(told).help(help).status(Status::Usage))
        }
        (Some(_), _, [environment]) if environment.is_xen() => {
            let told = "--flamegraph does not draw domains of Xen";
            let help = "leave it out to see component and function";
            Err(Failure::new(told).help(help).status(Status::Usage))
        }
        (Some(path), [_], [_]) => Canvas::open(path).map(Some),
        _ => {
            let told = "--flamegraph draws one operation in one environment";
            let help = "name one, such as: trapline explain sim/kvm exits/port-out --flamegraph F";
            Err(Failure::new(told).help(help).status(Status::Usage))
        }
    }
}

/// Where something can be explained.
const COUNTED: &str = "instructions are counted in sim and sim-vmx, and in the environments \
                       named sim/ and sim-vmx/, but for those with a Linux as the guest";

/// The operations, if there are marks around their batches or at their stages.
fn explainable(args: &ExplainArgs) -> Result<Vec<Op>, Failure> {
    let uncounted = args.environments.iter().find(|id| !id.has_ledgers());
    if let Some(environment) = uncounted {
        let told = match environment.clock() {
            Clock::Wall => format!("{environment} is not on the instruction clock"),
            _ => format!("whose instructions are whose is not told apart in {environment}"),
        };
        return Err(Failure::new(told).help(COUNTED).status(Status::Usage));
    }
    let clocks = args.environments.iter().map(|id| id.clock());
    if clocks
        .clone()
        .any(|clock| Some(clock) != clocks.clone().next())
    {
        let told = "two machines' instructions cannot be taken from each other";
        let help = "explain each by itself; ratios to their bare rows may be compared";
        return Err(Failure::new(told).help(help).status(Status::Usage));
    }
    // The parser has let known names pass only.
    let set = names::operations(&args.operation).unwrap_or(0);
    let chosen = Op::ALL.into_iter().filter(|op| set & op.bit() != 0);
    let operations: Vec<_> = chosen.filter(|op| has_ledger(*op)).collect();
    if args
        .environments
        .iter()
        .any(|id| id.clock() == Clock::InsnVmx)
    {
        check_traced(args, &operations)?;
    }
    if operations.is_empty() {
        let told = format!("'{}' cannot be explained", args.operation);
        let help = "name an operation of basic, system, exits, boot or populate, such as \
                    exits/port-out, or one of them whole; timer-wake is no batch of work";
        return Err(Failure::new(told).help(help).status(Status::Usage));
    }
    Ok(operations)
}

/// That operations can be explained where a debugger tells what is executed: between
/// marks in one program, and not what called what.
///
/// # Errors
/// They cannot.
fn check_traced(args: &ExplainArgs, operations: &[Op]) -> Result<(), Failure> {
    let environment = args.environments[0];
    if operations.iter().any(|op| op.workload() == Workload::Boot) {
        let told = format!("starts are not explained in {environment}");
        let help = "those of sim/linux, sim/kvm and sim/qemu-kvm are";
        return Err(Failure::new(told).help(help).status(Status::Usage));
    }
    if args.flamegraph.is_some() {
        let told = format!("no call stacks are kept in {environment}");
        let help = "leave --flamegraph out to see functions";
        return Err(Failure::new(told).help(help).status(Status::Usage));
    }
    Ok(())
}

/// The ledgers of `op` in one environment, or in two.
fn page<'a>(
    counted: &'a Counted,
    op: Op,
    environments: &[EnvironmentId],
) -> Result<Page<'a>, Failure> {
    let explained = |environment: &EnvironmentId| {
        let ledger = counted.ledgers.get(&(*environment, op));
        Ok(Explained {
            environment: *environment,
            ledger: ledger.ok_or_else(|| why_not(counted, op, *environment))?,
        })
    };
    Ok(Page {
        op,
        first: explained(&environments[0])?,
        second: environments.get(1).map(explained).transpose()?,
    })
}

fn why_not(counted: &Counted, op: Op, environment: EnvironmentId) -> Failure {
    let mut runs = counted.observations.iter();
    let run = runs.find(|run| run.environment == environment);
    let mut operations = run.iter().flat_map(|run| &run.operations);
    let outcome = operations.find(|o| o.op == op).map(|o| &o.outcome);
    let reason = match outcome {
        Some(Outcome::Skipped(reason) | Outcome::Failed(reason)) => reason,
        _ => "the guest did not tell what came of it",
    };
    Failure::new(format!(
        "{} is not measured in {environment}: {reason}",
        names::path(op)
    ))
}

fn told(page: Result<Page<'_>, Failure>) -> Option<Page<'_>> {
    page.inspect_err(|why| anstream::eprintln!("{why}")).ok()
}
