//! The ledgers of starts: where the instructions of all launches of an operation went,
//! stage by stage.

use crate::failure::Failure;
use std::collections::BTreeMap;
use trapline_abi::{Op, Stage, Workload};
use trapline_environments::last_stage;
use trapline_model::{names, Launch, Observation, Operation, Outcome};
use trapline_profile::stages::{account, placed_by_count, starts, Start};
use trapline_profile::{Ledger, Machine, Symbols, Window};

/// The names of a machine's code, and what it is.
pub type Names<'a> = (&'a Symbols, Machine);

/// The ledgers of all operations of `boot` that a run measured. `windows` are those
/// of stages.
///
/// # Errors
/// Marks were not seen as launches were told.
pub fn ledgers(
    run: &Observation,
    windows: &[Window],
    names: Names<'_>,
) -> Result<BTreeMap<Op, Ledger>, Failure> {
    let of_boot = |o: &&Operation| o.op.workload() == Workload::Boot;
    let mut ledgers = BTreeMap::new();
    for operation in run.operations.iter().filter(of_boot) {
        if let Outcome::Measured { samples, .. } = &operation.outcome {
            let ledger = ledger(operation.op, samples.len(), run, windows, names)?;
            ledgers.insert(operation.op, ledger);
        }
    }
    Ok(ledgers)
}

/// The ledger of the launches of `op`. As many as it has samples were asked for it: the
/// last ones of the run.
fn ledger(
    op: Op,
    samples: usize,
    run: &Observation,
    windows: &[Window],
    names: Names<'_>,
) -> Result<Ledger, Failure> {
    let starts = starts(windows);
    if starts.len() != run.launches.len() {
        return Err(Failure::new(format!(
            "{}: {} starts were told, but marks were seen of {}",
            run.environment,
            run.launches.len(),
            starts.len()
        ))
        .help("make build, so that image, agent and plugin are of one source"));
    }
    let end = last_stage(op).ok_or_else(|| not_told(op))?;
    let first = run.launches.len().saturating_sub(samples);
    let pairs = run.launches.iter().zip(&starts).skip(first);
    let reached: Vec<_> = pairs
        .map(|(launch, windows)| (windows, reached(launch, windows, names)))
        .collect();
    let starts = reached
        .iter()
        .map(|(windows, reached)| Start { windows, reached });
    let starts: Vec<_> = starts.collect();
    if starts.is_empty() {
        return Err(not_told(op));
    }
    account(&starts, end, names.0, names.1).map_err(|error| Failure::from_error(&error))
}

/// When a launch reached its stages: as they were stamped, or below Xen, where stamps of
/// a domain cannot be placed, as they were counted.
fn reached(launch: &Launch, windows: &[Window], names: Names<'_>) -> BTreeMap<Stage, u64> {
    match (names.1, launch.timeline.get(&Stage::Reaped)) {
        (Machine::Xen, Some(took)) => placed_by_count(windows, *took, names.0, names.1),
        _ => launch.timeline.clone(),
    }
}

fn not_told(op: Op) -> Failure {
    let op = names::path(op);
    Failure::new(format!("no launch told when it reached the end of {op}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::{EnvironmentId, Sample};
    use trapline_profile::wire::{Line, Span};

    /// A launch whose VMM executed this much until its main function.
    fn window(count: u64) -> Window {
        let line = Line {
            address: 0x1000,
            count,
            ..Line::default()
        };
        Window {
            span: Span::Stage(Stage::Exec, Stage::GuestMain),
            lines: vec![line],
            ..Window::default()
        }
    }

    fn launch(took: u64) -> Launch {
        Launch {
            timeline: [(Stage::Exec, 0), (Stage::GuestMain, took)].into(),
            ..Launch::default()
        }
    }

    fn sample(took: u64) -> Sample {
        Sample {
            start: 10,
            end: 10 + took,
            count: 1,
            host_ns: None,
        }
    }

    /// A run whose first launch was not asked for a start.
    fn run(launches: &[u64]) -> Observation {
        let samples = launches[1..].iter().copied().map(sample).collect();
        let outcome = Outcome::Measured {
            clock_cost: 0,
            loop_cost: 0,
            samples,
            interrupts: Vec::new(),
            check: 0,
            exits: None,
            host_cpu_ns: None,
            elapsed: None,
        };
        Observation {
            environment: EnvironmentId::SimLinux,
            variant: Default::default(),
            clock: EnvironmentId::SimLinux.clock(),
            replicate: 0,
            unit_per_tick: 1.0,
            operations: vec![Operation {
                op: Op::BootMain,
                outcome,
            }],
            launches: launches.iter().copied().map(launch).collect(),
            facts: Default::default(),
            log: String::new(),
            problems: Vec::new(),
        }
    }

    fn explained(launches: &[u64], counted: &[u64]) -> Result<BTreeMap<Op, Ledger>, Failure> {
        let windows: Vec<_> = counted.iter().copied().map(window).collect();
        let names = (&Symbols::default(), Machine::Linux);
        ledgers(&run(launches), &windows, names)
    }

    #[test]
    fn all_launches_that_were_asked_for_a_start_are_accounted_for() {
        let ledgers = explained(&[7, 9, 7, 2], &[99, 9, 7, 2]).unwrap();
        let ledger = &ledgers[&Op::BootMain];
        assert_eq!((ledger.total, ledger.residual), (6.0, 0));
        assert_eq!((ledger.operations, ledger.counted), (3, 18));
        assert_eq!(ledger.stages[0].to, Stage::GuestMain);
    }

    #[test]
    fn starts_without_marks_are_told() {
        let told = explained(&[7, 9, 7, 5], &[9, 7, 5]).unwrap_err();
        let expected = "sim/linux: 4 starts were told, but marks were seen of 3";
        assert!(told.to_string().contains(expected), "{told}");
    }
}
