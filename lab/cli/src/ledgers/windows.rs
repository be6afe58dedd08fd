//! Which window is of which batch. A guest executes marks around every batch that
//! it tells and around nothing else, so the windows of a run are the batches of its
//! marked operations, in order. Where their numbers differ nothing can be known.

use crate::failure::Failure;
use trapline_abi::Op;
use trapline_model::{names, Observation, Outcome};
use trapline_profile::{Batch, Window};

/// An operation with its batches, and what was counted in each.
#[derive(Debug, PartialEq)]
pub struct Marked<'a> {
    pub op: Op,
    pub batches: Vec<Batch>,
    pub windows: &'a [Window],
}

/// Gives each marked operation of a run its windows.
///
/// # Errors
/// There are more or fewer windows than batches, or an operation failed on the way,
/// so that nobody knows how many of them are its own.
pub fn assign<'a>(run: &Observation, windows: &'a [Window]) -> Result<Vec<Marked<'a>>, Failure> {
    let mut rest = windows;
    let mut assigned = Vec::new();
    let mut told = 0;
    for operation in run.operations.iter().filter(|o| !o.op.is_lateness()) {
        let failed = |reason: &str| {
            let (op, environment) = (names::path(operation.op), run.environment);
            Failure::new(format!("{op} failed in {environment}: {reason}"))
        };
        let batches = batches(&operation.outcome).map_err(failed)?;
        told += batches.len();
        let own = rest.split_at_checked(batches.len());
        let (windows, behind) = own.unwrap_or((rest, &[]));
        rest = behind;
        assigned.push(Marked {
            op: operation.op,
            batches,
            windows,
        });
    }
    match told == windows.len() {
        true => Ok(assigned),
        false => Err(Failure::new(format!(
            "{}: the guest told of {told} batches, but marks were {}",
            run.environment,
            match windows.len() {
                0 => "never reached".to_owned(),
                seen => format!("seen around {seen}"),
            }
        ))
        .help("make build, so that image, agent and plugin are of one source")),
    }
}

/// The batches of an operation, or why it failed.
fn batches(outcome: &Outcome) -> Result<Vec<Batch>, &str> {
    match outcome {
        Outcome::Measured {
            clock_cost,
            loop_cost,
            samples,
            ..
        } => Ok(samples
            .iter()
            .map(|sample| Batch {
                ticks: sample.end.wrapping_sub(sample.start),
                count: sample.count.max(1),
                clock_cost: *clock_cost,
                loop_cost: *loop_cost,
            })
            .collect()),
        Outcome::Skipped(_) => Ok(Vec::new()),
        Outcome::Failed(reason) => Err(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::{EnvironmentId, Operation, Sample};
    use trapline_profile::wire::{Line, Span};

    fn measured(op: Op, ticks: &[u64]) -> Operation {
        let sample = |end: &u64| Sample {
            start: 0,
            end: *end,
            count: 1,
            host_ns: None,
        };
        Operation {
            op,
            outcome: Outcome::Measured {
                clock_cost: 4,
                loop_cost: 0,
                samples: ticks.iter().map(sample).collect(),
                interrupts: Vec::new(),
                check: 0,
                exits: None,
                host_cpu_ns: None,
                elapsed: None,
            },
        }
    }

    fn run(operations: Vec<Operation>) -> Observation {
        Observation {
            environment: EnvironmentId::SimKvm,
            variant: Default::default(),
            clock: EnvironmentId::SimKvm.clock(),
            replicate: 0,
            unit_per_tick: 1.0,
            operations,
            launches: Vec::new(),
            facts: Default::default(),
            log: String::new(),
            problems: Vec::new(),
        }
    }

    fn windows(count: u64) -> Vec<Window> {
        let line = |count| Line {
            address: 0,
            count,
            ..Line::default()
        };
        (0..count)
            .map(|number| Window {
                span: Span::Batch,
                lines: vec![line(number)],
                contexts: Vec::new(),
            })
            .collect()
    }

    fn some() -> Observation {
        run(vec![
            measured(Op::BootSample, &[1]),
            measured(Op::Getpid, &[10, 11]),
            Operation {
                op: Op::Hypercall,
                outcome: Outcome::Skipped("there is no hypervisor".to_owned()),
            },
            measured(Op::TimerWake, &[5, 5]),
            measured(Op::Copy, &[12]),
        ])
    }

    #[test]
    fn windows_are_the_batches_in_order() {
        let windows = windows(3);
        let assigned = assign(&some(), &windows).unwrap();
        let told: Vec<_> = assigned
            .iter()
            .map(|marked| (marked.op, marked.batches.len(), marked.windows))
            .collect();
        let expected = [
            (Op::Getpid, 2, &windows[..2]),
            (Op::Hypercall, 0, &windows[2..2]),
            (Op::Copy, 1, &windows[2..]),
        ];
        assert_eq!(told, expected);
        assert_eq!(assigned[0].batches[1].ticks, 11);
    }

    #[test]
    fn another_number_of_windows_is_told() {
        for (count, marks) in [
            (2, "seen around 2"),
            (4, "seen around 4"),
            (0, "never reached"),
        ] {
            let told = assign(&some(), &windows(count)).unwrap_err().to_string();
            let expected = format!("told of 3 batches, but marks were {marks}");
            assert!(told.ends_with(&expected), "{told}");
        }
    }

    #[test]
    fn after_a_failure_nobody_knows_whose_a_window_is() {
        let mut failed = some();
        failed.operations[1].outcome = Outcome::Failed("it broke".to_owned());
        let told = assign(&failed, &windows(1)).unwrap_err().to_string();
        assert_eq!(told, "basic/getpid failed in sim/kvm: it broke");
    }
}
