//! Assigns counted windows to batches. A guest executes marks around every batch that it reports and
//! around nothing else, so the windows of a run are the batches of its marked operations, in order.
//! Runs in which the numbers differ are rejected, unless a custom VMM has started its guest again.

use crate::failure::Failure;
use trapline_abi::{Op, OpSet};
use trapline_model::{names, Observation, OperationResult, Outcome};
use trapline_profile::format::WindowKind;
use trapline_profile::{Batch, Window};

/// The windows of a run: of batches, and of stages.
pub type Windows = (Vec<Window>, Vec<Window>);

/// Separates the windows of batches from those of stages.
pub fn split(windows: Vec<Window>) -> Windows {
    let is_batch = |window: &Window| window.kind == WindowKind::Batch;
    windows.into_iter().partition(is_batch)
}

/// An operation with its batches and their windows.
#[derive(Debug, PartialEq)]
pub struct MarkedOperation<'a> {
    pub op: Op,
    pub batches: Vec<Batch>,
    pub windows: &'a [Window],
}

/// Returns the windows of each marked operation of a run.
///
/// # Errors
/// The numbers of windows and batches differ, or an operation failed, so that the number of its windows
/// is unknown.
pub fn assign<'a>(
    run: &Observation,
    windows: &'a [Window],
) -> Result<Vec<MarkedOperation<'a>>, Failure> {
    assign_first(run, run.operations.len(), windows)
}

/// Does so for the first `count` operations of a run. Windows of others may follow.
fn assign_first<'a>(
    run: &Observation,
    count: usize,
    windows: &'a [Window],
) -> Result<Vec<MarkedOperation<'a>>, Failure> {
    let (first, others) = run.operations.split_at(count);
    let mut rest = windows;
    let mut assigned = Vec::new();
    let mut reported = 0;
    let of_guests = first
        .iter()
        .filter_map(|it| Some((it.op.guest()?, &it.outcome)));
    for (op, outcome) in of_guests.filter(|(op, _)| op.has_markers()) {
        let failed = |reason: &str| {
            let (op, environment) = (names::path(op), run.config.environment);
            Failure::new(format!("{op} failed in {environment}: {reason}"))
        };
        let mut batches = batches(outcome).map_err(failed)?;
        if op.is_lateness() {
            // Nothing is subtracted from its figure.
            batches.iter_mut().for_each(|batch| batch.clock_cost = 0);
        }
        reported += batches.len();
        let own = rest.split_at_checked(batches.len());
        let (windows, behind) = own.unwrap_or((rest, &[]));
        rest = behind;
        assigned.push(MarkedOperation {
            op,
            batches,
            windows,
        });
    }
    // A VMM that starts its guest again is ended late: those batches are not reported.
    let has_more = !others.is_empty() || run.facts.contains_key("custom-vmm-end");
    if reported == windows.len() || has_more && reported < windows.len() {
        Ok(assigned)
    } else {
        Err(Failure::new(format!(
            "{}: guest reported {reported} batches; plugin saw {}",
            run.config.environment,
            match windows.len() {
                0 => "no markers".to_owned(),
                seen => format!("markers of {seen}"),
            }
        ))
        .help("make build: image, agent and plugin must be of one version"))
    }
}

/// Returns the windows of the batches of `kept` operations, and those of stages. Operations behind the last of them may
/// have failed.
///
/// # Errors
/// See [`assign`].
pub fn kept(run: &Observation, windows: Vec<Window>, kept: OpSet) -> Result<Vec<Window>, Failure> {
    let of_guests = run.operations.iter().filter_map(|it| it.op.guest());
    let measured: OpSet = of_guests.collect();
    if measured.is_subset(kept) {
        return Ok(windows);
    }
    let (batches, stages) = split(windows);
    let is_failed = |it: &OperationResult| {
        let has_markers = it.op.guest().is_some_and(Op::has_markers);
        has_markers && matches!(it.outcome, Outcome::Failed(_))
    };
    let is_kept = |it: &OperationResult| it.op.guest().is_some_and(|op| kept.contains(op));
    let last = run.operations.iter().rposition(is_kept);
    let end = last.map_or(0, |last| last + 1);
    let count = if run.operations[end..].iter().any(is_failed) {
        end
    } else {
        run.operations.len()
    };
    let of_kept = assign_first(run, count, &batches)?.into_iter();
    let of_kept = of_kept.filter(|marked| kept.contains(marked.op));
    let of_kept = of_kept.flat_map(|marked| marked.windows.iter().cloned());
    Ok(of_kept.chain(stages).collect())
}

/// Returns the batches of an operation.
///
/// # Errors
/// The reason why it failed.
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
                ticks: sample.ticks(),
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
    use expect_test::expect;
    use trapline_model::{EnvironmentId, Sample};
    use trapline_profile::format::{InsnCount, WindowKind};

    fn measured(op: Op, ticks: &[u64]) -> OperationResult {
        let sample = |end: &u64| Sample {
            start: 0,
            end: *end,
            count: 1,
            host_ns: None,
            excluded: 0,
        };
        OperationResult {
            op: op.into(),
            outcome: Outcome::Measured {
                clock_cost: 4,
                loop_cost: 0,
                samples: ticks.iter().map(sample).collect(),
                interrupts: Vec::new(),
                trials: Vec::new(),
                check: 0,
                exits: None,
                host_cpu_ns: None,
                idle: None,
                elapsed: None,
            },
        }
    }

    fn run(operations: Vec<OperationResult>) -> Observation {
        Observation {
            config: EnvironmentId::SIM_KVM.into(),
            clock: EnvironmentId::SIM_KVM.clock(),
            replicate: 0,
            unit_per_tick: 1.0,
            operations,
            launches: Vec::new(),
            facts: Default::default(),
            log: String::new(),
            problems: Vec::new(),
            host: String::new(),
        }
    }

    fn windows(count: u64) -> Vec<Window> {
        let line = |count| InsnCount {
            address: 0,
            count,
            ..InsnCount::default()
        };
        (0..count)
            .map(|number| Window {
                kind: WindowKind::Batch,
                insns: vec![line(number)],
                ..Window::default()
            })
            .collect()
    }

    fn some() -> Observation {
        run(vec![
            measured(Op::BootSample, &[1]),
            measured(Op::Getpid, &[10, 11]),
            OperationResult::new(
                Op::Hypercall,
                Outcome::Skipped("there is no hypervisor".to_owned()),
            ),
            measured(Op::TimerWake, &[5, 5]),
            measured(Op::Copy, &[12]),
        ])
    }

    #[test]
    fn windows_are_the_batches_in_order() {
        let windows = windows(3);
        let assigned = assign(&some(), &windows).unwrap();
        let reported: Vec<_> = assigned
            .iter()
            .map(|marked| (marked.op, marked.batches.len(), marked.windows))
            .collect();
        let expected = [
            (Op::Getpid, 2, &windows[..2]),
            (Op::Hypercall, 0, &windows[2..2]),
            (Op::Copy, 1, &windows[2..]),
        ];
        assert_eq!(reported, expected);
        assert_eq!(assigned[0].batches[1].ticks, 11);
    }

    #[test]
    fn a_different_number_of_windows_is_rejected() {
        let error = |count| assign(&some(), &windows(count)).unwrap_err().to_string();
        expect![[r#"
            sim/kvm: guest reported 3 batches; plugin saw markers of 2
            sim/kvm: guest reported 3 batches; plugin saw markers of 4
            sim/kvm: guest reported 3 batches; plugin saw no markers"#]]
        .assert_eq(&[2, 4, 0].map(error).join("\n"));
    }

    #[test]
    fn batches_of_a_second_start_are_left_out() {
        let mut again = some();
        let ended = ("custom-vmm-end".to_owned(), "killed".to_owned());
        again.facts.extend([ended]);
        let windows = windows(7);
        let assigned = assign(&again, &windows).unwrap();
        assert_eq!(assigned[2].windows, &windows[2..3]);
        assert!(assign(&again, &windows[..2]).is_err());
    }

    #[test]
    fn a_failed_operation_is_rejected() {
        let mut failed = some();
        failed.operations[1].outcome = Outcome::Failed("it broke".to_owned());
        let reported = assign(&failed, &windows(1)).unwrap_err().to_string();
        assert_eq!(reported, "basic/getpid failed in sim/kvm: it broke");
    }

    /// The failed operation has one window, of which the guest reported nothing.
    #[test]
    fn an_operation_behind_those_that_are_kept_may_fail() {
        let mut failed = some();
        failed.operations[4].outcome = Outcome::Failed("it broke".to_owned());
        let of = |op: Op| kept(&failed, windows(3), op.into());
        assert_eq!(of(Op::Getpid), Ok(windows(2)));
        let reported = of(Op::Copy).unwrap_err().to_string();
        assert_eq!(reported, "stream/copy failed in sim/kvm: it broke");
        failed.operations[1].outcome = Outcome::Failed("it broke".to_owned());
        let behind = kept(&failed, windows(3), Op::TimerWake.into());
        assert!(behind.is_err(), "{behind:?}");
    }
}
